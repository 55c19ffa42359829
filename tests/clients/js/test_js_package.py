"""The JavaScript package as a user gets it: packed, installed in an empty folder, and used as the READMEs say.

The page of the server gets the same modules.
"""

import asyncio
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from clients.js import page_client
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.node import CLIENT, COMMAND_TIMEOUT_S, require_client_packages, run
from tests.recordings import TEXTS, read
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

REPOSITORY = Path(__file__).parents[3]
PAGES = ["README.md", "docs/quickstart.md", "clients/js/README.md"]

pytestmark = [pytest.mark.node, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def examples(page: str) -> list[str]:
    return re.findall(r"```js\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed package."""
    require_client_packages()
    # Packing writes into the folder of the client, so a copy of it is packed.
    copy = tmp_path_factory.mktemp("repository") / "clients" / "js"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "LICENSE"))
    (copy / "node_modules").symlink_to(CLIENT / "node_modules")
    shutil.copy(REPOSITORY / "LICENSE", copy.parents[1])
    folder = tmp_path_factory.mktemp("packed")
    run(copy, "npm", "pack", "--silent", "--pack-destination", str(folder))
    (packed,) = folder.iterdir()
    return packed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """A folder in which the package is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    run(folder, "npm", "install", "--offline", "--silent", "--no-audit", "--no-fund", str(package))
    return folder


@pytest.fixture
def project(tmp_path: Path, installed: Path) -> Path:
    """A copy of the folder `installed`, for one test."""
    return Path(shutil.copytree(installed, tmp_path / "project", symlinks=True))


def test_the_package_has_what_users_need_and_nothing_else(package: Path) -> None:
    """The license, the README, and of each module its code and types."""
    with tarfile.open(package) as archive:
        files = {member.name.removeprefix("package/") for member in archive}
        modules = {str(path.relative_to(CLIENT / "src").with_suffix("")) for path in (CLIENT / "src").rglob("*.ts")}
        built = {f"dist/{module}{ending}" for module in modules for ending in (".js", ".d.ts")}
        types = {"types/react.d.ts", "types/vue.d.ts"}
        assert files == {"LICENSE", "README.md", "package.json", *types, *built}

        def text(name: str) -> str:
            file = archive.extractfile(f"package/{name}")
            assert file is not None
            return file.read().decode()

        assert text("LICENSE") == (REPOSITORY / "LICENSE").read_text()
        assert "npm install tutti-asr-client\n" in text("README.md")
        about = json.loads(text("package.json"))
        assert (
            about["license"] == "Apache-2.0" and about["keywords"] and about["repository"]["directory"] == "clients/js"
        )


def test_the_page_gets_what_typescript_compiles(tmp_path: Path) -> None:
    """Python alone builds it: the compiler makes the same of it as of the sources, and finds no type left in it.

    What differs in parentheses and commas is the same once it is minified.
    """
    require_client_packages()
    page_client.build(CLIENT / "src", tmp_path / "page" / "src")
    (tmp_path / "page" / "package.json").write_text('{"type": "module"}')
    minified = []
    for name, sources in (("page", tmp_path / "page" / "src"), ("npm", CLIENT / "src")):
        output = tmp_path / name / "output"
        options = {"allowJs": True, "noCheck": True, "removeComments": True, "types": []}
        options |= {"rootDir": str(sources), "outDir": str(output)}
        settings = {"extends": str(CLIENT / "tsconfig.json"), "compilerOptions": options, "include": [str(sources)]}
        (tmp_path / f"{name}.json").write_text(json.dumps(settings))
        run(CLIENT, "npx", "tsc", "-p", str(tmp_path / f"{name}.json"))
        modules = sorted(path.relative_to(output) for path in output.rglob("*.js"))
        folder = tmp_path / name / "minified"
        flags = ("--minify-whitespace", "--minify-syntax", "--outbase=.", f"--outdir={folder}")
        run(output, str(CLIENT / "node_modules" / ".bin" / "esbuild"), *map(str, modules), *flags)
        minified.append({str(module): (folder / module).read_text() for module in modules})
    assert minified[0] == minified[1]
    assert len(minified[0]) == len([*(CLIENT / "src").rglob("*.ts")])


def test_node_imports_the_installed_package(installed: Path) -> None:
    """The public names are there, and importing needs nothing that only browsers have.

    Where pages are rendered on a server, importing the element does nothing, and fails nowhere.
    """
    script = """import * as tutti from "tutti-asr-client";
        import { TuttiCaptions } from "tutti-asr-client/element";
        console.log(Object.keys(tutti).join(" "), typeof TuttiCaptions);"""
    *names, element = run(installed, "node", "--input-type=module", "--eval", script).split()
    assert {"connect", "transcribeFile", "openMicrophone", "Captions", "TuttiError"} <= set(names)
    assert element == "function"


def test_the_sizes_in_the_readme_are_measured(package: Path, tmp_path: Path) -> None:
    """`npm run size` writes them; a small difference is allowed, as versions of zlib differ."""
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copy(CLIENT / "size.mjs", tmp_path / "package")
    (tmp_path / "package" / "node_modules").symlink_to(CLIENT / "node_modules")
    run(tmp_path / "package", "node", "size.mjs", "--check")


def test_errors_have_their_names_in_a_minified_bundle(project: Path) -> None:
    """There, the classes themselves have names of one letter."""
    (project / "page.js").write_text("""import * as tutti from "tutti-asr-client";
        for (const [name, Class] of Object.entries(tutti)) {
          if (Class.prototype instanceof Error) console.log(name, new Class("code", "message").name);
        }""")
    esbuild = str(CLIENT / "node_modules" / ".bin" / "esbuild")
    run(project, esbuild, "page.js", "--bundle", "--minify", "--format=esm", "--platform=node", "--outfile=bundle.mjs")
    names = [line.split() for line in run(project, "node", "bundle.mjs").splitlines()]
    assert len(names) == 9
    assert all(own == exported for exported, own in names), names


@pytest.mark.nightly
def test_react_native_gets_no_browser_code(project: Path) -> None:
    """Its engine, Hermes, does not know `import.meta`, and its bundler takes whole modules."""
    names = "connect, record, transcribeFile, Captions, toSrt"
    code = f'export {{ {names} }} from "tutti-asr-client"; export * from "tutti-asr-client/react-native";'
    (project / "page.js").write_text(code)
    options = ("--conditions=react-native", "--tree-shaking=false", "--format=esm", "--target=es2022")
    bundled = run(project, str(CLIENT / "node_modules" / ".bin" / "esbuild"), "page.js", "--bundle", *options)
    assert not re.search(r"import\.meta|AudioContext|mediaDevices|AbortSignal|structuredClone|DOMException", bundled)


@pytest.mark.nightly
@pytest.mark.parametrize("resolution", ["NodeNext", "Bundler"])
def test_the_types_of_the_installed_package_fit_the_examples(project: Path, resolution: str) -> None:
    """TypeScript finds them in Node's way and in bundlers' way, and finds no error in the examples."""
    # What a page has around an example: the elements that it names.
    elements = "startButton stopButton final live progress output"
    (project / "page.d.ts").write_text(
        "".join(f"declare const {name}: HTMLElement;\n" for name in elements.split())
        + "declare const fileInput: HTMLInputElement & { files: FileList };\n"
        + 'declare module "node:fs/promises" { function readFile(path: string): Promise<Uint8Array<ArrayBuffer>>; }\n'
        + 'declare module "ws" { export default WebSocket; }\n'
        + 'declare module "react-native-live-audio-stream" {\n'
        + '  const stream: import("tutti-asr-client/react-native").LiveAudioStream; export default stream; }\n'
    )
    for page in PAGES:
        for number, example in enumerate(examples(page)):
            (project / f"{page.replace('/', '_')}.{number}.js").write_text(example)
    options = {
        **{"strict": True, "noImplicitAny": False, "checkJs": True, "noEmit": True, "types": [], "target": "ES2022"},
        **{"module": "ESNext" if resolution == "Bundler" else resolution, "moduleResolution": resolution},
        "lib": ["ES2022", "DOM", "DOM.Iterable"],
    }
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.js", "page.d.ts"]}))
    run(project, str(CLIENT / "node_modules" / ".bin" / "tsc"), "-p", ".")


REACT_APP = """
import { useRef } from "react";
import { type TuttiCaptions } from "tutti-asr-client/element/react";

export function App() {
  const element = useRef<TuttiCaptions>(null);
  return (
    <main>
      <tutti-captions
        ref={element} className="captions" server="https://captions.example.org" lines={2} clear-after="8" times=""
        ontutti-line={(event) => console.log(event.detail.line.text)}
        onClick={() => void element.current?.start()}
      >
        Press Start and speak.
      </tutti-captions>
      {/* @ts-expect-error `show` has other values */}
      <tutti-captions show="nothing" />
      {/* @ts-expect-error there is no such attribute */}
      <tutti-captions lang="en" langauge="de" />
      {/* @ts-expect-error the detail of the event is a line */}
      <tutti-captions ontutti-line={(event) => event.detail.lines} />
    </main>
  );
}
"""
VUE_APP = """
<script setup lang="ts">
import { useTemplateRef } from "vue";
import { type TuttiCaptions } from "tutti-asr-client/element/vue";

const captions = useTemplateRef<TuttiCaptions>("captions");
// In a template, `vue-tsc` 3.3 takes what follows "//" in an attribute for a comment, and loses the types of events.
const server = "https://captions.example.org";
</script>

<template>
  <button @click="captions?.start()">Start</button>
  <tutti-captions
    ref="captions" class="captions" :server="server" :lines="2" clear-after="8" times
    @tutti-line="(event) => event.detail.line.text.trim()"
  >Press Start and speak.</tutti-captions>
  <!-- @vue-expect-error `show` has other values -->
  <tutti-captions show="nothing" />
  <!-- @vue-expect-error the detail of the event is a line -->
  <tutti-captions @tutti-line="(event) => event.detail.lines" />
</template>
"""
STRICT = {
    **{"strict": True, "exactOptionalPropertyTypes": True, "noEmit": True, "types": [], "skipLibCheck": False},
    **{"target": "ES2022", "lib": ["ES2022", "DOM", "DOM.Iterable"], "module": "ESNext", "moduleResolution": "Bundler"},
}


def link_package(project: Path, name: str, own_name: str | None = None) -> None:
    """Put a development package of the client into a project, perhaps under another name."""
    place = project / "node_modules" / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(CLIENT / "node_modules" / (own_name or name))


@pytest.mark.nightly
@pytest.mark.parametrize(("types", "jsx"), [("@types/react", "react-jsx"), ("react-18-types", "react")])
def test_react_knows_the_element(project: Path, types: str, jsx: str) -> None:
    """Attributes, events and the methods of a ref, in strict TypeScript, with React 18 and with React 19."""
    link_package(project, "@types/react", types)
    (project / "app.tsx").write_text(("" if jsx == "react-jsx" else 'import React from "react";') + REACT_APP)
    options = STRICT | {"jsx": jsx, "esModuleInterop": True, "skipLibCheck": types == "react-18-types"}
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["app.tsx"]}))
    run(project, str(CLIENT / "node_modules" / ".bin" / "tsc"), "-p", ".")


def test_the_types_are_for_typescript_before_5_7_too(package: Path) -> None:
    """Its typed arrays have no parameter: a project that checks declarations could not use the package."""
    with tarfile.open(package) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if member.name.endswith(".d.ts") and file is not None:
                assert re.findall(r"\w+(?:Array|View)<\w*Buffer\w*>", file.read().decode()) == [], member.name


@pytest.mark.nightly
def test_a_program_for_node_needs_no_types_of_the_dom(project: Path) -> None:
    """It compiles with those of Node.js alone, also where TypeScript checks the declarations of packages."""
    for name in ("@types/node", "undici-types"):
        link_package(project, name)
    (project / "program.ts").write_text(
        'import { connect } from "tutti-asr-client"; await connect("ws://127.0.0.1:8000");'
    )
    options = STRICT | {"lib": ["ES2023"], "types": ["node"], "module": "NodeNext", "moduleResolution": "NodeNext"}
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["program.ts"]}))
    run(project, str(CLIENT / "node_modules" / ".bin" / "tsc"), "-p", ".")


def test_the_types_have_every_attribute() -> None:
    """Those of the table in the documentation."""
    page = (REPOSITORY / "docs" / "captions_element.md").read_text()
    table = page.split("## Attributes")[1].split("## Properties")[0]
    types = (CLIENT / "src" / "element" / "attributes.ts").read_text()
    assert set(re.findall(r'readonly "?([\w-]+)"?\?:', types)) == set(
        re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)
    )


@pytest.mark.nightly
def test_vue_knows_the_element(project: Path) -> None:
    """Attributes and events in a template, which `vue-tsc` checks."""
    link_package(project, "vue")
    (project / "App.vue").write_text(VUE_APP)
    options = STRICT | {"jsx": "preserve", "skipLibCheck": True}
    checked = {"compilerOptions": options, "vueCompilerOptions": {"strictTemplates": True}, "include": ["App.vue"]}
    (project / "tsconfig.json").write_text(json.dumps(checked))
    run(project, str(CLIENT / "node_modules" / ".bin" / "vue-tsc"), "-p", ".")


@pytest.mark.nightly
async def test_the_examples_for_node_transcribe_a_file(project: Path) -> None:
    """Each prints the time and the text of each segment."""
    shipped = project / "app" / "assets" / "sample.flac"
    shipped.parent.mkdir(parents=True)
    for path in (shipped, project / "speech.wav"):
        # The server looks at the content, not at the name.
        path.write_bytes(wav(read("hello") / 32_768))
    settings = small_settings()
    printed: list[str] = []
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            for page in PAGES:
                files = ('"speech.wav"', '"app/assets/sample.flac"')
                (example,) = (example for example in examples(page) if any(file in example for file in files))
                (project / "example.js").write_text(re.sub(r"(127\.0\.0\.1|localhost):8000", address, example))
                process = await asyncio.create_subprocess_exec(
                    *("node", "example.js"), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                output, _ = await process.communicate()
                printed.append(output.decode())
            server.stop()
            await serving
    assert printed == [printed[0]] * len(PAGES)
    assert re.fullmatch(rf"0\.\d\d {re.escape(TEXTS['hello'])}\n", printed[0]), printed
