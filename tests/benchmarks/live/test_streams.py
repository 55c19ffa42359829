"""Live clients against a real server on a loopback port, around the fake engine, and the command around them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.live import streams
from benchmarks.live.level import run_level
from benchmarks.recordings import Recording, ReferenceUtterance
from benchmarks.server import RunningServer
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE

WORDS = [1, 2, 3]
AUDIO = np.concatenate((silence(0.2), speech(WORDS), silence(0.7)))
SPOKEN = ReferenceUtterance(said(WORDS), ((0.2, 1.04),))
MADE_UP = Recording("made-up", AUDIO, SPOKEN.text, (SPOKEN,))


async def measured(max_sessions: int = 10) -> dict[str, Any]:
    """One level of two clients."""
    async with (
        asyncio.timeout(30),
        running(replace(Settings(port=0), max_sessions=max_sessions), FakeTranscriber()) as server,
    ):
        return await run_level(RunningServer(server.http, None), [MADE_UP, MADE_UP], "en")


async def test_a_level_is_measured() -> None:
    """Every word is heard, nothing failed, and every latency has its values."""
    level = await measured()
    assert level["problems"] == []
    assert (level["streams"], level["failed"], level["wer"], level["missing"]) == (2, 0, 0.0, 0.0)
    assert level["audio_s"] == pytest.approx(2 * len(AUDIO) / SAMPLE_RATE)
    for name, n in (("first_text_s", 2), ("final_s", 2), ("final_true_s", 2), ("word_shown_s", 6)):
        assert level[name]["n"] == n
        assert level[name]["p95"] > 0
    assert level["generator_late_s"]["n"] == 2 * int(np.ceil(len(AUDIO) / SAMPLE_RATE / 0.1))


@pytest.mark.parametrize(("max_sessions", "exit_code"), [(10, 0), (1, 1)])
def test_the_command_fails_when_a_session_failed(
    max_sessions: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without room for the second client has failed. The result is written in any case, with its table."""
    level = asyncio.run(measured(max_sessions))

    async def fake_run_level(*arguments: object) -> dict[str, Any]:
        return level

    monkeypatch.setattr(streams, "run_level", fake_run_level)
    monkeypatch.setattr(streams, "warm_up", lambda server: None)
    path = tmp_path / "live.json"
    ran = CliRunner().invoke(
        streams.main, ["--url", "http://nowhere", "--streams", "2", "--seconds", "5", "--markdown", "--json", str(path)]
    )
    assert ran.exit_code == exit_code, ran.output
    assert ("overloaded" in ran.output.lower()) == bool(exit_code)
    assert json.loads(path.read_text())["levels"] == [level]
    assert path.with_suffix(".md").read_text() in ran.output
    assert f"| failed sessions | {exit_code} |" in ran.output
