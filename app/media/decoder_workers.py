"""Decodes uploaded files in processes that are limited and can be killed; `decoding_process.py` is their side.

A file of kilobytes can make FFmpeg take gigabytes, or minutes during which nothing else runs in its process.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO

import numpy as np

from tutti_server.app.errors import MediaError, shorten
from tutti_server.app.media.decoding_process import HEADER, MAX_CPU_S, MAX_MEMORY_MB, REQUEST_BYTES, Kind
from tutti_server.app.media.notices import OnNotice, drop, read_notice
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.plain_wav import read_plain_wav

END_TIMEOUT_S = 5.0
"""How long the decoding process may take to end, in seconds, before it is killed."""
MAX_IDLE = 8
"""The most workers that wait for the next file. One that is not kept is forked again when it is needed."""
MAX_FILES = 100
"""The files that one worker decodes. FFmpeg may leave some memory taken."""
SENT_AHEAD_BYTES = 1 << 20
"""How much a worker may have sent before the service has read it, where the system allows it (0.2 MB, mostly)."""
SMALL_BYTES = 1 << 20
"""A WAV of at most this many bytes that needs no decoding is read by the service itself (32 s of speech).

It is in memory, and reading it takes 1 ms. For a worker it would be written to the disk, and its samples come back
through a socket.
"""


class Decoders:
    """Decodes files in other processes. The first file starts them, and `close` ends them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        """The process that forks the workers."""
        self._requests: socket.socket | None = None
        """The socket to that process."""
        self._idle: list[_Worker] = []

    async def decode(
        self, file: IO[bytes], channels: int | None = None, on_notice: OnNotice = drop, track: str | None = None
    ) -> AsyncGenerator[Samples, None]:
        """Decode as `file_decoder.decode_file` does. Leaving early kills the worker of this file.

        Args:
            file: the file, which the operating system must know. It may be moved to the disk for that.

        Raises:
            MediaError: as `decode_file`, or decoding takes too much memory or time, or crashes FFmpeg.
            OSError: there is no room for the file on the disk, or there are too many open files.
        """
        if file.seek(0, os.SEEK_END) <= SMALL_BYTES:
            pieces = list(read_plain_wav(file, channels, on_notice, track))
            for piece in pieces:
                yield piece
            if pieces:
                return
        async with self._requested(file, {"wanted": "samples", "channels": channels, "track": track}) as worker:
            while True:
                kind, content = await worker.read()
                if kind is Kind.DONE:
                    return
                if kind is Kind.NOTICE:
                    on_notice(read_notice(content))
                else:
                    yield np.frombuffer(content, np.float32)

    async def n_channels(self, file: IO[bytes], track: str | None = None) -> int:
        """The number of channels of a track of a file; arguments and errors are those of `decode`."""
        async with self._requested(file, {"wanted": "n_channels", "track": track}) as worker:
            _, content = await worker.read()
            return int(content)

    async def languages_of_tracks(self, file: IO[bytes]) -> list[str | None]:
        """The language that a file names for each of its tracks; errors are those of `decode`."""
        async with self._requested(file, {"wanted": "tracks"}) as worker:
            _, content = await worker.read()
            languages: list[str | None] = json.loads(content)
            return languages

    def close(self) -> None:
        """End the processes. What is decoded at the moment ends with an error."""
        while self._idle:
            self._idle.pop().close()
        if self._process is None or self._requests is None:
            return
        self._requests.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._requests = None

    @asynccontextmanager
    async def _requested(self, file: IO[bytes], request: dict[str, object]) -> AsyncIterator["_Worker"]:
        """A worker that has received this request. It is killed if it has not answered when the context is left."""
        content = json.dumps(request).encode()
        if len(content) > REQUEST_BYTES:
            # All other values are short.
            raise MediaError(f"track: expected a number from 0 or a language, got {shorten(request['track'])}")
        file_descriptor = await _descriptor(file)
        worker = self._idle.pop() if self._idle else self._fork()
        while not worker.ask(content, file_descriptor):
            # It was killed while it was idle.
            worker.close()
            worker = self._idle.pop() if self._idle else self._fork()
        try:
            yield worker
        finally:
            if worker.is_busy or worker.n_files >= MAX_FILES or len(self._idle) >= MAX_IDLE:
                worker.close()
            else:
                self._idle.append(worker)

    def _fork(self) -> "_Worker":
        with ExitStack() as on_failure:
            ours, theirs = socket.socketpair()
            on_failure.callback(ours.close)
            with theirs:
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD_BYTES)
                their_liveness_fd, our_liveness_fd = os.pipe()
                on_failure.callback(os.close, our_liveness_fd)
                try:
                    self._request_worker(theirs.fileno(), their_liveness_fd)
                finally:
                    os.close(their_liveness_fd)
            on_failure.pop_all()
            return _Worker(ours, our_liveness_fd)

    def _request_worker(self, *descriptors: int) -> None:
        if self._requests is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._requests, [b"\n"], descriptors)
                return
            # The process has died.
            self.close()
        self._start()
        assert self._requests is not None
        socket.send_fds(self._requests, [b"\n"], descriptors)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tutti_server.app.media.decoding_process", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # A process that forks must have one thread.
                    env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )
            except BaseException:
                ours.close()
                raise
        self._requests = ours


async def _descriptor(file: IO[bytes]) -> int:
    """The descriptor of a file, which may be moved to the disk for it, in a thread. Cancelling is safe.

    Whoever cancels this closes the file, and a thread that is still moving it would leave another one open.
    """
    moving = asyncio.ensure_future(asyncio.to_thread(file.fileno))
    try:
        return await asyncio.shield(moving)
    finally:
        await asyncio.gather(moving, return_exceptions=True)


class _Worker:
    """The service's side of a worker, which decodes one file at a time."""

    def __init__(self, connection: socket.socket, liveness_fd: int) -> None:
        """Take over the socket to the worker, and the liveness pipe, whose closing kills it."""
        self.is_busy = False
        """Whether the answer to the last request is not complete."""
        self.n_files = 0
        """How many requests the worker has received."""
        self._connection = connection
        self._connection.setblocking(False)
        self._liveness_fd = liveness_fd

    def ask(self, request: bytes, file_descriptor: int) -> bool:
        try:
            socket.send_fds(self._connection, [request], [file_descriptor])
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.is_busy = True
        self.n_files += 1
        return True

    async def read(self) -> tuple[Kind, bytearray]:
        """Receive the next part of the answer. Raises like `Decoders.decode`."""
        number, n_bytes = HEADER.unpack(await self._receive(HEADER.size))
        content = await self._receive(n_bytes)
        kind = Kind(number)
        self.is_busy = kind in (Kind.SAMPLES, Kind.NOTICE)
        if kind is Kind.ERROR:
            raise MediaError(content.decode())
        return kind, content

    def close(self) -> None:
        self._connection.close()
        os.close(self._liveness_fd)

    async def _receive(self, n_bytes: int) -> bytearray:
        content = bytearray(n_bytes)
        rest = memoryview(content)
        while rest:
            try:
                n_received = await asyncio.get_running_loop().sock_recv_into(self._connection, rest)
            except ConnectionResetError:
                # It has died before it read its request.
                n_received = 0
            if not n_received:
                limits = f"{MAX_MEMORY_MB} MB of memory and {MAX_CPU_S} s of processor time for ten seconds of audio"
                raise MediaError(f"file: expected audio that is decoded with {limits}; its decoder has died")
            rest = rest[n_received:]
        return content
