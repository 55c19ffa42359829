"""Memory that a process needs no more goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tutti_server.engine.model.linear import can_pack

STATM = Path("/proc/self/statm")
N_ROWS = 400
"""The numbers of rows that are multiplied; a kernel is compiled for each."""
BEGINNING = """
from tutti_server.engine.process_environment import prepare_environment
prepare_environment()
import resource
from pathlib import Path
from tutti_server.engine.process_memory import return_freed_memory

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
"""
BLOCKS = """
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
PRODUCTS = f"""
import torch
from tutti_server.engine.model.linear import Product

torch.set_num_threads(1)
weight, product = torch.zeros(64, 64), Product()
product.pack(weight)
sizes = []
for n_rows in range(1, {N_ROWS} + 1):
    product(torch.zeros(n_rows, 64), weight, None)
    if n_rows % ({N_ROWS} // 2) == 0:
        return_freed_memory()
        sizes.append(resident_bytes())
print(sizes[1] - sizes[0])
"""

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")


def printed_by(program: str) -> list[int]:
    """The numbers that a program prints in a process of its own, whose heap has no room for what it allocates."""
    command = [sys.executable, "-c", BEGINNING + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return [int(each) for each in done.stdout.split()]


def test_freed_memory_goes_back_to_the_system() -> None:
    """Even where memory that is still used lies between, and of objects that refer to themselves."""
    returned_bytes, n_kept = printed_by(BLOCKS)
    assert n_kept == 100
    assert returned_bytes > 60e6


@pytest.mark.skipif(not can_pack(torch.zeros(1, 1)), reason="needs oneDNN")
@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_lengths() -> None:
    """Kernels are dropped by PyTorch as well as by oneDNN. When PyTorch kept them, the memory grew by 58 MB."""
    (grown_bytes,) = printed_by(PRODUCTS)
    assert grown_bytes < 10e6
