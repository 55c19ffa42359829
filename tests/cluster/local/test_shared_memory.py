"""Shared memory is taken from the host at once, and given back."""

import os
from pathlib import Path

import pytest

from tutti_server.cluster.local.shared_memory import SharedMemoryTooSmall, buffer_of, create_shared_memory

SHARED_MEMORY = Path("/dev/shm")
BLOCK_BYTES = 512
"""The unit of `st_blocks`."""


def test_all_pages_are_reserved_before_they_are_written() -> None:
    """Another program that fills the file system later cannot take them."""
    with create_shared_memory(1 << 20) as memory:
        path = SHARED_MEMORY / memory.name
        assert path.stat().st_blocks * BLOCK_BYTES >= 1 << 20
        assert not any(buffer_of(memory))
    assert not path.exists()


def test_a_lack_of_shared_memory_is_found_at_once() -> None:
    """The error names both sizes and what to do; nothing is left."""
    expected = r"expected 16777216 MB free .*, got \d+; enlarge it .*--shm-size"
    with pytest.raises(SharedMemoryTooSmall, match=expected), create_shared_memory(1 << 44):
        pytest.fail("the host has 16 TB of shared memory")
    assert not list(SHARED_MEMORY.glob(f"tutti-{os.getpid()}-*"))
