"""Ctrl-C ends every command, at every stage, without a traceback. `tests/first_hour` has the demo as well."""

import io
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.app.cli.child import running
from tests.app.dialects.openai.test_files_endpoint import wav
from tutti_server.app.media.file_decoder import decode_frames
from tutti_server.engine.api import SAMPLE_RATE

TERMINAL = """
import fcntl, os, sys, termios, threading
from tutti_server.app.__main__ import main
held, terminal = os.openpty()
fcntl.ioctl(terminal, termios.TIOCSCTTY)
threading.Thread(target=lambda: (sys.stdin.read(1), os.close(held)), daemon=True).start()
main()
"""
"""The command line in a terminal, which closes when something comes on the input."""
CALL = Path(__file__).parents[2] / "audio" / "call.flac"
INTERRUPTED = 130
"""What shells say of a program that SIGINT ended: 128 and the number of the signal."""

IMPORTS = """
from tutti_server.app.cli.interrupts import exit_at_interrupt
exit_at_interrupt()
print("importing", flush=True)
import time
time.sleep(1000)
"""
"""A start whose imports do not end."""
LOADS = """
import asyncio, threading
from tutti_server.app.cli.interrupts import exit_at_interrupt
from tutti_server.app.cli.running import run
async def work():
    print("loading", flush=True)
    await asyncio.to_thread(threading.Event().wait)
exit_at_interrupt()
run(work())
"""
"""A command that waits for a thread which does not end: a model that is loaded, or a pipe that stays empty."""
BLOCKS = """
import time
from tutti_server.app.cli.interrupts import exit_at_interrupt
from tutti_server.app.cli.running import run
async def work():
    print("blocking", flush=True)
    time.sleep(1000)
exit_at_interrupt()
run(work())
"""
"""A command whose event loop is busy, as while torch is imported."""
WRITES = """
import asyncio, sys
from pathlib import Path
from tutti_server.app.cli.recordings import opened_output
from tutti_server.app.cli.running import run
async def work():
    with opened_output(Path(sys.argv[1])):
        print("writing", flush=True)
        await asyncio.Event().wait()
run(work())
"""
"""A command that writes a transcript."""


@pytest.mark.parametrize(
    ("program", "number", "status"),
    [
        *((program, signal.SIGINT, INTERRUPTED) for program in (IMPORTS, LOADS, BLOCKS)),
        *((program, signal.SIGTERM, -signal.SIGTERM) for program in (LOADS, BLOCKS)),
    ],
    ids=["imports", "waits", "is busy", "waits, SIGTERM", "is busy, SIGTERM"],
)
def test_a_command_ends_with_the_status_of_its_signal(program: str, number: signal.Signals, status: int) -> None:
    """While it imports, waits for a thread, or keeps its event loop busy."""
    with running("-c", program) as command:
        command.wait_for("ing")
        command.signal(number)
        assert command.end() == (status, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_command_that_is_stopped_leaves_no_unfinished_file(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    with running("-c", WRITES, tmp_path / "talk.txt") as command:
        command.wait_for("writing")
        command.signal(number)
        assert command.end() == (status, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_pipe_that_stays_empty_does_not_hold_a_command() -> None:
    """The text of the first half is printed; then the command waits for more."""
    call = np.concatenate([*decode_frames(io.BytesIO(CALL.read_bytes())), np.zeros(20 * SAMPLE_RATE, np.float32)])
    content = wav(np.concatenate((call, call)))
    with running("-m", "tutti_server.app", "transcribe", "-") as command:
        command.send(content[: len(content) // 2])
        command.wait_for("Could you please tell me how long that will take")
        command.interrupt()
        assert command.end() == (INTERRUPTED, "")


@pytest.mark.parametrize("gateways", [pytest.param("0", marks=pytest.mark.nightly), "2"])
def test_a_server_drains(gateways: str) -> None:
    """Its processes end with it: they hold the pipe of the errors open."""
    with running("-m", "tutti_server.app", "serve", "--port", "0", "--gateways", gateways) as command:
        command.wait_for("metrics")
        command.interrupt()
        status, errors = command.end()
    assert status == 0
    assert "draining" in errors
    assert "Traceback" not in errors


def test_a_server_goes_on_at_a_signal_to_read_files_again() -> None:
    with running("-m", "tutti_server.app", "serve", "--port", "0") as command:
        command.wait_for("metrics")
        command.signal(signal.SIGHUP)
        command.interrupt()
        status, errors = command.end()
    assert status == 0
    assert errors.index("SIGHUP changes nothing") < errors.index("draining")


def test_a_server_drains_when_its_terminal_closes() -> None:
    with running("-c", TERMINAL, "serve", "--port", "0") as command:
        command.wait_for("metrics")
        command.send(b"x")
        status, errors = command.end()
    assert status == 0
    assert "draining" in errors
    assert "Traceback" not in errors
