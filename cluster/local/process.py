"""A process of the cluster, seen from the inside: its pipe to the supervisor, its start and its end.

Every process runs `run_process`. A process ends as soon as its supervisor is gone, so that none is left over.
"""

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from tutti_server.cluster.local.control_messages import ControlMessage, Ping, Pong, StartReport

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
"""Exit status of a process that has given the reason for its end, in its log or in a `Failed` message."""


class ControlPipe:
    """The process's end of the pipe to the supervisor."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        """Open the process's end of the pipe.

        Args:
            connection: the pipe.
            folder: the supervisor's folder of sockets. This process removes it when the supervisor was killed.
        """
        self._connection = connection
        self._folder = folder

    def send(self, message: StartReport | Pong) -> None:
        """Send a message to the supervisor."""
        self._connection.send(message)

    @contextmanager
    def receiving(self, handle: Callable[[ControlMessage], None]) -> Iterator[None]:
        """Answer the supervisor's pings, and call `handle` with its other messages, until the block is left.

        Both happen on the event loop.

        If the supervisor is gone, or `handle` raises, this process ends.
        """
        loop = asyncio.get_running_loop()

        def receive() -> None:
            try:
                while (message := self._next()) is not None:
                    if isinstance(message, Ping):
                        self.send(Pong())
                    else:
                        handle(message)
            except Exception:
                logger.exception("%s could not handle a message", multiprocessing.current_process().name)
                exit_now(EXIT_FAILED)

        loop.add_reader(self._connection.fileno(), receive)
        try:
            yield
        finally:
            loop.remove_reader(self._connection.fileno())

    def _next(self) -> ControlMessage | Ping | None:
        """The next message that has come, or `None`. If the supervisor is gone, this process ends."""
        try:
            return self._connection.recv() if self._connection.poll() else None
        except (EOFError, OSError):
            logger.error("the supervisor is gone")
            shutil.rmtree(self._folder, ignore_errors=True)
            exit_now(EXIT_FAILED)


Work = Callable[[ControlPipe], Coroutine[Any, Any, None]]
"""What a process does until it ends."""


def run_process(connection: Connection, folder: Path, work: Work) -> NoReturn:
    """The main function of a process: do its work on an event loop, then exit."""
    # A process group of its own: Ctrl-C in the terminal reaches only the supervisor, which ends the others in order.
    os.setpgid(0, 0)
    _drop_waiting_interrupts()
    status = 0
    try:
        uvloop.run(work(ControlPipe(connection, folder)))
    except Exception:
        logger.exception("%s has died", multiprocessing.current_process().name)
        status = EXIT_FAILED
    exit_now(status)


def _drop_waiting_interrupts() -> None:
    """Drop a Ctrl-C that came before the process had its own group, and stop blocking the signal."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    signal.signal(signal.SIGINT, handler)


def exit_now(status: int) -> NoReturn:
    """Exit without Python's clean-up.

    Nothing is left to clean up here: other processes own the shared memory, and the driver of the device frees its own.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
