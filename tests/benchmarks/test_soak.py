"""Long sessions against a real server on a loopback port, around the fake engine."""

import asyncio
import os
from typing import Any

import numpy as np
import pytest

from benchmarks import soak
from benchmarks.server import RunningServer
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings
from tutti_server.engine.errors import EngineFailed

WORDS = [1, 2, 3, 4]
AUDIO = np.concatenate((silence(0.3), speech(WORDS), silence(0.7)))
LOOP_S = len(AUDIO) / 16_000


async def soaked(
    n_loops: int, period_s: float, transcriber: FakeTranscriber
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Repeat the same words, 100 times as fast as real time. Returns the result and the rows reported meanwhile."""
    plan = soak.Plan(samples=AUDIO, audio_s=n_loops * LOOP_S, pace=100.0, period_s=period_s)
    reported: list[dict[str, Any]] = []
    async with asyncio.timeout(30), running(Settings(port=0, max_ahead_s=600.0), transcriber) as server:
        return await soak.soak(RunningServer(server.http, os.getpid()), plan, reported.append), reported


async def test_every_period_has_a_row() -> None:
    """Each with what it took; together they hold all of the audio and all of its words."""
    result, reported = await soaked(24, 6 * LOOP_S, FakeTranscriber())
    assert result["failure"] is None
    rows = result["rows"]
    assert rows == reported and len(rows) == 4
    assert [each["until_s"] for each in rows] == pytest.approx([6 * LOOP_S * (i + 1) for i in range(4)], abs=0.11)
    assert sum(each["audio_s"] for each in rows) == pytest.approx(24 * LOOP_S, abs=0.01)
    assert sum(each["words"] for each in rows) == 24 * len(said(WORDS).split())
    assert all(each["server"]["rss_mib"] > 1 and each["server"]["cpu_s_per_audio_s"] >= 0 for each in rows)
    assert all(each["interims"] for each in rows[:-1])
    title, *cells = zip(*soak.table({"rows": rows, "hours": 1.0, "pace": 100.0}).rows, strict=True)
    assert len(cells) == 4 and "server RSS MiB" in title


async def test_a_session_that_fails_is_told() -> None:
    """With the rows until then."""
    result, _ = await soaked(24, LOOP_S, FakeTranscriber(error=EngineFailed("gone")))
    assert "engine_failed" in result["failure"]
