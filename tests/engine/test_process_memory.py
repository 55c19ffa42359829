"""Memory that is free inside the process goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

STATM = Path("/proc/self/statm")
PROGRAM = """
import resource
from pathlib import Path
from tutti_server.engine.process_memory import return_freed_memory

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

blocks = [bytearray(100_000) for _ in range(1000)]
full = resident_bytes()
kept = blocks[::10]
cycles = [[block] for block in blocks]
for cycle in cycles:
    cycle.append(cycle)
del blocks, cycles, cycle
return_freed_memory()
print(full - resident_bytes(), len(kept))
"""


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")
def test_freed_memory_goes_back_to_the_system() -> None:
    """Even where memory that is still used lies between, and of objects that refer to themselves.

    In a new process, whose heap has no room for the blocks.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    returned_bytes, n_kept = map(int, done.stdout.split())
    assert n_kept == 100
    assert returned_bytes > 60e6
