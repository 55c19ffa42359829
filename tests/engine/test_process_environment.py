"""The variables that a process sets before it loads PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tutti_server.engine.model.linear import can_pack

STATM = Path("/proc/self/statm")
N_ROWS = 400
"""The numbers of rows that are multiplied; a kernel is compiled for each."""
PROGRAM = f"""
from tutti_server.engine.process_environment import prepare_environment
prepare_environment()
import resource
from pathlib import Path
import torch
from tutti_server.engine.model.linear import Product
from tutti_server.engine.process_memory import return_freed_memory

def resident_bytes():
    return_freed_memory()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
weight, product = torch.zeros(64, 64), Product()
product.pack(weight)
sizes = []
for n_rows in range(1, {N_ROWS} + 1):
    product(torch.zeros(n_rows, 64), weight, None)
    if n_rows % ({N_ROWS} // 2) == 0:
        sizes.append(resident_bytes())
print(sizes[1] - sizes[0])
"""


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc to measure the memory in use")
@pytest.mark.skipif(not can_pack(torch.zeros(1, 1)), reason="needs oneDNN")
@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_lengths() -> None:
    """Kernels are dropped by PyTorch as well as by oneDNN. When PyTorch kept them, the memory grew by 58 MB."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 10e6
