"""A new user's folder: the wheels are installed in `.venv`, and recordings lie beside it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.app.cli.child import ENVIRONMENT, running
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import encode
from tests.recordings import MEETING, read
from tests.wheels import made_once, make_environment, shared_wheels
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder but for `.venv`, which has the wheels and the dependencies, and for recordings."""
    wheels = shared_wheels(tmp_path_factory)

    def make(folder: Path) -> None:
        make_environment(folder / ".venv", wheels["tutti_asr"])
        _record(folder)

    return made_once(tmp_path_factory, "new_user", make)


def _record(folder: Path) -> None:
    """Make the recordings that the README's commands name."""
    hello, train = (read(name).astype(np.float32) / np.float32(32_768) for name in ("hello", "train"))
    # Silence between the sentences, so that each is an utterance.
    train = np.concatenate((np.zeros(SAMPLE_RATE, np.float32), train))
    (folder / "talk.mp3").write_bytes(encode("mp3", "libmp3lame", SAMPLE_RATE, np.concatenate((hello, train))))
    (folder / "speech.wav").write_bytes(wav(hello))
    (folder / "app" / "assets").mkdir(parents=True)
    shutil.copy(MEETING, folder / "app" / "assets" / "sample.flac")
    (folder / "talks" / "monday").mkdir(parents=True)
    (folder / "talks" / "train.flac").write_bytes(encode("flac", "flac", SAMPLE_RATE, train))
    (folder / "talks" / "monday" / "hello.webm").write_bytes(encode("webm", "libopus", 48_000, hello))
    (folder / "call.wav").write_bytes(_two_sides(hello, train))


def _two_sides(left: Samples, right: Samples) -> bytes:
    """A call in which the left side speaks first, and then the right one."""
    sides = np.zeros((len(left) + len(right), 2), np.float32)
    sides[: len(left), 0] = left
    sides[len(left) :, 1] = right
    return wav(sides, n_channels=2)


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    """The address of `tutti serve`, such as `127.0.0.1:8000`."""
    with running("serve", "--port", "0", program=folder / ".venv/bin/tutti", folder=folder) as command:
        page = command.wait_for("captions").split()[-1]
        yield page.removeprefix("http://").rstrip("/")
        command.interrupt()
        assert command.end()[0] == 0


def shell(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in the folder."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT | environment,
    )
