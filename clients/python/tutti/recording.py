"""Audio for the command line: raw bytes from standard input, or a microphone.

The microphone is recorded by a program of the system: Python's standard library cannot record.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from typing import BinaryIO

from tutti.errors import AudioError
from tutti.messages import AudioFormat

MICROPHONE_FORMAT = AudioFormat("pcm_s16le", 16000, 1)
READ_BYTES = 16384
"""The most bytes that are read from standard input at once."""
MICROPHONE_READ_BYTES = 3200
"""The most bytes that are read from a recorder at once: 100 ms of MICROPHONE_FORMAT."""
EXIT_TIMEOUT_S = 2.0
"""How long a recorder that has stopped writing audio may take to exit, in seconds."""

_RATE_AND_CHANNELS = ["-r", "16000", "-c", "1"]
_FFMPEG_INPUTS: Mapping[str, list[str]] = {
    "linux": ["-f", "alsa", "-i", "default"],
    "darwin": ["-f", "avfoundation", "-i", ":default"],
}


def find_recorder(platform: str = sys.platform) -> list[str]:
    """A command that records the microphone and writes MICROPHONE_FORMAT to its standard output.

    Raises:
        AudioError: no program that can do this is on PATH.
    """
    if shutil.which("arecord"):
        return ["arecord", "-q", "-t", "raw", "-f", "S16_LE", *_RATE_AND_CHANNELS]
    if shutil.which("rec"):
        return ["rec", "-q", "-t", "raw", "-e", "signed-integer", "-b", "16", *_RATE_AND_CHANNELS, "-"]
    if shutil.which("ffmpeg") and platform in _FFMPEG_INPUTS:
        source = _FFMPEG_INPUTS[platform]
        return ["ffmpeg", "-nostdin", "-loglevel", "error", *source, "-f", "s16le", "-ar", "16000", "-ac", "1", "-"]
    raise AudioError("mic", "found nothing to record with; install alsa-utils (arecord), sox (rec) or ffmpeg")


async def record(command: list[str]) -> AsyncGenerator[bytes, None]:
    """The standard output of a recorder, until it ends or the generator is closed.

    Raises:
        AudioError: the recorder could not be run, or it ended with an error.
    """
    # A file, not a pipe: nobody reads a pipe before the end, and a recorder that has filled it with warnings waits.
    with tempfile.TemporaryFile() as messages:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=messages,
                # A session of its own: Ctrl-C reaches only this process, which ends the recorder below.
                start_new_session=True,
            )
        except OSError as error:
            raise AudioError(command[0], str(error)) from error
        assert process.stdout is not None
        try:
            while chunk := await process.stdout.read(MICROPHONE_READ_BYTES):
                yield chunk
            try:
                async with asyncio.timeout(EXIT_TIMEOUT_S):
                    status = await process.wait()
            except TimeoutError as error:
                raise AudioError(command[0], "stopped recording, but did not end") from error
            if status != 0:
                messages.seek(0)
                message = messages.read(READ_BYTES).decode(errors="replace").strip()
                raise AudioError(command[0], f"ended with status {status}" + (f": {message}" if message else ""))
        finally:
            if process.returncode is None:
                process.kill()
            # `wait` alone would leave a pipe with unread data open.
            await process.communicate()


async def read_stdin(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    """Raw audio from `file`, in pieces that may end at any byte.

    Raises:
        AudioError: `file` is a WAV file or a terminal.
    """
    if file.isatty():
        raise AudioError("-", "expected raw audio, got a terminal; pipe the audio in, or use mic")
    chunks = _read_pipe(file) if _can_be_awaited(file) else _read_on_thread(file)
    is_first = True
    async for chunk in chunks:
        if is_first and chunk.startswith(b"RIFF"):
            raise AudioError("-", "expected raw audio, got a WAV file; give it by its name instead")
        is_first = False
        yield chunk


def _can_be_awaited(file: BinaryIO) -> bool:
    # The event loop can wait for pipes and sockets, but not for files, and on Windows for none of them.
    mode = os.fstat(file.fileno()).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _read_pipe(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while chunk := await reader.read(READ_BYTES):
            yield chunk
    finally:
        transport.close()


async def _read_on_thread(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    while chunk := await asyncio.to_thread(os.read, file.fileno(), READ_BYTES):
        yield chunk
