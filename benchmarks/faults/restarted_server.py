"""A server that is ended and started again on its port, and the text that a page showed meanwhile."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher

from benchmarks.scoring import words
from benchmarks.server import free_port, running_process

SIGNALS = (signal.SIGTERM, signal.SIGKILL)
"""SIGTERM is a rolling restart, SIGKILL a crash."""


@dataclass(frozen=True, kw_only=True)
class PageRun:
    """What a page showed."""

    lines: list[str]
    changes: list[str]
    """Solid text that changed later, and errors of the page."""

    @property
    def words(self) -> list[str]:
        """The words of all lines, without case and punctuation."""
        return words(" ".join(self.lines))


class RestartedServer:
    """`tutti serve` in a process of its own, on one port."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._command = [
            sys.executable,
            "-m",
            "tutti_server.app",
            "serve",
            "--port",
            str(port),
            "--log-level",
            "warning",
            *arguments,
        ]
        self._running = ExitStack()
        self._pid: int | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the block is left."""
        try:
            self._start()
            yield
        finally:
            self._running.close()

    def restart(self, number: signal.Signals) -> float:
        """End the process with a signal, and start it again. Returns the seconds without a server."""
        began = time.monotonic()
        assert self._pid is not None
        os.kill(self._pid, number)
        self._running.close()
        self._start()
        return time.monotonic() - began

    def _start(self) -> None:
        self._pid = self._running.enter_context(running_process(self._command, self._port, ready_path="/readyz")).pid


def differences(expected: list[str], actual: list[str]) -> Iterator[tuple[str, str]]:
    """The places where two texts differ: the words of the first, and those of the second."""
    for kind, i, i_end, j, j_end in SequenceMatcher(None, expected, actual, False).get_opcodes():
        if kind != "equal":
            yield " ".join(expected[i:i_end]), " ".join(actual[j:j_end])
