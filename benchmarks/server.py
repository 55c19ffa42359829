"""Servers of the benchmark's own, each in a process of its own: `tutti serve`, or what it is to be compared with."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from benchmarks.child_processes import start_child

START_TIMEOUT_S = 300.0
"""Loading a large model and capturing its graphs takes a minute or two."""
STOP_TIMEOUT_S = 40.0
PROBE_S = 0.2


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    """http://host:port"""
    pid: int | None
    """`None` for a server that somebody else started: what it takes of the machine is not known."""

    def fetch(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return str(response.read().decode())


@contextmanager
def running_server(arguments: Sequence[str]) -> Iterator[RunningServer]:
    """`tutti serve` on a free loopback port, until the block is left; ready when it is entered.

    Raises:
        ClickException: it did not start; holds what it printed.
    """
    port = free_port()
    command = [sys.executable, "-m", "app", "serve", "--port", str(port), "--log-level", "warning", *arguments]
    with running_process(command, port, ready_path="/readyz") as server:
        yield server


@contextmanager
def running_process(
    command: Sequence[str], port: int, *, ready_path: str, environment: Mapping[str, str] | None = None
) -> Iterator[RunningServer]:
    """Start a server that will listen on `port`, wait until it is ready, and stop it at the end.

    Args:
        ready_path: what answers once it is ready; empty if it is ready when it takes connections.
        environment: what is added to this process's own.

    Raises:
        ClickException: it did not start; holds what it printed.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = start_child(command, output, environment)
        try:
            server = RunningServer(f"http://127.0.0.1:{port}", process.pid)
            if not _is_ready(server, process, port, ready_path):
                output.seek(0)
                raise click.ClickException(f"{' '.join(command)} did not become ready:\n{output.read()[-4000:]}")
            yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_ready(server: RunningServer, process: "subprocess.Popen[bytes]", port: int, ready_path: str) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if ready_path:
                server.fetch(ready_path)
            else:
                socket.create_connection(("127.0.0.1", port), timeout=PROBE_S).close()
        except (urllib.error.URLError, OSError):
            time.sleep(PROBE_S)
        else:
            return True
    return False
