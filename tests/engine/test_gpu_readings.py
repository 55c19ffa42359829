"""What a GPU does is read beside the engine, as far as its driver tells."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.engine.engines import start_engine
from tests.engine.fakes import PATIENCE_S, FakeRunner
from tutti_server.engine import engine as engine_module
from tutti_server.engine import gpu_readings
from tutti_server.engine.api import GpuStats
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.gpu_readings import GpuReadings, read_gpu

GPU = torch.device("cuda", 0)


class Properties:
    total_memory = 80 << 30


class NVMLError_NotSupported(Exception):  # noqa: N801  # the name that nvidia-ml-py gives it
    """Stands in for the error of nvidia-ml-py."""


def no_driver(device: torch.device) -> int:
    """What PyTorch does without nvidia-ml-py."""
    raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.")


def not_supported(device: torch.device) -> int:
    raise NVMLError_NotSupported("Not Supported")


ALL: dict[str, Callable[[torch.device], int]] = {
    "device_memory_used": lambda device: 5 << 30,
    "utilization": lambda device: 37,
    "power_draw": lambda device: 412_500,
    "temperature": lambda device: 61,
}
MEMORY = GpuStats(memory_total_bytes=80 << 30, memory_reserved_bytes=3 << 30)


@pytest.mark.parametrize(
    ("figures", "expected", "warning"),
    [
        (ALL, replace(MEMORY, memory_used_bytes=5 << 30, utilization=0.37, power_w=412.5, temperature_c=61), None),
        (dict.fromkeys(ALL, no_driver), MEMORY, None),
        # A part of a card (MIG) has no utilization of its own.
        (
            ALL | {"utilization": not_supported, "power_draw": not_supported},
            replace(MEMORY, memory_used_bytes=5 << 30, temperature_c=61),
            "a metric of the GPU is left out: NVMLError_NotSupported: Not Supported",
        ),
    ],
    ids=["all", "no package", "some"],
)
def test_what_a_driver_does_not_tell_is_left_out_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    figures: dict[str, Callable[[torch.device], int]],
    expected: GpuStats,
    warning: str | None,
) -> None:
    """The memory of the engine is always known. Figures are in plain units."""
    gpu_readings._warn_once.cache_clear()
    always = {"get_device_properties": lambda device: Properties, "memory_reserved": lambda device: 3 << 30}
    for name, figure in {**always, **figures}.items():
        monkeypatch.setattr(torch.cuda, name, figure)
    with caplog.at_level(logging.WARNING):
        assert [read_gpu(GPU) for _ in range(3)] == [expected] * 3
    assert warning is None or caplog.messages == [warning]


def test_a_slow_reading_delays_nobody_and_none_is_shown_after_the_end() -> None:
    begun, may_end = threading.Event(), threading.Event()
    stats = GpuStats(memory_total_bytes=2, memory_reserved_bytes=1)

    def read() -> GpuStats:
        begun.set()
        assert may_end.wait(PATIENCE_S)
        return stats

    readings = GpuReadings(read)
    assert begun.wait(PATIENCE_S)
    assert readings.latest is None
    readings.close()
    may_end.set()
    readings._thread.join(PATIENCE_S)
    assert readings.latest is None and not readings._thread.is_alive()


async def test_an_engine_on_a_gpu_shows_its_readings_until_it_ends(
    small_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin after the warm-up, and an engine on a CPU has none."""
    is_read, stats = asyncio.Event(), GpuStats(memory_total_bytes=2, memory_reserved_bytes=1)
    runner = FakeRunner(small_checkpoint, lambda _: iter(()))
    async with start_engine(runner) as engine:
        assert engine.stats().gpu is None
    loop = asyncio.get_running_loop()

    class Told(GpuReadings):
        def _keep_reading(self) -> None:
            self.latest = self._read()
            loop.call_soon_threadsafe(is_read.set)

    monkeypatch.setattr(engine_module, "GpuReadings", Told)
    monkeypatch.setattr(engine_module, "read_gpu", lambda device: stats if device == GPU else None)
    monkeypatch.setattr(engine_module, "_prepare_interpreter", lambda: None)
    runner.device = GPU
    async with asyncio.timeout(PATIENCE_S), start_engine(runner) as engine:
        await is_read.wait()
        assert engine.stats().gpu == stats
        gpu = engine._gpu
    assert gpu is not None and gpu._is_closing.is_set() and engine.stats().gpu is None
