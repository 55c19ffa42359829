"""What a new user does in the first hour, from the wheel and without the checkout. There is no traceback."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.app.cli.child import running
from tests.engine.checkpoint_kinds import KINDS_SHAPE
from tests.engine.checkpoints import make_checkpoint
from tests.first_hour.commands import COMMANDS, PAGES, SAMPLE, SERVERS, SIMILAR
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


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    """A hub that has a model under the name that the documentation uses."""
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("models") / "base", KINDS_SHAPE)
    with stand_in_hub() as hub:
        hub.add("openai/whisper-small", checkpoint)
        yield hub


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
