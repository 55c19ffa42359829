"""Starting and stopping the service in one process, and the start of an engine's process."""

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from tests.engine.engines import collect, start_engine
from tests.engine.fakes import FakeRunner
from tests.small_model import SMALL_MODEL
from tutti_server.app.cli import processes
from tutti_server.app.cli.engine_places import EnginePlace
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import Window
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.process_memory import return_freed_memory
from tutti_server.engine.scheduling import worker


async def test_a_server_whose_engine_dies_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor, such as systemd or Docker, starts it again."""
    monkeypatch.setattr(worker, "FAILURE_PAUSE_S", 0.0)
    runner = FakeRunner(read_checkpoint(SMALL_MODEL), lambda _: repeat(0))
    fault = RuntimeError("device-side assert")
    started: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def start(*_: object) -> AsyncIterator[Engine]:
        async with start_engine(runner) as engine:
            started.set_result(engine)
            yield engine

    monkeypatch.setattr(processes, "start_engine", start)
    serving = asyncio.create_task(processes.serve(Settings(port=0)))
    engine = await started
    runner.faults["step"] = fault
    with pytest.raises(EngineFailed):
        await collect(engine, Window(samples=np.zeros(16_000, np.float32), session="s"))
    with pytest.raises(EngineFailed, match="the engine has died: RuntimeError") as raised:
        await serving
    assert raised.value.__cause__ is fault


async def test_the_log_names_the_supervisor_from_its_first_line_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins warn before any process is started."""
    names: list[str] = []

    class WarningPlugin:
        async def prepare(self, _: Settings) -> None:
            names.append(multiprocessing.current_process().name)

    async def serve_nothing(*_: object) -> None: ...

    monkeypatch.setattr(multiprocessing.current_process(), "name", "MainProcess")
    monkeypatch.setattr(processes, "installed_plugins", lambda: (WarningPlugin(),))
    monkeypatch.setattr(processes, "_serve_gateways", serve_nothing)
    monkeypatch.setattr(processes, "_serve_one_process", serve_nothing)
    await processes.serve(Settings(port=0))
    await processes.serve(Settings(port=0, gateways=1))
    assert names == ["MainProcess", "supervisor"]


@pytest.mark.parametrize(("scopes", "warns"), [(None, True), ('["live"]', True), ('["metrics"]', False)])
async def test_metrics_that_no_client_can_read_are_warned_of(
    scopes: str | None, warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys of `api_keys` have no scope for them, so one of the keys file must have it."""

    async def serve_nothing(*_: object) -> None: ...

    monkeypatch.setattr(processes, "installed_plugins", tuple)
    monkeypatch.setattr(processes, "_serve_one_process", serve_nothing)
    keys_file = tmp_path / "keys.toml"
    keys_file.write_text(f'[prometheus]\nkey = "k2"\nscopes = {scopes}\n')
    settings = Settings(port=0, api_keys="k", keys_file=str(keys_file) if scopes else "", metrics_need_key=True)
    await processes.serve(settings)
    assert ("no client can read /metrics" in caplog.text) == warns


async def test_a_server_gives_memory_back_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what its own sessions and uploads took."""
    given: asyncio.Future[tuple[Admission, object]] = asyncio.get_running_loop().create_future()

    async def return_memory(admission: Admission, give_back: object) -> None:
        given.set_result((admission, give_back))

    monkeypatch.setattr(processes, "return_memory", return_memory)
    runner = FakeRunner(read_checkpoint(SMALL_MODEL), lambda _: repeat(0))
    monkeypatch.setattr(processes, "start_engine", lambda *_: start_engine(runner))
    serving = asyncio.create_task(processes.serve(Settings(port=0)))
    admission, give_back = await given
    assert admission.all_finished.is_set() and give_back is return_freed_memory
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def test_an_engine_process_keeps_to_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPU, its part of that memory, and its threads."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    started: list[tuple[Settings, EngineConfig]] = []
    monkeypatch.setattr(processes, "start_engine", lambda settings, config: started.append((settings, config)))
    place = EnginePlace(3, {"CUDA_VISIBLE_DEVICES": "1"}, gpu_share=0.5)
    processes._start_engine_process(Settings(slots=7), place)
    [(_, config)] = started
    assert (config.n_threads, config.n_slots, config.gpu_share) == (3, 7, 0.5)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
