"""Decodes a container that arrives in pieces on a socket, as far as it has come, to 16 kHz samples by PyAV (FFmpeg).

FFmpeg reads as much as it likes and when it likes. So it runs in a thread of its own, which waits for more bytes in
`ContainerDecoder.read`.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from enum import Enum, auto

import numpy as np

from tutti_server.app.errors import MediaError
from tutti_server.app.media.notices import Notice, OnNotice, after_end, drop
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

MAX_HELD_SAMPLES = 10 * SAMPLE_RATE
"""Decoded samples of each channel that may wait for the caller (10 s); then the thread waits.

A few bytes of a container may expand to hours of audio.
"""


class _Input(Enum):
    OPEN = auto()
    """More bytes may come."""
    ENDED = auto()
    """The last bytes have come."""
    CLOSED = auto()
    """The caller wants no more samples."""


class _Progress(Enum):
    WORKING = auto()
    STARVED = auto()
    """The thread has used up all bytes and waits for more."""
    DONE = auto()
    """The thread has ended."""


class ContainerDecoder:
    """Receives bytes by `decode`, which yields the samples. One caller at a time. `close` ends the thread."""

    def __init__(self, channels: int = 1, on_notice: OnNotice = drop) -> None:
        """Make a decoder; its thread starts with the first bytes.

        Args:
            channels: 1 mixes all channels of the container into one. A higher number must be that of the container.
            on_notice: receives what the client should know, before the samples that follow it.
        """
        self._on_notice = on_notice
        self._channels = None if channels == 1 else channels
        self._loop = asyncio.get_running_loop()
        self._turn = threading.Condition()
        """Guards all fields below, which both threads change."""
        self._data = b""
        """Bytes that FFmpeg has not read yet."""
        self._held: list[Samples] = []
        """Samples that the caller has not received yet."""
        self._n_held = 0
        """How many these are, of each channel."""
        self._input = _Input.OPEN
        self._progress = _Progress.WORKING
        self._error: MediaError | Exception | None = None
        self._has_told_rest = False
        """Whether the client knows that bytes follow the end of the container."""
        self._changed = asyncio.Event()
        """Set when the caller may have something to do."""
        self._thread: threading.Thread | None = None

    async def decode(self, data: bytes) -> AsyncGenerator[Samples, None]:
        """Decode what these bytes make possible: pieces of interleaved float32 samples, of about 10 s at most.

        Raises:
            MediaError: these bytes hold no audio, or another number of channels.
        """
        with self._turn:
            self._data += data
            if data:
                self._resume()
        async for piece in self._pieces():
            yield piece

    async def finish(self) -> AsyncGenerator[Samples, None]:
        """Decode the rest, because no more bytes come. Raises like `decode`."""
        with self._turn:
            if self._input is _Input.OPEN:
                self._input = _Input.ENDED
            self._resume()
        async for piece in self._pieces():
            yield piece

    def close(self) -> None:
        """End the thread, whatever it does; it yields no more samples."""
        with self._turn:
            self._input = _Input.CLOSED
            self._turn.notify_all()

    def _resume(self) -> None:
        if self._progress is _Progress.STARVED:
            self._progress = _Progress.WORKING
        self._turn.notify_all()

    async def _pieces(self) -> AsyncGenerator[Samples, None]:
        """Yield samples until the thread has used up its bytes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="container", daemon=True)
            self._thread.start()
        while True:
            self._changed.clear()
            with self._turn:
                held, self._held, self._n_held = self._held, [], 0
                is_over = self._progress is not _Progress.WORKING
                self._turn.notify_all()
            if held:
                yield np.concatenate(held)
            elif is_over:
                break
            else:
                await self._changed.wait()
        has_rest = self._drop_rest()
        if self._error is not None:
            raise self._error
        if has_rest and not self._has_told_rest:
            self._has_told_rest = True
            self._on_notice(after_end())

    def _drop_rest(self) -> bool:
        """Drop the bytes that the thread will not read, as it has ended. Returns whether there were any."""
        with self._turn:
            if self._progress is not _Progress.DONE or not self._data:
                return False
            self._data = b""
            return True

    # In the thread.

    def _run(self) -> None:
        try:
            # Here, because FFmpeg's libraries take memory that only a server with containers needs.
            from tutti_server.app.media import file_decoder

            for samples in file_decoder.decode_frames(self, self._channels, self._notify):
                if not self._hand_over(samples):
                    break
        except Exception as error:
            # Also a mistake of ours is raised in the task that waits, where it is seen.
            self._error = error
        with self._turn:
            self._progress = _Progress.DONE
            self._wake_caller()

    def read(self, n: int) -> bytes:
        """Give FFmpeg up to `n` bytes; waits for them. No bytes mean the end of the container."""
        with self._turn:
            while not self._data and self._input is _Input.OPEN:
                self._progress = _Progress.STARVED
                self._wake_caller()
                self._turn.wait()
            if self._input is _Input.CLOSED:
                return b""
            data, self._data = self._data[:n], self._data[n:]
            return data

    def _hand_over(self, samples: Samples) -> bool:
        """Give samples to the caller when there is room for them; false if the caller wants no more."""
        with self._turn:
            while self._n_held >= MAX_HELD_SAMPLES and self._input is not _Input.CLOSED:
                self._wake_caller()
                self._turn.wait()
            self._held.append(samples)
            self._n_held += len(samples) // (self._channels or 1)
            return self._input is not _Input.CLOSED

    def _notify(self, notice: Notice) -> None:
        with self._turn:
            if self._input is not _Input.CLOSED:
                self._loop.call_soon_threadsafe(self._on_notice, notice)

    def _wake_caller(self) -> None:
        if self._input is not _Input.CLOSED:
            self._loop.call_soon_threadsafe(self._changed.set)
