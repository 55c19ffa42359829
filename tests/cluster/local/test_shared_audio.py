"""The pool of audio that a gateway and the engine share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tutti_server.cluster.local.shared_audio import (
    BLOCK_BYTES,
    BLOCK_SAMPLES,
    Allocation,
    AudioPoolFull,
    SharedAudioPool,
)
from tutti_server.engine.api import Priority
from tutti_server.engine.errors import EngineOverloaded

N_BLOCKS = 12


def samples(n_blocks: float, level: float = 0.5) -> NDArray[np.float32]:
    return np.full(round(n_blocks * BLOCK_SAMPLES), level, np.float32)


def make_pool() -> SharedAudioPool:
    return SharedAudioPool(bytearray(N_BLOCKS * BLOCK_BYTES))


@given(st.lists(st.tuples(st.integers(1, 4 * BLOCK_SAMPLES), st.integers(0, 30)), max_size=30))
def test_audio_does_not_change_until_it_is_freed(steps: list[tuple[int, int]]) -> None:
    """In any order of `allocate` and `free`, windows of any length keep their samples, and in the end all is free."""
    pool, stored = make_pool(), dict[Allocation, float]()
    for step, (n_samples, which) in enumerate(steps):
        if which < len(stored):
            allocation = list(stored)[which]
            del stored[allocation]
            pool.free(allocation)
            continue
        try:
            stored[pool.allocate(np.full(n_samples, step, np.float32), Priority.FINAL)] = step
        except AudioPoolFull:
            assert pool.n_used_blocks > 0
        for allocation, level in stored.items():
            found = pool.view(allocation)
            assert len(found) == allocation.n_samples and (found == level).all()
    for allocation in stored:
        pool.free(allocation)
    assert pool.n_used_blocks == 0
    assert pool.view(pool.allocate(samples(N_BLOCKS), Priority.FINAL)).flags.writeable is False


def test_a_full_pool_refuses_as_a_full_queue_does() -> None:
    """A window that needs one block too many is refused, and fits after another is freed."""
    pool = make_pool()
    allocations = [pool.allocate(samples(3), Priority.FINAL) for _ in range(4)]
    with pytest.raises(EngineOverloaded, match="12 of 12 blocks") as refused:
        pool.allocate(samples(0.1), Priority.FINAL)
    assert refused.value.code == "overloaded"
    pool.free(allocations[2])
    assert pool.allocate(samples(3), Priority.FINAL) == allocations[2]


@pytest.mark.parametrize("priority", [Priority.INTERIM, Priority.SPECULATIVE, Priority.FILE])
def test_others_leave_room_for_finals_of_live_sessions(priority: Priority) -> None:
    """They may use three quarters of the blocks."""
    pool = make_pool()
    pool.allocate(samples(8), priority)
    pool.allocate(samples(1), priority)
    with pytest.raises(AudioPoolFull):
        pool.allocate(samples(1), priority)
    pool.allocate(samples(3), Priority.FINAL)
