"""Starting and stopping the service in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat

import numpy as np
import pytest

from app.cli import processes
from app.service.settings import Settings
from engine.api import Window
from engine.checkpoint.checkpoint import read_checkpoint
from engine.engine import Engine
from engine.errors import EngineFailed
from engine.scheduling import worker
from tests.engine.conftest import collect, start_engine
from tests.engine.fakes import FakeRunner


async def test_a_server_whose_engine_dies_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor, such as systemd or Docker, starts it again."""
    monkeypatch.setattr(worker, "FAILURE_PAUSE_S", 0.0)
    runner = FakeRunner(read_checkpoint("tutti-demo"), lambda _: repeat(0))
    fault = RuntimeError("device-side assert")
    started: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def start(settings: Settings) -> AsyncIterator[Engine]:
        async with start_engine(runner) as engine:
            started.set_result(engine)
            yield engine

    monkeypatch.setattr(processes, "start_engine", start)
    async with asyncio.timeout(20):
        serving = asyncio.create_task(processes.serve(Settings(port=0)))
        engine = await started
        runner.faults["step"] = fault
        with pytest.raises(EngineFailed):
            await collect(engine, Window(samples=np.zeros(16_000, np.float32), session="s"))
        with pytest.raises(EngineFailed, match="the engine has died: RuntimeError") as raised:
            await serving
    assert raised.value.__cause__ is fault
