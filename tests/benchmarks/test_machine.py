"""What processes use of the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import machine


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc to measure the memory in use")
def test_the_memory_of_a_server_is_that_of_all_its_processes() -> None:
    """Also of processes of its processes."""
    alone_mib = machine.family_memory_mib(os.getpid())
    program = "import sys; block = bytearray(100 << 20); print(flush=True); sys.stdin.read()"
    shell = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert len(machine.family(process.pid)) == 2
        both_mib = machine.family_memory_mib(os.getpid())
        process.communicate()
    assert alone_mib and both_mib and both_mib > alone_mib + 90
