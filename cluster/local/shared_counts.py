"""The counts that gateways share in memory, and what remains of those of a gateway that has died."""

import asyncio
import math
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory

import numpy as np
from numpy.typing import NDArray

from tutti_server.cluster.local.shared_memory import buffer_of

Counts = NDArray[np.int64]
KeepCounts = Callable[[Counts], tuple[Counts, Counts]]
"""Tells of the counts of a gateway that has died which ones count for a while, and which ones always."""
COUNT_BYTES = np.dtype(np.int64).itemsize
"""The size of one number that gateways share."""


def counts_in(memory: SharedMemory, shape: tuple[int, int]) -> Counts:
    """The shared counts, as an array on `memory`. `shape`: the rows, and the counts in each of them."""
    return np.frombuffer(buffer_of(memory), np.int64, math.prod(shape)).reshape(shape)


class SharedCounts:
    """A row for each gateway, which that gateway writes, and the last one for those that have died."""

    def __init__(self, memory: SharedMemory, shape: tuple[int, int], keep: KeepCounts, keep_s: float) -> None:
        """Use `memory`, which is filled with 0.

        Args:
            memory: has room for an array of this shape.
            shape: the gateways and one more, and the counts of each.
            keep: see `KeepCounts`.
            keep_s: how long counts that are kept for a while are kept, in seconds.
        """
        self.memory = memory
        self.shape = shape
        self._keep = keep
        self._keep_s = keep_s
        self._timers: set[asyncio.TimerHandle] = set()

    def note_end(self, gateway: int) -> None:
        """Note that the gateway with this number has died. Its row is 0 then."""
        counts = counts_in(self.memory, self.shape)
        for_a_while, always = self._keep(counts[gateway])
        # First added and then removed: no gateway sees room that there is not.
        counts[-1] += for_a_while + always
        counts[gateway] = 0
        if not for_a_while.any():
            return

        def drop() -> None:
            self._timers.discard(timer)
            counts_in(self.memory, self.shape)[-1] -= for_a_while

        timer = asyncio.get_running_loop().call_later(self._keep_s, drop)
        self._timers.add(timer)

    def close(self) -> None:
        """Touch the memory no more."""
        for timer in self._timers:
            timer.cancel()
