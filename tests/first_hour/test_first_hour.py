"""What a new user does in the first hour, from the wheel and without the checkout. There is no traceback."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.app.cli.child import ENVIRONMENT, running
from tests.engine.checkpoint_kinds import KINDS, KINDS_SHAPE
from tests.engine.checkpoints import make_checkpoint
from tests.first_hour.commands import COMMANDS, HELLO, PAGES, SAMPLE, SERVERS, SIMILAR, TRAIN
from tests.first_hour.conftest import shell
from tests.stand_in_hub import StandInHub, stand_in_hub
from tutti_server.app.version import VERSION

REPOSITORY = Path(__file__).parents[2]
INTERRUPTED = 130
"""What shells say of a program that SIGINT ended: 128 and the number of the signal."""
TUTTI = ".venv/bin/tutti"
pytestmark = pytest.mark.timeout(300)


def test_the_code_is_that_of_the_wheel(folder: Path) -> None:
    """Nothing of the checkout is used."""
    code = "import tutti, tutti_server.app as app; print(tutti.__file__, app.__file__)"
    paths = shell(folder, f".venv/bin/python -c '{code}'").stdout.split()
    assert len(paths) == 2
    assert [path for path in paths if not path.startswith(f"{folder}/.venv/lib/")] == []
    assert shell(folder, ".venv/bin/tutti --version").stdout == f"tutti, version {VERSION}\n"


@pytest.mark.nightly
def test_ctrl_c_ends_the_demo_at_any_time(folder: Path) -> None:
    """After 1, 6 and 12 s: while the model is loaded, and while captions are shown. Nothing is left running."""
    with ExitStack() as stack:
        demos = [stack.enter_context(running("demo", program=folder / TUTTI, folder=folder)) for _ in range(3)]
        for demo, seconds in zip(demos, (1, 5, 6), strict=True):
            demo.run_for(seconds)
            demo.interrupt()
            assert demo.end() == (INTERRUPTED, "")


@pytest.mark.nightly
def test_a_pipe_is_transcribed(folder: Path) -> None:
    done = shell(folder, "cat talk.mp3 | .venv/bin/tutti transcribe - --language en")
    assert (done.stdout, done.stderr, done.returncode) == (f"{HELLO} {TRAIN}\n", "", 0)


@pytest.mark.nightly
def test_a_full_disk_and_a_closed_pipe_are_no_traceback(folder: Path) -> None:
    done = shell(folder, ".venv/bin/tutti transcribe talk.mp3 >/dev/full")
    assert (done.stderr, done.returncode) == ("Error: cannot write the output: No space left on device\n", 1)
    done = shell(folder, ".venv/bin/tutti transcribe talk.mp3 --format segments | head -1")
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


@pytest.mark.nightly
def test_one_of_several_that_fails_does_not_stop_the_others(folder: Path) -> None:
    """A film with silent credits is complete; what is no recording is reported."""
    done = shell(folder, ".venv/bin/tutti transcribe film.mp4 notes.txt speech.wav missing.mp3 talks --language en")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: missing.mp3: expected a file or a folder, found none of this name",
        "Error: notes.txt: expected audio in a format that FFmpeg decodes (Invalid data found when processing input)",
    ]
    assert done.stdout == (
        f"==> film.mp4 <==\n\n==> speech.wav <==\n{HELLO}\n\n"
        f"==> talks/train.flac <==\n{TRAIN}\n\n==> talks/monday/hello.webm <==\n{HELLO}\n"
    )


@pytest.mark.nightly
def test_the_first_lines_of_a_long_file_come_long_before_its_end(folder: Path) -> None:
    """The output is no terminal. Ctrl-C ends the rest."""
    arguments = ("transcribe", "long.wav", "--format", "srt", "--language", "en")
    with running(*arguments, program=folder / TUTTI, folder=folder) as command:
        command.wait_for("Could you please")
        command.interrupt()
        assert command.end() == (INTERRUPTED, "")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    """A hub with every kind of model, and one under the name that the documentation uses."""
    folder = tmp_path_factory.mktemp("models")
    base = make_checkpoint(folder / "base", KINDS_SHAPE)
    with stand_in_hub() as hub:
        for kind in KINDS:
            hub.add(f"someone/{kind.name}", kind.make(base, folder / kind.name))
        hub.add("someone/revisions", folder / "plain", "v1")
        hub.add("someone/gated", folder / "plain").token = "hf_secret"
        hub.add("openai/whisper-small", folder / "plain")
        yield hub


TRY_EACH = """
import sys
import click
from tutti_server.app.cli.commands import cli
for name in sys.argv[1:]:
    options = ["--model", name, "--language", "en", "--temperature", "0.5", "-o", "out/"]
    try:
        cli.main(["transcribe", "speech.wav", *options], standalone_mode=False)
        print(f"{name}: transcribed")
    except click.ClickException as error:
        print(f"{name}: {' '.join(error.format_message().split())}")
"""
"""Runs the same command for each model in one process, because the import of torch takes most of a start."""
OTHERS = {
    "someone/revisions@v1": "transcribed",
    "someone/revisions@v2": "v2",
    "someone/gated": "HF_TOKEN",
    "someone/missing": "HF_TOKEN",
}
"""Other names on the hub, and what is printed for them."""


@pytest.mark.nightly
def test_every_kind_of_model_is_used_or_explained(folder: Path, hub: StandInHub, tmp_path: Path) -> None:
    """Each by its name on the hub, with an empty cache."""
    expected = {f"someone/{kind.name}": kind.error or "transcribed" for kind in KINDS} | OTHERS
    done = subprocess.run(
        [folder / ".venv/bin/python", "-c", TRY_EACH, *expected],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env=ENVIRONMENT | hub.environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    printed = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert printed.keys() == expected.keys()
    assert [name for name, text in expected.items() if not re.search(text, printed[name])] == [], done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[pytest.mark.nightly] if each in SIMILAR else []) for each in COMMANDS]
)
def test_a_command_of_the_documentation_does_what_it_says(folder: Path, address: str, command: str) -> None:
    """Only the address of the server is another one."""
    expected = COMMANDS[command]
    if " -m tutti " in command:
        command += f" --url ws://{address}"
    done = shell(folder, command.replace("127.0.0.1:8000", address))
    assert done.returncode == 0, done.stderr
    # Subtitles have several lines.
    shown = done.stdout.replace("\n", " ")
    assert [part for part in expected.output if part not in shown] == [], done.stdout
    assert [file for file in expected.files if not (folder / file).stat().st_size] == []


@pytest.mark.nightly
@pytest.mark.parametrize("command", SERVERS)
def test_a_server_of_the_documentation_starts(folder: Path, hub: StandInHub, tmp_path: Path, command: str) -> None:
    """Its model comes from the hub; Ctrl-C ends it."""
    program, *arguments = command.split()
    environment = hub.environment(tmp_path)
    with running(*arguments, "--port", "0", program=folder / program, folder=folder, **environment) as server:
        server.wait_for("model openai/whisper-small")
        server.wait_for("metrics")
        server.interrupt()
        status, errors = server.end()
    assert status == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize("page", [PAGES[0], *(pytest.param(each, marks=pytest.mark.nightly) for each in PAGES[1:])])
def test_the_python_example_transcribes_with_the_installed_client(folder: Path, address: str, page: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    (folder / "example.py").write_text(example.replace("127.0.0.1:8000", address))
    done = shell(folder, ".venv/bin/python -W error example.py")
    assert done.stderr == ""
    assert [text for text in SAMPLE if text not in done.stdout] == [], done.stdout
