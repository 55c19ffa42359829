"""`examples/plain`, `examples/react` and `examples/vue` in a real browser, with recorded events from a scripted server.

The last two are projects of Vite, the one with React in TypeScript. They are built as their READMEs say, with the
JavaScript client of this repository.
"""

import json
import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tests.browser.chromium import OpenWindow
from tests.browser.fake_room import FakeRoom, lines, wait_inside
from tests.browser.fake_server import Message, Step, serve
from tests.node import CLIENT, require_client_packages, require_packages, run

pytestmark = [pytest.mark.browser, pytest.mark.node, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
ADDRESS = "http://127.0.0.1:8000"
"""Where the examples expect the server."""

EXCHANGE: list[Message] = json.loads((Path(__file__).parent / "exchange.json").read_text())
TEXTS = [event["text"] for event in EXCHANGE if event["type"] == "utterance" and event["text"]]


class ExampleServer(FakeRoom):
    """Serves the folders of the examples, too. What they expect at `ADDRESS` is here."""

    def app(self) -> Starlette:
        plain = Route("/examples/plain/", self._plain)
        folders = Mount("/examples", StaticFiles(directory=EXAMPLES, html=True))
        return Starlette(routes=[plain, folders, *super().app().routes])

    async def _plain(self, request: Request) -> Response:
        return HTMLResponse((EXAMPLES / "plain" / "index.html").read_text().replace(ADDRESS, self.url))


def build(name: str) -> None:
    """Install the packages that are not installed yet, and bundle the example with the client as it is now."""
    require_client_packages()
    require_packages(EXAMPLES / name)
    built = CLIENT / "dist" / "element" / "index.js"
    changed_at = max(path.stat().st_mtime for path in (CLIENT / "src").rglob("*"))
    if not built.exists() or built.stat().st_mtime < changed_at:
        run(CLIENT, "npm", "run", "build")
    run(EXAMPLES / name, "npm", "run", "build")


@pytest.mark.parametrize(
    "name", ["plain", pytest.param("react", marks=pytest.mark.nightly), pytest.param("vue", marks=pytest.mark.nightly)]
)
async def test_the_example_shows_captions(open_window: OpenWindow, microphone: Path, name: str) -> None:
    """A click starts the captions of the microphone, the page has every line, and a click stops them."""
    if name != "plain":
        build(name)
    folder = name if name == "plain" else f"{name}/dist"
    server = ExampleServer(script=[Step(0.1, EXCHANGE)])
    async with serve(server), open_window(microphone) as page:
        await page.open(f"{server.url}/examples/{folder}/?server={server.url}")
        await page.wait_for("document.querySelector('button') !== null")
        await page.click("button")
        last = json.dumps(TEXTS[-1])
        await wait_inside(page, f"part('finals').includes({last})")
        # The plain page shows times, too.
        assert [re.sub(r"^\d+:\d\d ", "", line) for line in await lines(page)] == TEXTS
        await page.evaluate(
            "globalThis.ended = new Promise((done) => document.addEventListener('tutti-end', () => done(true))); 0"
        )
        if name == "plain":
            await page.click("button + button")
        else:
            n_words = sum(len(text.split()) for text in TEXTS)
            await page.wait_for(f"document.querySelector('#words').innerText === '{n_words} words'")
            await page.wait_for("document.querySelector('button').innerText === 'Stop'")
            await page.click("button")
            await page.wait_for("document.querySelector('button').innerText === 'Start'")
        assert await page.evaluate("ended")
        assert page.errors == []


@pytest.mark.parametrize("name", ["react", "vue"])
def test_the_lock_file_names_no_registry_and_has_a_hash_of_every_package(name: str) -> None:
    """Every registry can be used; the client is the one of this repository."""
    packages = json.loads((EXAMPLES / name / "package-lock.json").read_text())["packages"]
    addresses = {path: package["resolved"] for path, package in packages.items() if "resolved" in package}
    assert addresses == {"node_modules/tutti-asr-client": "../../clients/js"}
    fetched = {path for path in packages if path.startswith("node_modules/")} - addresses.keys()
    assert [path for path in fetched if "integrity" not in packages[path]] == []
