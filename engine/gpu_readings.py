"""Reads what a GPU does, for the metrics, in a thread of its own, so that no reading delays the engine."""

import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tutti_server.engine.api import GpuStats

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

READ_EVERY_S = 1.0
"""Time between two readings, in seconds. Nothing scrapes metrics more often."""


class GpuReadings:
    """Reads once a second until it is closed."""

    def __init__(self, read: Callable[[], GpuStats]) -> None:
        self.latest: GpuStats | None = None
        """The newest reading; `None` before the first one and after the last one."""
        self._read = read
        self._is_closing = threading.Event()
        # A driver that hangs does not delay the end of the process.
        self._thread = threading.Thread(target=self._keep_reading, name="tutti-gpu-readings", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read no more. It does not wait for a reading that has begun."""
        self._is_closing.set()

    def _keep_reading(self) -> None:
        try:
            while not self._is_closing.is_set():
                self.latest = self._read()
                self._is_closing.wait(READ_EVERY_S)
        finally:
            self.latest = None


def read_gpu(device: "torch.device") -> GpuStats:
    """What a GPU does now. All but the first two figures need the package nvidia-ml-py."""
    from torch import cuda

    power_mw = _known(lambda: cuda.power_draw(device))
    busy_percent = _known(lambda: cuda.utilization(device))
    return GpuStats(
        memory_total_bytes=cuda.get_device_properties(device).total_memory,
        memory_reserved_bytes=cuda.memory_reserved(device),
        memory_used_bytes=_known(lambda: cuda.device_memory_used(device)),
        utilization=None if busy_percent is None else busy_percent / 100,
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=_known(lambda: cuda.temperature(device)),
    )


def _known(read: Callable[[], int]) -> int | None:
    """A figure of the driver; `None` without nvidia-ml-py, and where the driver does not tell it."""
    try:
        return read()
    except ModuleNotFoundError:
        return None
    except Exception as error:  # Those of nvidia-ml-py have no common ancestor that is known without it.
        _warn_once(f"{type(error).__name__}: {error}")
        return None


@cache
def _warn_once(reason: str) -> None:
    logger.warning("a metric of the GPU is left out: %s", reason)
