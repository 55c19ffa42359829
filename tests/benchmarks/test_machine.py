"""What processes have used of the machine."""

import subprocess
import sys

from benchmarks.live.level import Snapshot
from benchmarks.machine import family_cpu_s
from benchmarks.server import RunningServer

SERVER = """
import os, time
if not os.fork():
    while time.process_time() < 0.3: pass
    os._exit(0)
os.wait()
print(flush=True)
input()
"""
"""A server whose child computes for a while and ends."""


def test_the_cpu_time_of_processes_that_have_ended_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin and server.stdout and server.stdout.readline() == b"\n"
        used_s, snapshot = family_cpu_s(server.pid), Snapshot(RunningServer("", server.pid))
        server.stdin.close()
    assert used_s is not None and used_s > 0.25
    assert snapshot.server_cpu_s is not None and snapshot.server_cpu_s > 0.25
    assert snapshot.server_rss_mib
    assert family_cpu_s(server.pid) is None
