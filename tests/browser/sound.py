"""A sound card for programs that need one: a PulseAudio server whose speakers are silent and run by the clock."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.browser.page import START_TIMEOUT_S, PageError

PROGRAM = "pulseaudio"
PROBE_S = 0.05
"""Seconds between two looks whether the server listens: it does not say so."""


def has_pulseaudio() -> bool:
    """Whether the program is installed."""
    return shutil.which(PROGRAM) is not None


@asynccontextmanager
async def sound_card(folder: Path) -> AsyncIterator[Mapping[str, str]]:
    """Run a PulseAudio server until the block is left.

    Args:
        folder: an empty folder with a short path: the address of a socket has at most 107 bytes.

    Yields:
        The environment of a program that uses this server.
    """
    socket = folder / "socket"
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *("-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disable-shm=yes"),
        *("--realtime=no", "--high-priority=no"),
        *("-L", "module-null-sink rate=48000", "-L", f"module-native-protocol-unix auth-anonymous=1 socket={socket}"),
        env={**os.environ, "PULSE_RUNTIME_PATH": str(folder), "HOME": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not socket.exists():
                if process.returncode is not None:
                    raise PageError(f"PulseAudio ended with status {process.returncode} when it started")
                await asyncio.sleep(PROBE_S)
        yield {"PULSE_SERVER": f"unix:{socket}", "PULSE_RUNTIME_PATH": str(folder)}
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
