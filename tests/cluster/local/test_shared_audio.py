"""Room for audio that two processes share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.local.shared_audio import BLOCK_BYTES, BLOCK_SAMPLES, ArenaFull, Place, SharedAudioPool
from engine.api import Priority
from engine.errors import EngineOverloaded

N_BLOCKS = 12


def samples(n_blocks: float, level: float = 0.5) -> np.ndarray:
    return np.full(round(n_blocks * BLOCK_SAMPLES), level, np.float32)


def arena() -> SharedAudioPool:
    return SharedAudioPool(bytearray(N_BLOCKS * BLOCK_BYTES))


@given(st.lists(st.tuples(st.integers(1, 4 * BLOCK_SAMPLES), st.integers(0, 30)), max_size=30))
def test_audio_stays_as_it_was_put_until_it_is_freed(steps: list[tuple[int, int]]) -> None:
    """In any order of putting and freeing, windows of any length keep their samples, and in the end all is free."""
    room, held = arena(), dict[Place, float]()
    for at, (n_samples, which) in enumerate(steps):
        if which < len(held):
            place = list(held)[which]
            del held[place]
            room.free(place)
            continue
        try:
            held[room.put(np.full(n_samples, at, np.float32), Priority.FINAL)] = at
        except ArenaFull:
            assert room.n_taken > 0
        for place, level in held.items():
            heard = room.look(place)
            assert len(heard) == place.n_samples and (heard == level).all()
    for place in held:
        room.free(place)
    assert room.n_taken == 0
    assert room.look(room.put(samples(N_BLOCKS), Priority.FINAL)).flags.writeable is False


def test_a_full_arena_refuses_as_a_full_queue_does() -> None:
    """One block too many is refused, and fits once another is free."""
    room = arena()
    places = [room.put(samples(3), Priority.FINAL) for _ in range(4)]
    with pytest.raises(EngineOverloaded, match="12 of 12 blocks") as refused:
        room.put(samples(0.1), Priority.FINAL)
    assert refused.value.code == "overloaded"
    room.free(places[2])
    assert room.put(samples(3), Priority.FINAL) == places[2]


def test_interims_leave_room_for_finals() -> None:
    room = arena()
    room.put(samples(8), Priority.INTERIM)
    room.put(samples(1), Priority.INTERIM)
    with pytest.raises(ArenaFull):
        room.put(samples(1), Priority.INTERIM)
    room.put(samples(3), Priority.FINAL)


def test_two_processes_see_the_same_audio() -> None:
    """Who looks needs the memory and the place alone."""
    memory = bytearray(N_BLOCKS * BLOCK_BYTES)
    place = SharedAudioPool(memory).put(samples(1.5, 0.25), Priority.FINAL)
    assert (SharedAudioPool(memory).look(place) == samples(1.5, 0.25)).all()
