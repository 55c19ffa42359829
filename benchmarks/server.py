"""Starts servers for benchmarks, each in its own process: `tutti serve` or a server it is compared with."""

import errno
import secrets
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
"""How long a server may take to start: loading a large model and capturing its graphs takes up to two minutes."""
STOP_TIMEOUT_S = 40.0
"""How long a server may take to stop after SIGTERM before it is killed."""
PROBE_S = 0.2
"""Seconds between two checks whether a server is ready."""
PORTS = range(20_000, 32_000)
"""Where free ports are looked for: below those that Linux gives to connections and listeners by itself, from 32768 on.
One of these could be taken before the server that is to have it has started."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The address of a server that a benchmark has started, and its process."""

    url: str
    """`http://host:port`"""
    pid: int

    def fetch(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return str(response.read().decode())


ADMIT_ALL = ("--max-final-wait-s", "1000")
"""Arguments with which a server accepts sessions although finals wait, so that a benchmark measures how long."""


@contextmanager
def running_server(arguments: Sequence[str]) -> Iterator[RunningServer]:
    """Run `tutti serve` on a free loopback port. It is ready when the block is entered and stopped when it is left."""
    port = free_port()
    with running_process(serve_command(port, arguments), port, ready_path="/readyz") as server:
        yield server


def serve_command(port: int, arguments: Sequence[str]) -> list[str]:
    own = ["--port", str(port), "--log-level", "warning"]
    return [sys.executable, "-m", "tutti_server.app", "serve", *own, *arguments]


@contextmanager
def running_process(
    command: Sequence[str],
    port: int,
    *,
    ready_path: str,
    environment: Mapping[str, str] | None = None,
    probe_s: float = PROBE_S,
) -> Iterator[RunningServer]:
    """Run a server until the block is left. It is ready when `ready_path` answers, or when it accepts connections."""
    with tempfile.TemporaryFile("w+") as output:
        process = start_child(command, output, environment)
        try:
            server = RunningServer(f"http://127.0.0.1:{port}", process.pid)
            if not _is_ready(server, process, port, ready_path, probe_s):
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
    """A loopback port that is free at this moment."""
    while True:
        # Not `random`: Hypothesis gives it the same seed in every test run.
        port = secrets.choice(PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def _is_ready(
    server: RunningServer, process: "subprocess.Popen[bytes]", port: int, ready_path: str, probe_s: float
) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if ready_path:
                server.fetch(ready_path)
            else:
                socket.create_connection(("127.0.0.1", port), timeout=PROBE_S).close()
        except (urllib.error.URLError, OSError):
            time.sleep(probe_s)
        else:
            return True
    return False
