"""A container that arrives bit by bit on a socket, decoded as far as it has come: 16 kHz samples through PyAV (FFmpeg).

FFmpeg reads where and as much as it likes, so it runs in a thread of its own that waits in `read` for more.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator

import numpy as np

from app.errors import MediaError
from app.media import file_decoder
from app.media.pcm import Samples
from engine.api import SAMPLE_RATE

# The thread stops when so much has been decoded that nobody has taken: a few bytes may expand to hours.
MAX_HELD_SAMPLES = 10 * SAMPLE_RATE


class ContainerDecoder:
    """Bytes in by `decode`, samples out of it; one caller at a time. `close` ends the thread, whatever it does."""

    def __init__(self, channels: int = 1) -> None:
        """Args:
        channels: 1 has all that the container holds mixed down; more must be as many as it holds.
        """
        self._channels = None if channels == 1 else channels
        self._loop = asyncio.get_running_loop()
        self._turn = threading.Condition()
        """Guards everything below, which both threads change."""
        self._data = b""
        self._held: list[Samples] = []
        self._n_held = 0
        self._is_waiting = False
        """The thread has used up what there was."""
        self._is_ended = False
        """Nothing follows what is in `_data`."""
        self._is_closed = False
        self._is_done = False
        self._error: MediaError | Exception | None = None
        self._changed = asyncio.Event()
        """Set when the caller may have something to do."""
        self._thread: threading.Thread | None = None

    async def decode(self, data: bytes) -> AsyncGenerator[Samples, None]:
        """What can be decoded now that these bytes have come, in pieces of some 10 s at most. Interleaved float32.

        Raises:
            MediaError: this is no audio, or not of so many channels.
        """
        self._start()
        with self._turn:
            self._data += data
            self._is_waiting = self._is_waiting and not data
            self._turn.notify_all()
        async for piece in self._pieces():
            yield piece

    async def finish(self) -> AsyncGenerator[Samples, None]:
        """What is left when no more bytes come. Raises like `decode`."""
        self._start()
        with self._turn:
            self._is_ended = True
            self._is_waiting = False
            self._turn.notify_all()
        async for piece in self._pieces():
            yield piece

    def close(self) -> None:
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()

    async def _pieces(self) -> AsyncGenerator[Samples, None]:
        """Until the thread has used up what it was given."""
        while True:
            self._changed.clear()
            with self._turn:
                held, self._held, self._n_held = self._held, [], 0
                is_over = self._is_waiting or self._is_done
                self._turn.notify_all()
            if held:
                yield np.concatenate(held)
            elif is_over:
                break
            else:
                await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="container", daemon=True)
            self._thread.start()

    # In the thread.

    def _run(self) -> None:
        try:
            for samples in file_decoder.decoded(self, self._channels):
                if not self._put(samples):
                    break
        except Exception as error:
            # A mistake of ours is raised where it can be seen, in the task that waits.
            self._error = error
        with self._turn:
            self._is_done = True
            self._tell()

    def read(self, n: int) -> bytes:
        """FFmpeg asks for bytes: waits until there are some. None are left at the end."""
        with self._turn:
            while not (self._data or self._is_ended or self._is_closed):
                self._is_waiting = True
                self._tell()
                self._turn.wait()
            if self._is_closed:
                return b""
            data, self._data = self._data[:n], self._data[n:]
            return data

    def _put(self, samples: Samples) -> bool:
        """Hand out samples, once there is room for them; false if nobody wants them any more."""
        with self._turn:
            while self._n_held >= MAX_HELD_SAMPLES and not self._is_closed:
                self._tell()
                self._turn.wait()
            self._held.append(samples)
            self._n_held += len(samples) // (self._channels or 1)
            return not self._is_closed

    def _tell(self) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._changed.set)
