"""The service that the campaign disturbs: `tutti serve` with gateways, started again where a process manager would."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import click

from benchmarks import machine
from benchmarks.child_processes import start_child
from benchmarks.server import PROBE_S, START_TIMEOUT_S, STOP_TIMEOUT_S, RunningServer, free_port, serve_command

START_ATTEMPTS = 5
RESTART_AFTER_S = 1.0
"""Seconds between two of them."""


class DisturbedService:
    """A supervisor with its engine process and its gateway processes, on one port for as long as the campaign runs."""

    def __init__(self, arguments: Sequence[str], output: IO[str]) -> None:
        self._port = free_port()
        self._command = serve_command(self._port, arguments)
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the service, again while gateways of a killed supervisor have the port, and wait for it."""
        for _ in range(START_ATTEMPTS):
            # The kernel kills a child when the thread that started it ends: this one is the main thread.
            self._process = start_child(self._command, self._output)
            if await self.wait_until_ready():
                return
            await asyncio.sleep(RESTART_AFTER_S)
        raise click.ClickException(f"{' '.join(self._command)} did not become ready:\n{self.log_end()}")

    async def wait_until_ready(self) -> bool:
        """Wait until the service accepts sessions. Returns whether it does before it ends or the time limit is over."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.is_running() and time.monotonic() < deadline:
            if await asyncio.to_thread(self._is_ready):
                return True
            await asyncio.sleep(PROBE_S)
        return False

    async def wait_until_ended(self) -> int:
        """Wait until the supervisor has ended, kill it if that takes too long, and return its exit status."""
        assert self._process
        try:
            return await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def supervisor(self) -> int:
        assert self._process
        return self._process.pid

    def engines(self) -> list[int]:
        """The process ids of the engines, without those that are being started."""
        return engine_processes(self.supervisor())

    def gateways(self) -> list[int]:
        return [pid for pid in machine.children(self.supervisor()) if _is_gateway(pid)]

    def signal(self, sent: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(sent)

    def log_end(self) -> str:
        self._output.flush()
        self._output.seek(0)
        return self._output.read()[-4000:]

    def _is_ready(self) -> bool:
        try:
            RunningServer(self.url, self.supervisor()).fetch("/readyz")
        except OSError:
            return False
        return True


@asynccontextmanager
async def disturbed_service(arguments: Sequence[str], log: Path) -> AsyncIterator[DisturbedService]:
    """Run a service until the block is left. What it prints is written to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w+") as output:
        service = DisturbedService(arguments, output)
        await service.start()
        try:
            yield service
        finally:
            if service.is_running():
                service.signal(signal.SIGTERM)
                await service.wait_until_ended()


def engine_processes(supervisor: int) -> list[int]:
    """The process ids of the engines of a supervisor, without those that are being started."""
    return [pid for pid in machine.children(supervisor) if _maps_torch(pid)]


def _maps_torch(pid: int) -> bool:
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _is_gateway(pid: int) -> bool:
    command = machine.command(pid)  # empty if the process has ended
    return bool(command) and "resource_tracker" not in command and not _maps_torch(pid)
