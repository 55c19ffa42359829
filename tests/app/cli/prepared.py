"""Commands in processes that have their imports already: `python -m tests.app.cli.prepared`.

A start with torch takes seconds, nearly all of them imports. One process does them once, and a copy of it runs each
command. Tests that use `tests.app.cli.child` see what a start itself does.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tests.app.cli.child import ENVIRONMENT

PATIENCE_S = 100
MODULES = (
    *("app.cli.commands", "app.cli.demo", "app.cli.processes", "app.cli.recordings", "app.cli.running"),
    *("app.cli.transcribe", "app.cli.warm", "app.server.main", "engine.engine", "engine.runner"),
)
"""What commands import, most of it when they have work to do."""


@dataclass(frozen=True)
class Done:
    """What a command has printed, and how it has ended."""

    returncode: int
    stdout: str
    stderr: str


class PreparedTutti:
    """Runs `tutti` with arguments and variables."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, *arguments: str, **environment: str) -> Done:
        """Run a command to its end; its input is empty."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([arguments, ENVIRONMENT | environment]) + "\n")
        self._process.stdin.flush()
        return Done(**json.loads(self._process.stdout.readline()))


@contextmanager
def prepared_tutti() -> Iterator[PreparedTutti]:
    """Import all that a command may need, while the context is open."""
    command = [sys.executable, "-m", "tests.app.cli.prepared"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        yield PreparedTutti(process)
        process.communicate()


def run(arguments: list[str], environment: dict[str, str]) -> Done:
    """Run a command in a copy of this process."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            _become(arguments, environment, output, errors)
        returncode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for file in (output, errors):
            file.seek(0)
        return Done(returncode, output.read(), errors.read())


def _become(arguments: list[str], environment: dict[str, str], output: IO[str], errors: IO[str]) -> None:
    """Be the command until it ends: SIGALRM ends one that hangs."""
    status = 1
    try:
        signal.alarm(PATIENCE_S)
        with Path(os.devnull).open() as nothing:
            for file, number in ((nothing, 0), (output, 1), (errors, 2)):
                os.dup2(file.fileno(), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["tutti", *arguments]
        runpy.run_module("tutti_server.app", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = status or 1
        os._exit(status)


def main() -> None:
    """Import what commands import, and run those that come in lines of JSON."""
    for module in MODULES:
        importlib.import_module(f"tutti_server.{module}")
    # Copies share what is there: a collection of garbage in one of them would write to all of it.
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(asdict(run(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
