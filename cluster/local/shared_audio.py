"""The audio of open windows, in memory that a gateway and the engine process share.

Each gateway has one pool. The gateway copies the samples of a window into free blocks, sends the engine only their
place, an `Allocation`, and frees the blocks when the engine is done with the window. The engine reads the samples
where they are, without a copy. Only the gateway knows which blocks are in use.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import SAMPLE_RATE, Priority
from tutti_server.engine.errors import EngineOverloaded

BLOCK_SAMPLES = SAMPLE_RATE // 2
"""Samples in a block, the unit of allocation: half a second of audio."""
BLOCK_BYTES = BLOCK_SAMPLES * np.dtype(np.float32).itemsize

_SHARE_RESERVED_FOR_FINALS = 0.25
"""Fraction of the pool that only finals of live sessions may use. Files leave it free, too."""


class Allocation(NamedTuple):
    """The place of a window's audio in a pool."""

    start: int
    """Index of the first sample."""
    n_samples: int


class AudioPoolFull(EngineOverloaded):
    """The pool has no room for the audio of another window."""

    def __str__(self) -> str:
        return f"no room for the audio of another window: {self.waiting} of {self.limit} blocks are taken"


class SharedAudioPool:
    """Blocks of audio in shared memory. One process writes; any process that has the memory may read."""

    def __init__(self, memory: memoryview | bytearray) -> None:
        self._audio = np.frombuffer(memory, np.float32)
        self._readable = self._audio.view()
        self._readable.flags.writeable = False
        self._is_used = bytearray(len(memory) // BLOCK_BYTES)
        """One byte for each block: 1 while it is in use. `bytearray.find` searches it at the speed of C."""

    @property
    def n_used_blocks(self) -> int:
        """The number of blocks in use."""
        return self._is_used.count(1)

    def allocate(self, samples: NDArray[np.float32], priority: Priority) -> Allocation:
        """Copy `samples` into free blocks. The blocks stay in use until `free`.

        Raises:
            AudioPoolFull: there are not enough free blocks in a row, or only the reserve for finals is left.
        """
        n_blocks = _n_blocks(len(samples))
        first = self._is_used.find(bytes(n_blocks))
        n_limit = len(self._is_used) * (1 - _SHARE_RESERVED_FOR_FINALS)
        uses_reserve = priority is not Priority.FINAL and self.n_used_blocks + n_blocks > n_limit
        if first < 0 or uses_reserve:
            raise AudioPoolFull(self.n_used_blocks, len(self._is_used))
        self._is_used[first : first + n_blocks] = b"\1" * n_blocks
        allocation = Allocation(first * BLOCK_SAMPLES, len(samples))
        self._audio[allocation.start : allocation.start + len(samples)] = samples
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Make the blocks of `allocation` available again."""
        first, n_blocks = allocation.start // BLOCK_SAMPLES, _n_blocks(allocation.n_samples)
        assert self._is_used[first : first + n_blocks] == b"\1" * n_blocks
        self._is_used[first : first + n_blocks] = bytes(n_blocks)

    def view(self, allocation: Allocation) -> NDArray[np.float32]:
        """The samples themselves, not a copy, as a read-only array."""
        return self._readable[allocation.start : allocation.start + allocation.n_samples]


def _n_blocks(n_samples: int) -> int:
    return -(-n_samples // BLOCK_SAMPLES)
