"""Opens a session and streams audio through it.

`connect` and `Session` are the whole interface; `transcribe_file` is a shortcut for files, which `upload.py` sends over
HTTP. The WebSocket is opened in `handshake.py` and used in `connection.py`; the messages are in `messages.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Unpack

from tutti.audio import Pace, WavFile, paced, read_chunks
from tutti.connection import Connection, Progress
from tutti.errors import BadOption, ConnectionLost, ProtocolError, SessionError, SessionStopped, TimedOut
from tutti.handshake import open_websocket
from tutti.messages import Event, Flush, Resume, Start, Started, Stopped, event_to_wire
from tutti.options import (
    CLOSE_TIMEOUT_S,
    OPEN_TIMEOUT_S,
    RESUME_TIMEOUT_S,
    STARTED_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ConnectOptions,
    OnProgress,
    SessionOptions,
    check_option_names,
    resume_buffer_s,
    start_message,
)
from tutti.outgoing import Outgoing
from tutti.resumption import Reconnector, ResumingConnection

KEEPALIVE_SHARE = 1 / 3
"""`stream` sends `keepalive` when nothing was sent for this fraction of `limits.idle_timeout_s`.

It is a third, so that a slow network may delay a keepalive without ending the session.
"""


class Session:
    """One open session. `connect` makes it.

    Iterate over the session for its events, from the first after `started` to `stopped`. One task may send while
    another iterates. When the connection is lost, the session goes on over another one (`ResumeOptions`); the iteration
    then yields `Reconnecting` and `Resumed`. Both tasks raise the same error when the session ends early:

    - `SessionError` after a fatal `error` event. An `error` event that is not fatal is an event like any other.
    - `ConnectionLost` when the connection ended before `stopped`.
    - `ConnectError` or `TimedOut` when no other connection could be opened.

    Every method may be cancelled. The audio of a cancelled `send` is sent nevertheless.
    """

    def __init__(self, connection: ResumingConnection) -> None:
        self._connection = connection
        self._audio_end = _AudioEnd()
        self._is_stopping = False
        """`stop` was called."""
        self._stopped: Stopped | None = None
        self._n_flushes = 0
        """How many flushes have an id that the session chose."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of every `stream`. They end before the connection is closed."""

    @property
    def started(self) -> Started:
        """The first event of the session, with the limits of the server; after a resume, that of the new connection."""
        return self._connection.started

    @property
    def final_until_s(self) -> float:
        """Audio before this time, in seconds, is final, and the iteration has delivered its text. Never decreases."""
        return self._connection.progress.final_until_s

    @property
    def resume_from_s(self) -> tuple[float, ...]:
        """For each channel, the time before which audio is final: `Resume.from_s` after a lost connection."""
        return self._connection.progress.resume_from_s

    @property
    def stopped(self) -> Stopped | None:
        """The last event, after the iteration has delivered it."""
        return self._stopped

    async def send(self, audio: bytes | bytearray | memoryview) -> None:
        """Send audio, cut at any byte. Audio that is larger than one message may be is sent as several.

        It is sent as soon as there is a connection, and this does not wait for it: only while more than
        `resume_buffer_s` of audio is not sent yet. An application that has audio faster than real time, such as a file,
        must slow it down (`paced`) or use `transcribe_file`.
        """
        self._check_not_stopped("audio")
        await self._connection.send(memoryview(audio).cast("B"))

    async def flush(self, id: str | int | None = None) -> str | int:
        """End open utterances now.

        Returns:
            `id`, or a new one. The event `Flushed` has it, and comes when everything sent before the flush is final.
        """
        self._check_not_stopped("flush")
        if id is None:
            self._n_flushes += 1
            id = f"flush-{self._n_flushes}"
        await self._connection.flush(Flush(id))
        return id

    async def keepalive(self) -> None:
        """Keep the session open while there is no audio to send: the server ends it after `limits.idle_timeout_s`."""
        await self._connection.keepalive()

    async def stop(self) -> None:
        """Send that no more audio follows. Continue the iteration for the last finals and `stopped`.

        This ends the audio of `stream` too. A second call has no effect.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        self.end_audio()
        await self._connection.stop()

    def end_audio(self) -> None:
        """End the audio of `stream` as if its source had ended. For signal handlers and buttons."""
        self._audio_end.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._stopped is not None:
            raise StopAsyncIteration
        event = await self._connection.receive()
        if isinstance(event, Stopped):
            self._stopped = event
        return event

    async def stream(self, audio: AsyncIterable[bytes]) -> AsyncGenerator[Event, None]:
        """Send `audio`, then `stop`, and at the same time yield the events up to `stopped`.

        The session stays open while the source is silent. If the source raises an error, the audio before it becomes
        final first, and the error is raised after `stopped`. `end_audio` ends the audio early. After the generator has
        ended, for whatever reason, it does not read `audio` any more, so that the caller may close it.
        """
        sending = asyncio.create_task(self._send_all(audio))
        tasks = {sending, asyncio.create_task(self._keep_alive())}
        for task in tasks:
            # The iteration below raises the errors of the session, and `await sending` those of the source.
            task.add_done_callback(_mark_error_as_seen)
        self._tasks |= tasks
        try:
            async for event in self:
                yield event
            if self._is_stopping:
                await sending
        finally:
            for task in tasks:
                task.cancel()
            # The caller cannot close the source while a task reads it. If this wait is cancelled, `_close` waits.
            await asyncio.wait(tasks)

    async def _send_all(self, audio: AsyncIterable[bytes]) -> None:
        try:
            async with self._audio_end.interrupts():
                async for chunk in audio:
                    await self.send(chunk)
        except SessionStopped:
            pass
        except (SessionError, ConnectionLost):
            raise
        except (Exception, asyncio.CancelledError):
            # The source has failed, or what it waits for was cancelled. What it gave before is made final.
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                await self.stop()
            raise
        await self.stop()

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = KEEPALIVE_SHARE * self.started.limits.idle_timeout_s
        while not self._is_stopping:
            silent_s = loop.time() - self._connection.last_sent_s
            if silent_s >= interval_s:
                await self.keepalive()
            else:
                await asyncio.sleep(interval_s - silent_s)

    async def _close(self, timeout_s: float) -> None:
        """End all tasks and close the connection."""
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await self._connection.close(timeout_s)

    def _check_not_stopped(self, what: str) -> None:
        if self._is_stopping:
            raise SessionStopped(what)


class _AudioEnd:
    """Ends the audio of a stream early, also while its source has nothing to give."""

    def __init__(self) -> None:
        self._is_set = False
        self._scope: asyncio.Timeout | None = None
        """The block that reads the source, while there is one that `set` can still interrupt."""

    def set(self) -> None:
        """End the audio: of the stream that runs, and of later ones."""
        self._is_set = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())
            # A timeout that has expired cannot be rescheduled.
            self._scope = None

    @asynccontextmanager
    async def interrupts(self) -> AsyncIterator[None]:
        """A block that is left, without an error, when `set` is called."""
        scope = asyncio.timeout(0 if self._is_set else None)
        try:
            async with scope:
                self._scope = scope
                try:
                    yield
                finally:
                    self._scope = None
        except TimeoutError:
            # The source may raise a TimeoutError of its own.
            if not scope.expired():
                raise


def connect(url: str, **options: Unpack[ConnectOptions]) -> AbstractAsyncContextManager[Session]:
    """Open a session, and close it when the block is left.

        async with tutti.connect("ws://127.0.0.1:8000", language="en") as session:
            ...

    A block that is left before `stopped` closes the session without the last finals.

    Args:
        url: ws://, wss://, http:// or https://. Without a path, /v1/stream is added.
        options: see `ConnectOptions`.

    Raises, on entry:
        BadOption, Unreachable, Unauthorized, Overloaded, Refused, TimedOut: no session was opened.
        SessionError: the server refused an option (`bad_start`), or it has no room.
    """
    check_option_names("connect", options, ConnectOptions.__optional_keys__)
    return _open_session(url, options)


@asynccontextmanager
async def _open_session(url: str, options: ConnectOptions) -> AsyncIterator[Session]:
    start = start_message(options)
    buffer_s = resume_buffer_s(options)
    progress = Progress(_resume_times(start.resume))

    async def open(start: Start) -> tuple[Connection, Started]:
        return await _open_connection(url, options, start, progress)

    opened = await open(start)
    assert start.audio is not None
    outgoing = Outgoing(start.audio, _first_sample_s(start.resume), buffer_s)
    outgoing.forget_before(progress.final_until_s)
    reconnector = Reconnector(open, start, options.get("resume_timeout_s", RESUME_TIMEOUT_S))
    session = Session(ResumingConnection(*opened, outgoing, progress, reconnector))
    try:
        yield session
    finally:
        await session._close(options.get("close_timeout_s", CLOSE_TIMEOUT_S))


async def _open_connection(
    url: str, options: ConnectOptions, start: Start, progress: Progress
) -> tuple[Connection, Started]:
    """Open a WebSocket, send `start` on it, and wait for `started`."""
    socket = await open_websocket(
        url,
        api_key=options.get("api_key"),
        ssl=options.get("ssl"),
        proxy=options.get("proxy", True),
        open_timeout_s=options.get("open_timeout_s", OPEN_TIMEOUT_S),
    )
    connection = Connection(socket, progress, options.get("stop_timeout_s", STOP_TIMEOUT_S))
    try:
        return connection, await _begin(connection, start, options.get("started_timeout_s", STARTED_TIMEOUT_S))
    except BaseException:
        try:
            await connection.close(options.get("close_timeout_s", CLOSE_TIMEOUT_S))
        finally:
            connection.abort()
        raise


async def _begin(connection: Connection, start: Start, timeout_s: float) -> Started:
    try:
        async with asyncio.timeout(timeout_s) as scope:
            await connection.send_command(start)
            event = await connection.receive()
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise TimedOut("started_timeout_s", timeout_s, "started") from error
    if not isinstance(event, Started):
        raise ProtocolError("message.type", '"started" first', repr(event_to_wire(event)["type"]))
    return event


def _resume_times(resume: Resume | None) -> tuple[float, ...]:
    if resume is None:
        return (0.0,)
    return resume.from_s if isinstance(resume.from_s, tuple) else (resume.from_s,)


def _first_sample_s(resume: Resume | None) -> float:
    """The time of the first sample that is sent, in seconds."""
    from_s = min(_resume_times(resume))
    return from_s if resume is None or resume.audio_from_s is None else resume.audio_from_s


async def transcribe_file(
    url: str,
    path: str | Path,
    *,
    speed: float | None = None,
    on_progress: OnProgress | None = None,
    **options: Unpack[SessionOptions],
) -> AsyncGenerator[Event, None]:
    """Transcribe a file of any format, and yield its segments, utterances and `Stopped`.

    The file is uploaded, and transcribed as fast as the server can. With `speed`, it is streamed like live audio: then
    it must be a WAV file, and the events are those of a live session, with interims.

    Args:
        url: as for `connect`.
        path: of the file.
        speed: None uploads the file; 1.0 streams it in real time, as if it were spoken live; 2.0 twice as fast.
        on_progress: called while a file is uploaded and transcribed; see `FileProgress`.
        options: see `SessionOptions`. An upload has no interims, no mode "manual", no bounds of utterances and no
            `resume`; `stop_timeout_s` limits every wait for the server.

    Raises:
        BadOption: an option has no meaning for an upload, or for a stream.
        AudioError: the server cannot decode the file, or, with `speed`, it is not a WAV file that can be streamed.
        OSError: the file cannot be read.
        TuttiError: any error that `connect` and the iteration over a `Session` raise.
    """
    check_option_names("transcribe_file", options, SessionOptions.__optional_keys__)
    if speed is None:
        # Here, as it needs an HTTP client, which takes a while to import and which live sessions do without.
        from tutti.upload import upload_file

        async with aclosing(upload_file(url, path, options, on_progress)) as events:
            async for event in events:
                yield event
        return
    if on_progress is not None:
        raise BadOption("on_progress", "None with `speed`, as a stream goes on at its own pace", on_progress)
    with await asyncio.to_thread(WavFile, path) as wav:
        format = wav.format
        async with (
            aclosing(read_chunks(wav)) as chunks,
            connect(
                url, encoding=format.encoding, sample_rate=format.sample_rate, channels=format.channels, **options
            ) as session,
            aclosing(paced(chunks, format, Pace(speed, session.started.limits.max_ahead_s))) as audio,
            aclosing(session.stream(audio)) as events,
        ):
            async for event in events:
                yield event


def _mark_error_as_seen(task: asyncio.Task[None]) -> None:
    # asyncio logs the error of a task whose `exception` was never called.
    if not task.cancelled():
        task.exception()
