"""Commands as processes: started as a user starts them, interrupted by the signal that Ctrl-C sends."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.small_model import VARIABLES

PATIENCE_S = 100.0
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")},
    **VARIABLES,
    "COLUMNS": "120",
}
"""Settings are those of the small model, and none of the test run itself."""


class Command:
    """A running process with pipes, in a process group of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, data: bytes) -> None:
        """Write to the input, and leave it open."""
        assert isinstance(self._process.stdin, io.TextIOWrapper)
        self._process.stdin.buffer.write(data)
        self._process.stdin.flush()

    def wait_for(self, text: str) -> str:
        """Read the output up to the first line that contains `text`. Returns that line."""
        assert self._process.stdout
        with self._patiently():
            for line in self._process.stdout:
                if text in line:
                    return line
        raise AssertionError(f"{text!r} was not printed; errors: {self._process.communicate()[1]}")

    def run_for(self, seconds: float) -> None:
        """Let the process run for a while. It must not end before."""
        with pytest.raises(subprocess.TimeoutExpired):
            self._process.communicate(timeout=seconds)

    def interrupt(self) -> None:
        """Send what the terminal sends at Ctrl-C: SIGINT to every process of the group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait until the process and all that it has started have closed the pipes: the exit status and the errors."""
        _, errors = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, errors

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Kill the process group after `PATIENCE_S`, so that a read of its output ends."""
        timer = threading.Timer(PATIENCE_S, os.killpg, (self._process.pid, signal.SIGKILL))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def running(
    *arguments: str | Path, program: Path | None = None, folder: Path | None = None, **environment: str
) -> Iterator[Command]:
    """Run a program in a folder while the context is open. It is Python by default; `-m` names the module."""
    # A handled signal has its default in a child; a test run in the background would pass on that it is ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [program or sys.executable, *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | environment,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, handler)
    with process:
        try:
            yield Command(process)
        finally:
            process.kill()
