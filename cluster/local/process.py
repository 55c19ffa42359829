"""The life of one process of a cell, from the inside: what it is told, what it tells, and that it does not outlive the
supervisor.
"""

import asyncio
import logging
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from cluster.local.remote_transcriber import EngineUp

logger = logging.getLogger(__name__)

FAILED = 1
"""Exit status of a process that says why, in its log or with `Failed`."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The start of a process is over; an engine says how it may be reached."""

    engine: EngineUp | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A process cannot start, for a reason that the operator can mend."""

    reason: str


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine has died; another one is on its way."""


@dataclass(frozen=True, slots=True)
class EngineLost:
    """The engine has died, and no other will come."""

    reason: str


@dataclass(frozen=True, slots=True)
class GatewayGone:
    """To the engine: a gateway has died."""

    route: bytes


ControlMessage = EngineUp | EngineDown | EngineLost | GatewayGone
"""What the supervisor says."""

Work = Callable[["Link"], Coroutine[Any, Any, None]]
"""What a process does until it ends."""


class Link:
    """A process's line to the supervisor."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def tell(self, message: Ready | Failed) -> None:
        self._connection.send(message)

    @contextmanager
    def listening(self, take: Callable[[ControlMessage], None]) -> Iterator[None]:
        """Have everything taken that the supervisor says, on the event loop. Its death is the end of this process."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                while self._connection.poll():
                    take(self._connection.recv())
            except (EOFError, OSError):
                logger.error("the supervisor is gone")
                shutil.rmtree(self._folder, ignore_errors=True)
                end_process(FAILED)

        loop.add_reader(self._connection.fileno(), read)
        try:
            yield
        finally:
            loop.remove_reader(self._connection.fileno())


def run_child(connection: Connection, folder: Path, work: Work) -> NoReturn:
    """The main function of a process."""
    # A terminal's interrupt is the supervisor's to pass on.
    os.setpgid(0, 0)
    status = 0
    try:
        uvloop.run(work(Link(connection, folder)))
    except Exception:
        logger.exception("%s has died", multiprocessing.current_process().name)
        status = FAILED
    end_process(status)


def end_process(status: int) -> NoReturn:
    """End at once: what is left is memory that others own, and a device whose driver cleans up by itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
