"""Slots, and the buffers that hold their keys and values."""

import resource
from pathlib import Path

import pytest
import torch

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs

STATM = Path("/proc/self/statm")


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "states"])
def test_a_window_is_lent_to_other_slots(small_checkpoint: Checkpoint, kind: str) -> None:
    """They attend to the same keys and values."""
    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    project = (
        (lambda layer, states: torch.stack((states, states + layer), -2)[..., None, :]) if kind == "states" else None
    )
    cache = KVCache(
        small_checkpoint.model, 4, torch.device("cpu"), dtype, has_int8_cross=kind == "int8", project_states=project
    )
    for buffer in (cache.cross_attention, cache.cross_scales, cache.encoder_states):
        if buffer is not None and buffer.numel():
            buffer.view(-1)[:] = torch.arange(buffer.numel()) % 101
    cache.set_length(1, 20)
    own = cache.read_cross_attention(0, torch.tensor([1]), 20)
    cache.lend(1, [0, 3])
    assert cache.encoder_lengths == [20, 20, 0, 20]
    assert [cache.window_slot(slot) for slot in range(4)] == [1, 1, 2, 1]
    cache.update()
    assert (cache.window_slots.tolist(), cache.lengths.tolist()) == ([1, 1, 2, 1], [20, 20, 0, 20])
    assert [{each for each in row if each >= 0} for row in cache.sharers.tolist()] == [set(), {0, 1, 3}, {2}, set()]
    rows = torch.tensor([cache.window_slot(slot) for slot in (0, 3)])
    assert (cache.read_cross_attention(0, rows, 20) == own.expand(-1, 2, -1, -1, -1)).all()
    cache.forget(3)
    assert (cache.window_slot(3), cache.encoder_lengths[3]) == (3, 0)
    cache.update()
    assert cache.window_slots.tolist() == [1, 1, 2, 3]
    assert [{each for each in row if each >= 0} for row in cache.sharers.tolist()] == [set(), {0, 1}, {2}, {3}]


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fresh_buffers_are_zero_and_take_no_memory(small_checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    """Masked positions must be finite. A thousand free slots take no memory."""
    before_bytes = resident_bytes()
    cache = KVCache(small_checkpoint.model, 1000, torch.device("cpu"), dtype)
    assert cache.cross_attention.nbytes > 5e9
    assert resident_bytes() - before_bytes < 50e6
    assert cache.self_attention.dtype == cache.cross_attention.dtype == dtype
    assert not cache.self_attention[:, :, 7].any() and not cache.cross_attention[:, :, 7].any()


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")
def test_memory_of_free_slots_is_given_back(small_checkpoint: Checkpoint) -> None:
    """When no slot has a window any more, the buffers take no memory. They hold zeros again."""
    cache = KVCache(small_checkpoint.model, 16, torch.device("cpu"), torch.float32)
    before_bytes = resident_bytes()
    buffers_bytes = cache.cross_attention.nbytes + cache.self_attention.nbytes
    fill(cache)
    assert resident_bytes() - before_bytes > 0.9 * buffers_bytes
    for slot in range(16):
        cache.forget(slot)
    cache.return_free_memory()
    assert resident_bytes() - before_bytes < 0.1 * buffers_bytes
    assert not cache.cross_attention.any() and not cache.self_attention.any()


def test_memory_in_use_is_not_given_back(small_checkpoint: Checkpoint) -> None:
    """Slots with a window keep their keys and values, also between free ones. The others are zeros."""
    cache = KVCache(small_checkpoint.model, 6, torch.device("cpu"), torch.float32)
    fill(cache)
    for slot in (0, 2, 4, 5):
        cache.forget(slot)
    assert cache.return_free_memory() == 4
    for buffer in (cache.self_attention, cache.cross_attention):
        for slot in (1, 3):
            assert (buffer[:, :, slot] == slot + 1).all()
        assert buffer.isfinite().all()
        for slot in (0, 2, 4, 5):
            assert not buffer[:, :, slot, 1:-1].any()


def test_during_a_load_slots_of_late_keep_their_memory(small_checkpoint: Checkpoint) -> None:
    """A slot gives its memory back once it had no window between two calls, and only once."""
    cache = KVCache(small_checkpoint.model, 4, torch.device("cpu"), torch.float32)
    fill(cache)
    for slot in range(1, 4):
        cache.forget(slot)
    assert cache.return_free_memory(keeps_recent=True) == 0
    cache.set_length(2, 400)
    cache.forget(2)
    assert cache.return_free_memory(keeps_recent=True) == 2
    assert (cache.cross_attention[:, :, 2] == 3).all()
    assert not cache.cross_attention[:, :, 3, 1:-1].any()
    assert cache.return_free_memory(keeps_recent=True) == 1
    assert cache.return_free_memory(keeps_recent=True) == 0


def fill(cache: KVCache) -> None:
    """Give every slot a window, and its number from 1 on as keys and values."""
    for slot in range(len(cache.encoder_lengths)):
        cache.self_attention[:, :, slot] = cache.cross_attention[:, :, slot] = slot + 1
        cache.set_length(slot, 1500)


def resident_bytes() -> int:
    n_pages = int(STATM.read_text().split()[1])
    return n_pages * resource.getpagesize()


@pytest.mark.parametrize("has_columns", [False, True])
def test_states_are_written_to_their_slots(small_checkpoint: Checkpoint, has_columns: bool) -> None:
    """Each slot holds its window's keys and values, which are visible once `set_length` has told how many."""
    cache = KVCache(small_checkpoint.model, 4, torch.device("cpu"), torch.float32, has_columns=has_columns)
    assert cache.has_columns == has_columns
    keys_values = torch.randn(700 + 700 + 90, 2, 4, 64)
    cache.write_cross_attention(3, [2, 0, 3], keys_values, find_runs([700, 700, 90]))
    for slot, first, last in ((2, 0, 700), (0, 700, 1400), (3, 1400, 1490)):
        written = cache.cross_attention[3, :, slot, :, : last - first]
        torch.testing.assert_close(written, keys_values[first:last].permute(1, 2, 0, 3))
    assert cache.encoder_lengths == [0, 0, 0, 0]
