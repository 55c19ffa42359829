"""The command line with models by name, in a process of its own, with a stand-in for the hub."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.app.cli.child import PATIENCE_S, Command, running
from tests.engine.checkpoint_kinds import KINDS_SHAPE
from tests.engine.checkpoints import make_checkpoint
from tests.stand_in_hub import StandInHub, stand_in_hub

CLIP = Path(__file__).parents[2] / "audio" / "hello.flac"


def transcribing(hub: StandInHub, cache: Path, model: str) -> AbstractContextManager[Command]:
    """Run `tutti transcribe` while the context is open."""
    arguments = ("-m", "tutti_server.app", "transcribe", "--model", model, CLIP)
    environment = hub.environment(cache) | {"OMP_NUM_THREADS": "1"}
    return running(*arguments, program=None, folder=CLIP.parent, **environment)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "base", KINDS_SHAPE)


def test_a_model_of_the_hub_is_fetched_with_one_line_in_the_log(base: Path, tmp_path: Path) -> None:
    """Libraries log nothing: neither requests nor progress bars, where the error stream is no terminal."""
    with stand_in_hub() as hub:
        hub.add("someone/whisper", base, "v1")
        with transcribing(hub, tmp_path / "cache", "someone/whisper@v1") as command:
            status, errors = command.end()
    assert status == 0, errors
    (line,) = errors.splitlines()
    assert (
        "INFO tutti_server.engine.checkpoint.hub: Fetching someone/whisper@v1 from the hub: model.safetensors, 2 MB"
        in line
    )


def test_ctrl_c_ends_a_download_and_leaves_nothing_unfinished(base: Path, tmp_path: Path) -> None:
    """The process ends at once, without a traceback."""
    with stand_in_hub() as hub:
        hub.add("someone/whisper", base).stalled = {"model.safetensors"}
        with transcribing(hub, tmp_path / "cache", "someone/whisper") as command:
            assert hub.has_stalled.wait(timeout=PATIENCE_S)
            command.interrupt()
            status, errors = command.end()
    assert status == 130, errors
    (line,) = errors.splitlines()
    assert "Fetching someone/whisper" in line
    assert not list((tmp_path / "cache").rglob("*.incomplete"))
