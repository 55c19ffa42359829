"""Opens sessions and streams audio through them. Speaks WebSocket; the messages themselves are in `messages`."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import ssl as tls
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Literal, TypedDict, Unpack
from urllib.parse import urlsplit, urlunsplit

import websockets.asyncio.client
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.typing import Subprotocol

from tutti.audio import Pace, WavFile, paced, read_chunks
from tutti.errors import (
    BadOption,
    BadURL,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    Refused,
    SessionError,
    SessionStopped,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from tutti.messages import (
    AudioFormat,
    Command,
    Encoding,
    Endpointing,
    EndpointingMode,
    ErrorEvent,
    Event,
    Flush,
    KeepAlive,
    Resume,
    Start,
    Started,
    Stop,
    Stopped,
    Task,
    Utterance,
    encode_command,
    event_to_wire,
    parse_event,
)

logger = logging.getLogger(__name__)

SUBPROTOCOL = "tutti.v1"
STREAM_PATH = "/v1/stream"
_SECURE_SCHEMES: Mapping[str, str] = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}

PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
# When full, the socket is no longer read: a server whose events nobody takes ends the session (`slow_reader`).
MAX_EVENTS_WAITING = 1024
# Of `limits.idle_timeout_s`: `stream` says "still here" when its source was silent for so long.
KEEPALIVE_SHARE = 1 / 3


class Session:
    """One open session; made by `connect`.

    Iterate over it for its events, from the first after `started` to `stopped`. Sending and iterating may go on in
    different tasks; both raise the same error when the server ends the session:

    - `SessionError` after a fatal `error` event. Those that are not fatal are events like any other.
    - `ConnectionLost` when the connection ended before `stopped`.

    Every method may be cancelled. A cancelled `send` may have sent a part of its audio.
    """

    started: Started

    def __init__(
        self, socket: websockets.asyncio.client.ClientConnection, *, from_s: tuple[float, ...], stop_timeout_s: float
    ) -> None:
        self._socket = socket
        self._stop_timeout_s = stop_timeout_s
        self._final_until_s = min(from_s)
        self._resume_from_s = from_s
        self._n_flushes = 0
        self._audio_ended = False
        self._stop_sent = False
        self._stopped: Stopped | None = None
        self._failure: ErrorEvent | None = None
        self._reading = asyncio.Lock()
        # What `send` found after the connection had closed; bounded by MAX_EVENTS_WAITING.
        self._unread: deque[Event] = deque()
        self._read_timeout: asyncio.Timeout | None = None
        self._audio_scope: asyncio.Timeout | None = None
        self._sent_at: float = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def final_until_s(self) -> float:
        """Audio before this is done: its final texts were delivered by the iteration. Never decreases."""
        return self._final_until_s

    @property
    def resume_from_s(self) -> tuple[float, ...]:
        """The same for each channel: what `Resume.from_s` is to be after a lost connection."""
        return self._resume_from_s

    @property
    def stopped(self) -> Stopped | None:
        """The last event, once it has been delivered."""
        return self._stopped

    async def send(self, audio: bytes | bytearray | memoryview) -> None:
        """Sends audio, cut anywhere; in several messages when it is larger than the server takes.

        It is sent at once: who has more than a live source gives (a file) paces it, or uses `transcribe_file`.
        """
        view = memoryview(audio).cast("B")
        limit = self.started.limits.max_message_bytes
        for begin in range(0, len(view), limit):
            self._check_not_stopped("audio")
            await self._transmit(bytes(view[begin : begin + limit]))

    async def flush(self, id: str | int | None = None) -> str | int:
        """Ends open utterances now; `Flushed` with the id returned comes when everything sent before is final."""
        self._check_not_stopped("flush")
        if id is None:
            self._n_flushes += 1
            id = f"flush-{self._n_flushes}"
        await self._command(Flush(id))
        return id

    async def keepalive(self) -> None:
        """Says "still here", for when there is no audio to send; needed within `limits.idle_timeout_s`."""
        await self._command(KeepAlive())

    async def stop(self) -> None:
        """Says that no more audio comes; iterate on for the last finals and `stopped`. Ends `stream`'s audio too."""
        if self._stop_sent:
            return
        self._stop_sent = True
        now = asyncio.get_running_loop().time()
        self.end_audio()
        if self._read_timeout is not None:
            self._read_timeout.reschedule(now + self._stop_timeout_s)
        await self._command(Stop())

    def end_audio(self) -> None:
        """Ends the audio of `stream` as if its source had ended; for signal handlers and buttons."""
        self._audio_ended = True
        if self._audio_scope is not None:
            self._audio_scope.reschedule(asyncio.get_running_loop().time())
            # Asked for once; the scope may be over before the next time.
            self._audio_scope = None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._next()
        match event:
            case ErrorEvent(fatal=True):
                self._failure = event
                raise self._session_error(event)
            case Utterance():
                self._final_until_s = max(self._final_until_s, event.final_until_s)
                self._resume_from_s = event.resume_from_s
            case Stopped():
                self._stopped = event
            case _:
                pass
        return event

    async def stream(self, audio: AsyncIterable[bytes]) -> AsyncGenerator[Event, None]:
        """Sends `audio`, then `stop`, while it yields the events up to `stopped`.

        Keeps the session alive while the source is silent. When the source raises, what was heard until then is made
        final first and the error raised after `stopped`. `end_audio` ends the audio early. However this ends, `audio`
        is not read any more then, and may be closed.
        """
        sending = asyncio.create_task(self._send_all(audio))
        tasks = {sending, asyncio.create_task(self._keep_alive())}
        for task in tasks:
            # The iteration below raises the errors of the session; those of the source are raised after it.
            task.add_done_callback(_note_error)
        self._tasks |= tasks
        try:
            async for event in self:
                yield event
            if self._stop_sent:
                await sending
        finally:
            for task in tasks:
                task.cancel()
            # Whoever gave the source could not close it while it is being read. If this is cancelled, `_close` waits.
            await asyncio.wait(tasks)

    async def _send_all(self, audio: AsyncIterable[bytes]) -> None:
        # Expires when `end_audio` says so: it interrupts a source that has nothing to give.
        scope = asyncio.timeout(0 if self._audio_ended else None)
        try:
            async with scope:
                self._audio_scope = scope
                try:
                    async for chunk in audio:
                        await self.send(chunk)
                finally:
                    self._audio_scope = None
        except SessionStopped:
            pass
        except (SessionError, ConnectionLost):
            raise
        except Exception as error:
            if not (isinstance(error, TimeoutError) and scope.expired()):
                await self.stop()
                raise
        await self.stop()

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = KEEPALIVE_SHARE * self.started.limits.idle_timeout_s
        while not self._stop_sent:
            silent_s = loop.time() - self._sent_at
            if silent_s >= interval_s:
                await self.keepalive()
            else:
                await asyncio.sleep(interval_s - silent_s)

    async def _begin(self, start: Start, started_timeout_s: float) -> None:
        try:
            async with asyncio.timeout(started_timeout_s) as scope:
                await self._command(start)
                event = await anext(self)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise TimedOut("started_timeout_s", started_timeout_s, "started") from error
        if not isinstance(event, Started):
            raise ProtocolError("message.type", '"started" first', repr(event_to_wire(event)["type"]))
        self.started = event

    async def _close(self, close_timeout_s: float) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
            # Not left to the `close_timeout` of websockets, which does not bound the flushing of audio that waits for a
            # server that no longer reads.
            async with asyncio.timeout(close_timeout_s):
                await self._socket.close()
        except TimeoutError:
            logger.debug("no closing handshake within %g s (close_timeout_s)", close_timeout_s)
        finally:
            self._socket.transport.abort()

    async def _next(self) -> Event:
        while True:
            if self._unread:
                return self._unread.popleft()
            if self._stopped is not None:
                raise StopAsyncIteration
            if self._failure is not None:
                return self._failure
            try:
                return await self._receive()
            except ConnectionClosed as closed:
                # A `send` that failed in the meantime may have read the rest.
                if not self._unread and self._failure is None:
                    raise self._connection_lost(closed) from closed

    async def _receive(self) -> Event:
        async with self._reading:
            try:
                async with asyncio.timeout(self._stop_timeout_s if self._stop_sent else None) as scope:
                    self._read_timeout = scope
                    try:
                        message = await self._socket.recv()
                    finally:
                        self._read_timeout = None
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise TimedOut("stop_timeout_s", self._stop_timeout_s, "event after stop") from error
        if isinstance(message, bytes):
            raise ProtocolError("message", "a text frame", f"{len(message)} bytes")
        return parse_event(message)

    async def _command(self, command: Command) -> None:
        await self._transmit(encode_command(command))

    async def _transmit(self, message: str | bytes) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        try:
            await self._socket.send(message)
        except ConnectionClosed as closed:
            raise await self._find_failure(closed) from closed

    async def _find_failure(self, closed: ConnectionClosed) -> SessionError | ConnectionLost:
        """Why the connection closed: the fatal `error` event may still lie unread before the end."""
        while self._failure is None:
            try:
                event = await self._receive()
            except ConnectionClosed:
                return self._connection_lost(closed)
            if isinstance(event, ErrorEvent) and event.fatal:
                self._failure = event
            else:
                self._unread.append(event)
        return self._session_error(self._failure)

    def _check_not_stopped(self, what: str) -> None:
        if self._stop_sent:
            raise SessionStopped(what)

    def _session_error(self, event: ErrorEvent) -> SessionError:
        return SessionError(event.code, event.message, self._final_until_s)

    def _connection_lost(self, closed: ConnectionClosed) -> ConnectionLost:
        # Without a close frame from the server: 1006, as WebSocket has it.
        frame = closed.rcvd
        if frame is None:
            return ConnectionLost(1006, str(closed), self._final_until_s)
        return ConnectionLost(int(frame.code), frame.reason, self._final_until_s)


class SessionOptions(TypedDict, total=False):
    """The options of `connect`, less the audio format."""

    language: str | None
    task: Task
    interim: bool
    words: bool
    endpointing: EndpointingMode | None
    silence_ms: int | None
    min_utterance_s: float | None
    max_utterance_s: float | None
    prompt: str
    hotwords: Sequence[str]
    resume: Resume | None
    api_key: str | None
    ssl: tls.SSLContext | None
    proxy: str | Literal[True] | None
    open_timeout_s: float
    started_timeout_s: float
    stop_timeout_s: float
    close_timeout_s: float


@asynccontextmanager
async def connect(
    url: str,
    *,
    encoding: Encoding = "pcm_s16le",
    sample_rate: int = 16000,
    channels: int = 1,
    language: str | None = None,
    task: Task = "transcribe",
    interim: bool = True,
    words: bool = False,
    endpointing: EndpointingMode | None = None,
    silence_ms: int | None = None,
    min_utterance_s: float | None = None,
    max_utterance_s: float | None = None,
    prompt: str = "",
    hotwords: Sequence[str] = (),
    resume: Resume | None = None,
    api_key: str | None = None,
    ssl: tls.SSLContext | None = None,
    proxy: str | Literal[True] | None = True,
    open_timeout_s: float = 10.0,
    started_timeout_s: float = 10.0,
    stop_timeout_s: float = 60.0,
    close_timeout_s: float = 2.0,
) -> AsyncIterator[Session]:
    """Opens a session and closes it when the block is left, also when it is left early: then without the last finals.

    Args:
        url: ws://, wss://, http:// or https://; without a path, /v1/stream is meant.
        language: code such as "en"; None: detected for every utterance.
        endpointing: "vad": utterances begin and end as speech is detected; "manual", as for push-to-talk: an utterance
            begins with the first audio and ends with `flush`, `stop` or its maximum; None: the server's default, "vad".
        silence_ms: silence that ends an utterance; None: the server's default.
        min_utterance_s: silence does not end an utterance before it has lasted so long; None: the server's default.
        max_utterance_s: a longer utterance is ended at its next window; None: the server's default.
        prompt: text the speech may follow on from, or names it may contain.
        resume: after a `ConnectionLost`.
        ssl: for certificates the system does not know.
        proxy: True for the system's, None for none, or its address.
        open_timeout_s: for the connection and the WebSocket handshake.
        started_timeout_s: from `start` to `started`.
        stop_timeout_s: for every next event after `stop`.
        close_timeout_s: for the closing handshake; after it the connection is cut.

    Raises:
        BadURL, Unreachable, Unauthorized, Overloaded, Refused, TimedOut: nothing was opened.
        SessionError: the server refused an option (`bad_start`) or has no room.
    """
    # A string is a sequence of strings, but hardly meant as a list of letters.
    hotwords = (hotwords,) if isinstance(hotwords, str) else tuple(hotwords)
    controls = Endpointing(endpointing, silence_ms, min_utterance_s, max_utterance_s)
    start = Start(
        audio=AudioFormat(encoding, sample_rate, channels),
        language=language,
        task=task,
        interim=interim,
        # Asking for what is off by default would only bring warnings from servers that do not offer it.
        words=words or None,
        endpointing=None if controls == Endpointing() else controls,
        prompt=prompt or None,
        hotwords=hotwords or None,
        resume=resume,
    )
    socket = await _open(url, api_key=api_key, ssl=ssl, proxy=proxy, open_timeout_s=open_timeout_s)
    from_s = 0.0 if resume is None else resume.from_s
    times = from_s if isinstance(from_s, tuple) else (from_s,)
    session = Session(socket, from_s=times, stop_timeout_s=stop_timeout_s)
    try:
        await session._begin(start, started_timeout_s)
        yield session
    finally:
        await session._close(close_timeout_s)


async def transcribe_file(
    url: str, path: str | Path, *, speed: float | None = None, **options: Unpack[SessionOptions]
) -> AsyncGenerator[Event, None]:
    """The events of a WAV file, up to `stopped`.

    Args:
        speed: times real time; 1.0 is as if spoken live, None is as fast as the server allows.
        options: those of `connect`.

    Raises:
        AudioError: the file is not a WAV file, or of a format the server does not take.
        And what `connect` and the iteration over a `Session` raise.
    """
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


class _Connect(websockets.asyncio.client.connect):
    """Follows no redirects: websockets 15.0 carries the API key along to another host."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _open(
    url: str,
    *,
    api_key: str | None,
    ssl: tls.SSLContext | None,
    proxy: str | Literal[True] | None,
    open_timeout_s: float,
) -> websockets.asyncio.client.ClientConnection:
    stream_url = resolve_url(url)
    is_secure = stream_url.startswith("wss:")
    if ssl is not None and not is_secure:
        raise BadOption("ssl", f"None, as {stream_url} is not encrypted", ssl)
    try:
        socket = await _Connect(
            stream_url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            # Audio hardly shrinks, and events are small.
            compression=None,
            proxy=proxy,
            open_timeout=open_timeout_s,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_queue=MAX_EVENTS_WAITING,
            ssl=(ssl or True) if is_secure else None,
        )
    except InvalidStatus as refused:
        raise _refusal(stream_url, refused) from refused
    except InvalidURI as error:
        raise BadURL(url, str(error)) from error
    except TimeoutError as error:
        raise TimedOut("open_timeout_s", open_timeout_s, f"connection to {stream_url}") from error
    except InvalidHandshake as error:
        raise Unreachable(stream_url, f"no WebSocket there ({error})") from error
    except (OSError, WebSocketException) as error:
        raise Unreachable(stream_url, str(error) or type(error).__name__) from error
    if socket.subprotocol != SUBPROTOCOL:
        socket.transport.abort()
        raise Unreachable(stream_url, f"the server there does not speak {SUBPROTOCOL}")
    return socket


def resolve_url(url: str) -> str:
    """The WebSocket URL meant by `url`.

    Raises:
        BadURL: its scheme is another, it has no host, or it has a fragment.
    """
    try:
        parts = urlsplit(url)
        # Reading it checks it.
        _ = parts.port
    except ValueError as error:
        raise BadURL(url, str(error)) from error
    scheme = _SECURE_SCHEMES.get(parts.scheme)
    if scheme is None:
        raise BadURL(url, f"scheme {parts.scheme!r}" if "://" in url else "no scheme")
    if not parts.hostname:
        raise BadURL(url, "no host")
    if parts.fragment:
        raise BadURL(url, "a fragment has no meaning here")
    path = STREAM_PATH if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def _refusal(url: str, refused: InvalidStatus) -> Refused:
    response = refused.response
    status = response.status_code
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    body = bytes(response.body or b"").decode("utf-8", "replace")
    if status == 401:
        return Unauthorized(url, status, headers, body)
    if status == 503:
        return Overloaded(url, status, headers, body, _read_retry_after(headers.get("retry-after")))
    return Refused(url, status, headers, body)


def _read_retry_after(value: str | None) -> float | None:
    """Seconds, from either form RFC 9110 has: a number of them or a date. None when it is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _note_error(task: asyncio.Task[None]) -> None:
    # Reading it tells asyncio that the error has not been overlooked.
    if not task.cancelled():
        task.exception()
