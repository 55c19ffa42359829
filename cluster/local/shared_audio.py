"""The audio of a gateway's open windows in shared memory: the gateway writes it, the engine reads it where it lies."""

from multiprocessing.shared_memory import SharedMemory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.api import SAMPLE_RATE, Priority
from engine.errors import EngineOverloaded

BLOCK_SAMPLES = SAMPLE_RATE // 2
BLOCK_BYTES = BLOCK_SAMPLES * np.dtype(np.float32).itemsize
# Interims leave as much of it free, so that a final finds room.
_KEPT_FOR_FINALS = 0.25


def content(memory: SharedMemory) -> memoryview:
    """Of memory that is not closed."""
    assert memory.buf is not None
    return memory.buf


class Place(NamedTuple):
    """Where the audio of a window lies, counted in samples."""

    start: int
    n_samples: int


class ArenaFull(EngineOverloaded):
    """There is no room for the audio of one more window."""

    def __str__(self) -> str:
        return f"no room for the audio of another window: {self.waiting} of {self.limit} blocks are taken"


class SharedAudioPool:
    """Memory in blocks of half a second. One process puts and frees; any may look."""

    def __init__(self, memory: memoryview | bytearray) -> None:
        self._memory = memory
        # The lowest room that fits is taken, so that memory which was never needed is never touched.
        self._taken = bytearray(len(memory) // BLOCK_BYTES)

    @property
    def n_taken(self) -> int:
        """Blocks."""
        return self._taken.count(1)

    def put(self, samples: NDArray[np.float32], priority: Priority) -> Place:
        """Copy audio into free blocks, which are taken until `free`.

        Raises:
            ArenaFull: there are not enough in a row, or none for interims.
        """
        n_blocks = -(-len(samples) // BLOCK_SAMPLES)
        first = self._taken.find(bytes(n_blocks))
        is_short = priority is Priority.INTERIM and self.n_taken + n_blocks > len(self._taken) * (1 - _KEPT_FOR_FINALS)
        if first < 0 or is_short:
            raise ArenaFull(self.n_taken, len(self._taken))
        self._taken[first : first + n_blocks] = b"\1" * n_blocks
        place = Place(first * BLOCK_SAMPLES, len(samples))
        self._view(place)[:] = samples
        return place

    def free(self, place: Place) -> None:
        first, n_blocks = place.start // BLOCK_SAMPLES, -(-place.n_samples // BLOCK_SAMPLES)
        assert self._taken[first : first + n_blocks] == b"\1" * n_blocks
        self._taken[first : first + n_blocks] = bytes(n_blocks)

    def look(self, place: Place) -> NDArray[np.float32]:
        """The audio itself, not a copy, to be read only."""
        samples = self._view(place)
        samples.flags.writeable = False
        return samples

    def _view(self, place: Place) -> NDArray[np.float32]:
        return np.frombuffer(self._memory, np.float32, place.n_samples, place.start * np.dtype(np.float32).itemsize)
