"""Servers that a benchmark has started end with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import sys, tempfile, time
from benchmarks.child_processes import start_child
child = start_child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], sys.stdout)
print(child.pid, flush=True)
time.sleep(60)
"""
GONE_TIMEOUT_S = 10.0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked for it with prctl")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_benchmark_leaves_no_server(sign: signal.Signals) -> None:
    """Neither signal lets it clean up; its child ends nevertheless."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        lines = sorted([parent.stdout.readline().strip(), parent.stdout.readline().strip()])
        assert lines[1] == "up"
        parent.send_signal(sign)
        # The child holds the other end of the pipe: it is read to its end when both are gone.
        parent.stdout.read()
    assert is_gone(int(lines[0]))


def is_gone(pid: int) -> bool:
    """Its entry may stand for a moment after it has closed its files."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
    return False
