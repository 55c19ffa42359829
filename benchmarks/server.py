"""A `tutti serve` of the benchmark's own, as a process of its own."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

START_TIMEOUT_S = 120.0
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
    """Start on a free loopback port, wait until it is ready, and stop it at the end.

    Raises:
        ClickException: it did not start; holds what it printed.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app", "serve", "--port", str(port), "--log-level", "warning", *arguments]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            server = RunningServer(f"http://127.0.0.1:{port}", process.pid)
            if not _is_ready(server, process):
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


def _is_ready(server: RunningServer, process: "subprocess.Popen[bytes]") -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.fetch("/readyz")
        except (urllib.error.URLError, OSError):
            time.sleep(PROBE_S)
        else:
            return True
    return False
