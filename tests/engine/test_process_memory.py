"""Memory that is free inside the process goes back to the system."""

import resource
from pathlib import Path

import pytest

from engine.process_memory import return_freed_memory

STATM = Path("/proc/self/statm")


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")
def test_freed_memory_goes_back_to_the_system() -> None:
    """Even where memory that is still used lies between."""
    before_bytes = resident_bytes()
    blocks = [bytearray(100_000) for _ in range(1000)]
    assert resident_bytes() - before_bytes > 90e6
    kept = blocks[::10]
    blocks.clear()
    return_freed_memory()
    assert resident_bytes() - before_bytes < 30e6
    assert len(kept) == 100


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * resource.getpagesize()
