"""The device's memory limits the number of slots."""

import pytest

from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.random_weights import SIZES
from tutti_server.engine.model.slot_budget import MAX_SLOTS, SCRATCH_BYTES, choose_slots, slot_bytes

LARGE = SIZES["large-v3"]
GIB = 1 << 30


def test_a_slot_holds_tokens_and_a_full_window() -> None:
    """A slot of large-v3 in 16 bits has 246 MB for cross-attention and 73 MB for self-attention."""
    assert slot_bytes(LARGE, 2) == 2 * 32 * (448 + 1500) * 1280 * 2 == pytest.approx(319e6, rel=0.01)


def test_there_are_as_many_slots_as_fit_or_as_are_configured() -> None:
    size = slot_bytes(LARGE, 2)
    free = SCRATCH_BYTES + 100 * size
    assert choose_slots(size, None, free, 1.0) == choose_slots(size, None, 2 * free, 0.5) == 100
    assert choose_slots(size, 100, free, 1.0) == 100
    assert choose_slots(size, None, 1000 * GIB, 0.85) == MAX_SLOTS
    with pytest.raises(CheckpointError, match=r"slots: expected at most 100, got 101 of 0\.30 GiB each"):
        choose_slots(size, 101, free, 1.0)
    with pytest.raises(CheckpointError, match="expected at most 0"):
        choose_slots(size, None, GIB, 0.85)
