"""Stages of load against a real server on a loopback port, around the fake engine."""

import asyncio
import os

import numpy as np

from benchmarks import memory
from benchmarks.recordings import Recording
from benchmarks.server import RunningServer
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, silence, speech
from tutti_server.app.service.settings import Settings
from tutti_server.engine.errors import EngineFailed

AUDIO = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(0.7)))
LOAD = memory.Load(
    n_warm_up=2,
    n_sessions=20,
    shortest_s=2.0,
    longest_s=8.0,
    n_uploads=4,
    n_overload=3,
    n_after=1,
    idle_s=0.0,
)


async def measured(transcriber: FakeTranscriber) -> tuple[list[dict[str, object]], list[str]]:
    recording = Recording(name="words", samples=AUDIO, text="")
    async with asyncio.timeout(60), running(Settings(port=0), transcriber) as server:
        return await memory.measure(RunningServer(server.http, os.getpid()), LOAD, [recording])


async def test_every_stage_has_a_row() -> None:
    """Each with the memory of the server after it."""
    rows, failures = await measured(FakeTranscriber())
    assert not failures
    names = [str(row["after"]) for row in rows]
    assert names[:4] == ["at start", "2 sessions to warm up", "idle", "2 short sessions"]
    assert names[12:-2] == ["20 short sessions", "idle", "4 aborted uploads", "idle", "3 sessions at once"]
    assert names[-2:] == ["1 short sessions of one client", "idle"]
    for each in rows:
        mean_mib, peak_mib = each["memory_mib"], each["peak_mib"]
        assert isinstance(mean_mib, float) and isinstance(peak_mib, float) and 1 < mean_mib < 1.01 * peak_mib


def row(after: str, mib: float, n_sessions: int | None = None) -> dict[str, object]:
    return {
        "after": after,
        "at_s": 1.0,
        "n_sessions": n_sessions,
        "n_processes": 1,
        "memory_mib": mib,
        "peak_mib": 2 * mib,
    }


def test_the_table_compares_with_the_start_and_with_the_first_idle_server() -> None:
    """Each row has its ratio to both."""
    points = row("95 short sessions", 300.0, 95)
    rows = memory.table({"rows": [row("at start", 100.0), row("idle", 150.0), points, row("idle", 200.0)]}).rows
    assert rows[-2] == ("95 short sessions", "0", "1", "300", "600", "3.00", "2.00")
    assert rows[-1][-2:] == ("2.00", "1.33")


async def test_a_session_that_fails_is_told() -> None:
    _, failures = await measured(FakeTranscriber(error=EngineFailed("gone")))
    assert len(failures) == 26 and "engine_failed" in failures[0]
