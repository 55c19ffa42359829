"""The command line with models by name, in a process of its own, with a stand-in for the hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.checkpoint_kinds import KINDS, KINDS_SHAPE
from tests.engine.checkpoints import make_checkpoint
from tests.stand_in_hub import StandInHub, stand_in_hub

CLIP = Path(__file__).parents[2] / "audio" / "hello.flac"


def transcribe(hub: StandInHub, cache: Path, model: str) -> subprocess.CompletedProcess[str]:
    """Run `tutti transcribe`. Python's warnings are off, as they are for users."""
    command = [sys.executable, "-m", "app", "transcribe", "--model", model, str(CLIP)]
    environment = os.environ | hub.environment(cache) | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "base", KINDS_SHAPE)


def test_a_model_of_the_hub_is_fetched_with_one_line_in_the_log(base: Path, tmp_path: Path) -> None:
    """Libraries log nothing: neither requests nor progress bars, where the error stream is no terminal."""
    with stand_in_hub() as hub:
        hub.add("someone/whisper", base, "v1")
        done = transcribe(hub, tmp_path / "cache", "someone/whisper@v1")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "INFO engine.checkpoint.hub: Fetching someone/whisper@v1 from the hub: model.safetensors, 2 MB" in line


def test_a_model_that_cannot_be_used_is_refused_in_one_line(base: Path, tmp_path: Path) -> None:
    bert = next(kind for kind in KINDS if kind.name == "bert")
    with stand_in_hub() as hub:
        hub.add("someone/bert", bert.make(base, tmp_path / "bert"))
        done = transcribe(hub, tmp_path / "cache", "someone/bert")
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: ")
        assert "expected model_type whisper in config.json, got 'bert'" in line
        missing = transcribe(hub, tmp_path / "cache", "someone/bert@v9")
    assert missing.stderr.startswith("Error: someone/bert@v9: expected a branch, a tag or a commit of http://127")
