"""The client for programs without asyncio: the same functions, events and errors, with plain `for` and `with`.

    import tutti.sync

    for event in tutti.sync.transcribe_file("ws://127.0.0.1:8000", "talk.mp3"):
        ...

The connection runs in a thread of its own, so that it is kept open while the program does something else.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

import tutti.session
from tutti.connection import CLOSE_CODE_NORMAL
from tutti.errors import ConnectionLost
from tutti.messages import Event, Started, Stopped
from tutti.options import ConnectOptions, OnProgress, SessionOptions

_Result = TypeVar("_Result")


class Session:
    """One open session. `connect` makes it; each method does what its namesake of `tutti.Session` does.

    One thread may send while another iterates.
    """

    def __init__(self, session: tutti.session.Session, runner: _Runner) -> None:
        self._session = session
        self._runner = runner

    @property
    def started(self) -> Started:
        """The first event of the session, with the limits of the server."""
        return self._session.started

    @property
    def final_until_s(self) -> float:
        """Audio before this time, in seconds, is final, and the iteration has delivered its text. Never decreases."""
        return self._session.final_until_s

    @property
    def resume_from_s(self) -> tuple[float, ...]:
        """For each channel, the time before which audio is final: `Resume.from_s` after a lost connection."""
        return self._session.resume_from_s

    @property
    def stopped(self) -> Stopped | None:
        """The last event, after the iteration has delivered it."""
        return self._session.stopped

    def send(self, audio: bytes | bytearray | memoryview) -> None:
        """Send audio, cut at any byte."""
        self._runner.run(self._session.send(audio))

    def flush(self, id: str | int | None = None) -> str | int:
        """End open utterances now. `Flushed` will have the id that is returned."""
        return self._runner.run(self._session.flush(id))

    def keepalive(self) -> None:
        """Keep the session open while there is no audio to send."""
        self._runner.run(self._session.keepalive())

    def stop(self) -> None:
        """Send that no more audio follows. Continue the iteration for the last finals and `Stopped`."""
        self._runner.run(self._session.stop())

    def end_audio(self) -> None:
        """End the audio of `stream` as if its source had ended. For signal handlers, buttons and other threads."""
        self._runner.run(_end_audio(self._session))

    def __iter__(self) -> Iterator[Event]:
        return self._runner.iterate(_events(self._session))

    def stream(self, audio: Iterable[bytes]) -> Generator[Event, None, None]:
        """Send `audio`, then `stop`, and at the same time yield the events up to `stopped`.

        Another thread iterates over `audio`, which may wait for each chunk. A generator that ends early first waits for
        the chunk that this thread reads.
        """
        return self._runner.iterate(self._session.stream(_chunks(audio)))


@contextmanager
def connect(url: str, **options: Unpack[ConnectOptions]) -> Iterator[Session]:
    """Open a session, and close it when the block is left. Arguments and errors are those of `tutti.connect`."""
    with _run_loop() as runner:
        manager = tutti.session.connect(url, **options)
        session = runner.run(manager.__aenter__())
        try:
            yield Session(session, runner)
        finally:
            runner.final_until_s = session.final_until_s
            runner.clean_up(manager.__aexit__(None, None, None))


def transcribe_file(
    url: str,
    path: str | Path,
    *,
    speed: float | None = None,
    on_progress: OnProgress | None = None,
    **options: Unpack[SessionOptions],
) -> Generator[Event, None, None]:
    """Transcribe a file, and yield its events. Arguments and errors are those of `tutti.transcribe_file`.

    `on_progress` is called in another thread.
    """
    with _run_loop() as runner:
        yield from runner.iterate(
            tutti.session.transcribe_file(url, path, speed=speed, on_progress=on_progress, **options)
        )


async def _events(session: tutti.session.Session) -> AsyncGenerator[Event, None]:
    async for event in session:
        yield event


async def _end_audio(session: tutti.session.Session) -> None:
    session.end_audio()


async def _chunks(audio: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    chunks = iter(audio)
    while True:
        reading = asyncio.create_task(asyncio.to_thread(next, chunks, None))
        try:
            chunk = await asyncio.shield(reading)
        finally:
            # The caller cannot close a generator while a thread reads it.
            await asyncio.wait([reading])
        if chunk is None:
            return
        yield chunk


class _Runner:
    """Runs coroutines on the event loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A generator that Python closes in the midst of it gives work, too.
        self._giving = threading.RLock()
        """Held while the loop is given work, or told to end: it forgets work that comes later."""
        self._is_over = False
        self.final_until_s = 0.0
        """How much audio of the session was final when it was closed."""

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for the result. Whatever interrupts the wait, such as Ctrl-C, cancels the work.

        Raises:
            ConnectionLost: the loop was told to end.
        """
        with self._giving:
            if self._is_over:
                work.close()
                raise ConnectionLost(CLOSE_CODE_NORMAL, "the session is closed", self.final_until_s)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self, is_done: asyncio.Event) -> None:
        """Take no more work, and let the loop end."""
        with self._giving:
            self._is_over = True
            self._loop.call_soon_threadsafe(is_done.set)

    def clean_up(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work`, unless its loop has ended, or the program ends: no other thread runs then."""
        if self._is_over or sys.is_finalizing():
            work.close()
        else:
            self.run(work)

    def iterate(self, events: AsyncGenerator[Event, None]) -> Generator[Event, None, None]:
        # A wait that was interrupted may still be inside the generator, which must not be closed before it has left.
        is_waiting = asyncio.Lock()

        async def wait() -> Event | None:
            async with is_waiting:
                return await anext(events, None)

        async def close() -> None:
            async with is_waiting:
                await events.aclose()

        try:
            while (event := self.run(wait())) is not None:
                yield event
        finally:
            self.clean_up(close())


@contextmanager
def _run_loop() -> Iterator[_Runner]:
    """An event loop in a thread of its own, which ends with the block."""
    running: Future[asyncio.AbstractEventLoop] = Future()
    is_done = asyncio.Event()

    async def serve() -> None:
        running.set_result(asyncio.get_running_loop())
        await is_done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="tutti", daemon=True)
    thread.start()
    loop = running.result()
    runner = _Runner(loop)
    try:
        yield runner
    finally:
        if not sys.is_finalizing():
            runner.end(is_done)
            thread.join()
