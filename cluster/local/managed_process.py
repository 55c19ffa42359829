"""A child process as the supervisor sees it, and the place that it has among the others."""

import asyncio
import logging
import multiprocessing
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from tutti_server.cluster.local.control_messages import ControlMessage, Ping, Pong, Ready, StartReport
from tutti_server.cluster.local.process import Work, run_process
from tutti_server.cluster.local.restart_policy import RestartPolicy

logger = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
"""Starts children from a fresh interpreter: a fork would copy the event loop and the threads of the supervisor."""
MAX_UNANSWERED = 10
"""A process that has left this many pings unanswered hangs. They are counted, so that a pause of all is no hang."""


class ChildProcess:
    """A running process and the pipe to it. It is used on one event loop."""

    def __init__(self, name: str, folder: Path, work: Work, on_report: Callable[[StartReport], None]) -> None:
        """Start the process.

        Args:
            name: for the log.
            folder: for sockets; the process removes it when the supervisor was killed.
            work: what the process does; it is pickled.
            on_report: called on the event loop when the start of the process has succeeded or failed.
        """
        self.started_s = time.monotonic()
        self.is_ready = False
        self.hangs = False
        """Whether it was killed because it did not answer."""
        self._n_unanswered = 0
        """The pings since its last message."""
        self._on_report = on_report
        self._pipe, child_end = _SPAWN.Pipe()
        # A daemon: Python kills it when the supervisor ends because of an error in its own code.
        self._process = _SPAWN.Process(target=run_process, args=(child_end, folder, work), name=name, daemon=True)
        # It would stop blocking the signal when the first process starts it.
        resource_tracker.ensure_running()
        # The process inherits that Ctrl-C waits, until it has a process group of its own.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        child_end.close()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._receive)

    @property
    def id(self) -> int:
        """The id that the operating system gave the process."""
        assert self._process.pid
        return self._process.pid

    async def ended(self) -> int:
        """Wait until the process has ended.

        Returns:
            its exit status; a negative one is the signal that killed it.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._receive()
        loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def reject(self) -> None:
        """End a process that is ready but of no use: its start counts as failed."""
        self.is_ready = False
        self.signal(signal.SIGKILL)

    def ping(self) -> None:
        """Ask a process that has started to answer, or kill it where it has not answered for long."""
        if self._n_unanswered >= MAX_UNANSWERED and not self.hangs:
            self.hangs = True
            logger.error("%s (process %d) does not answer any more, and is killed", self._process.name, self.id)
            self.signal(signal.SIGKILL)
        elif self.is_ready:
            self._n_unanswered += 1
            self.send(Ping())

    def send(self, message: ControlMessage | Ping) -> None:
        """Send a message to the process. A process that has just died does not receive it.

        One that hangs, and has left many messages unread, is killed: waiting for it would stop the supervisor.
        """
        with suppress(OSError):
            room = select.poll()
            room.register(self._pipe, select.POLLOUT)
            if room.poll(0):
                self._pipe.send(message)
            else:
                logger.error("%s (process %d) reads no messages, and is killed", self._process.name, self.id)
                self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send SIGKILL or SIGTERM to the process, if it runs."""
        if self._process.is_alive():
            (self._process.kill if number == signal.SIGKILL else self._process.terminate)()

    def _receive(self) -> None:
        try:
            while self._pipe.poll():
                report: StartReport | Pong = self._pipe.recv()
                self._n_unanswered = 0
                if isinstance(report, Pong):
                    continue
                self.is_ready |= isinstance(report, Ready)
                self._on_report(report)
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())


@dataclass(slots=True, kw_only=True)
class ManagedProcess:
    """A process that the supervisor keeps running: when it dies, another replaces it."""

    name: str
    restarts: RestartPolicy
    generation: int = 0
    """How many processes were in this place before the present one."""
    problem: str | None = None
    """Why the last start has failed, where the process could say it."""
    process: ChildProcess | None = None
    """The process that runs now. None between the end of one and the start of the next."""

    def send(self, message: ControlMessage) -> None:
        """Send a message to the present process, if there is one."""
        if self.process:
            self.process.send(message)

    def signal(self, number: signal.Signals) -> None:
        """Send SIGKILL or SIGTERM to the present process, if there is one."""
        if self.process:
            self.process.signal(number)
