"""examples/node_stream: a file or a pipe of PCM streamed from Node.js."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.app.cli.child import ENVIRONMENT, running
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES
from tests.node import require_node
from tests.recordings import TEXTS

REPOSITORY = EXAMPLES.parent
# The WebSocket that Node.js 22 has without a switch.
NODE = ("node", "--experimental-websocket", "--no-warnings", "stream.mjs")

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with the client beside it, as `npm install` puts it: the modules are those that the page loads."""
    require_node()
    folder = tmp_path_factory.mktemp("node_stream")
    shutil.copy(EXAMPLES / "node_stream" / "stream.mjs", folder)
    package = folder / "node_modules" / "tutti-asr-client"
    package.mkdir(parents=True)
    shutil.copy(REPOSITORY / "clients" / "js" / "package.json", package)
    (package / "dist").symlink_to(REPOSITORY / "app" / "static" / "tutti")
    return folder


def stream(folder: Path, *arguments: object, audio: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [*NODE, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, input=audio, capture_output=True, timeout=60, env=ENVIRONMENT)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_file_and_a_pipe_are_captioned(server: Running, recordings: Path, project: Path) -> None:
    pcm = recordings / "speech.pcm"
    for source, audio in ((pcm, b""), ("-", pcm.read_bytes())):
        done = stream(project, source, "--url", server.ws, "--speed", 20, audio=audio)
        assert (done.stderr, done.returncode) == ("", 0)
        assert done.stdout == f"   0.00  {TEXTS['hello']}\n"


def test_ctrl_c_ends_the_audio_and_the_last_text_still_comes(server: Running, recordings: Path, project: Path) -> None:
    """The microphone at the other end of the pipe goes on."""
    with running(*NODE, "-", "--url", server.ws, program=Path("/usr/bin/env"), folder=project) as program:
        program.send((recordings / "speech.pcm").read_bytes() + bytes(64_000))
        program.wait_for(TEXTS["hello"])
        program.interrupt()
        assert program.end() == (0, "")


def test_it_ends_with_the_program_that_reads_its_output(server: Running, recordings: Path, project: Path) -> None:
    """Without a trace."""
    command = [*NODE, str(recordings / "speech.pcm"), "--url", server.ws, "--speed", "20"]
    with subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 1)


def test_wrong_arguments_are_explained(project: Path) -> None:
    for arguments, status, problem in (
        ((), 2, "expected one file, or - for a pipe, got 0"),
        (("a.pcm", "--rate", "fast"), 2, "--rate: expected a number above 0, got fast"),
        (("missing.pcm",), 1, "no such file"),
    ):
        done = stream(project, *arguments)
        assert done.returncode == status
        assert problem in done.stderr and "    at " not in done.stderr
