"""Stages of load against a real server on a loopback port, around the fake engine."""

import asyncio
import os

import numpy as np

from app.service.settings import Settings
from benchmarks import memory
from benchmarks.recordings import Recording
from benchmarks.server import RunningServer
from engine.errors import EngineFailed
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, silence, speech

AUDIO = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(0.7)))
LOAD = memory.Load(n_sessions=20, n_uploads=4, n_overload=3, n_clients=4, idle_s=0.0)


async def measured(transcriber: FakeTranscriber) -> tuple[list[dict[str, object]], list[str]]:
    recording = Recording(name="words", samples=AUDIO, text="")
    async with asyncio.timeout(60), running(Settings(port=0), transcriber) as server:
        return await memory.measure(RunningServer(server.http, os.getpid()), LOAD, [recording])


async def test_every_stage_has_a_row() -> None:
    """Each with the memory of the server after it."""
    rows, failures = await measured(FakeTranscriber())
    assert not failures
    names = [str(row["after"]) for row in rows]
    assert names[:2] == ["at start", "2 short sessions"] and names[10:12] == ["20 short sessions", "idle"]
    assert names[12:] == ["4 aborted uploads", "idle", "3 sessions at once", "idle"]
    assert all(isinstance(row["rss_mib"], float) and row["rss_mib"] > 1 for row in rows)
    assert len(memory.table({"rows": rows}).rows) == len(rows)


async def test_a_session_that_fails_is_told() -> None:
    _, failures = await measured(FakeTranscriber(error=EngineFailed("gone")))
    assert len(failures) == 23 and "engine_failed" in failures[0]
