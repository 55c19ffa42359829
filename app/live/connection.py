"""One client's WebSocket: reads messages into a session, writes its events, and owns every wall-clock limit.

A dialect translates; all dialects share what is here.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.delivery.outbox import Outbox
from app.errors import CLOSE_OUR_FAULT, CLOSE_POLICY, CLOSE_TOO_BIG, LimitExceeded, MediaError, SessionError
from app.live.dialect import Dialect, ClientMessage
from app.media.pcm import Samples
from app.media.stream_decoder import ContainerDecoder
from app.service.admission import FinalWaits
from app.service.metrics import Metrics
from app.service.settings import Settings
from app.session import commands, events
from app.session.effects import Close, Send
from app.session.engine_driver import SessionDriver
from app.session.session import Session
from engine import api

# Audio is taken in by pieces that last this long, so that a large message does not hold up the event loop.
PIECE_S = 0.5
# How fast, in times the clock, a client that is ahead gets its room back; so a replay may run at this pace.
MAX_PACE = 1.5
# After a reconnect a client replays what was not final: an utterance at its longest and a window more.
REPLAY_EXTRA_S = 30.0
# Names the flush of a client that says nothing; the dialects that have no flush of their own are told of it as well.
QUIET = "quiet"
# How long arrival times of audio are remembered for measuring latency.
ARRIVALS_KEPT_S = 120.0


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Puts the session's id in front of every line."""

    def process(self, msg: str, kwargs: object) -> tuple[str, object]:  # type: ignore[override]  # narrower than typeshed
        return f"[{self.extra['session'] if self.extra else ''}] {msg}", kwargs


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Arrivals:
    """When which part of the audio reached the server."""

    _ends_s: list[float] = field(default_factory=list)
    _clocks: list[float] = field(default_factory=list)

    def note(self, audio_s: float, now: float) -> None:
        """Audio up to `audio_s` has arrived. Bounded: a session's time moves in frames of 20 ms."""
        if self._ends_s and audio_s <= self._ends_s[-1]:
            return
        self._ends_s.append(audio_s)
        self._clocks.append(now)
        if self._ends_s[0] < audio_s - 2 * ARRIVALS_KEPT_S:
            n_old = bisect_left(self._ends_s, audio_s - ARRIVALS_KEPT_S)
            del self._ends_s[:n_old], self._clocks[:n_old]

    def at(self, audio_s: float) -> float | None:
        """Clock time at which the sample at `audio_s` had arrived."""
        index = bisect_left(self._ends_s, audio_s)
        return self._clocks[index] if index < len(self._clocks) else None


@dataclass(slots=True)
class _Pace:
    """How far audio is ahead of the clock: a bucket that audio fills and time drains."""

    _ahead_s: float = 0.0
    _at: float = 0.0

    def add(self, duration_s: float, now: float) -> float:
        """Seconds ahead, once so much more has come."""
        self._ahead_s = max(self._ahead_s - (now - self._at) * MAX_PACE, 0.0) + duration_s
        self._at = now
        return self._ahead_s


class Connection:
    """Serves one accepted WebSocket until it ends. `drain` may be called at any time."""

    def __init__(
        self,
        websocket: WebSocket,
        dialect: Dialect,
        session: Session,
        transcriber: api.Transcriber,
        settings: Settings,
        metrics: Metrics,
        final_waits: FinalWaits,
        clock: Callable[[], float] = time.monotonic,
        flush_after_s: float | None = None,
        on_disconnect: Callable[[], Iterable[ClientMessage]] | None = None,
    ) -> None:
        """Args:
        flush_after_s: what a client said is made final once it has sent nothing for so long, for dialects in which
            it cannot ask for that; `None`: it may go on where it was.
        on_disconnect: what follows when the client leaves, where its results go to others; they are still waited for.
            `None`: the session ends with it.
        """
        self._websocket = websocket
        self._dialect = dialect
        self._session = session
        self._transcriber = transcriber
        self._settings = settings
        self._metrics = metrics
        self._final_waits = final_waits
        self._clock = clock
        self._flush_after_s = flush_after_s
        self._last_words = on_disconnect
        self._is_left = False
        """The client has gone, and what it said is being made final."""
        self._outbox = Outbox()
        self._close: Close | None = None
        self._driver: SessionDriver | None = None
        self._media: ContainerDecoder | None = None
        self._arrivals = _Arrivals()
        self._awaiting_text: dict[int, float] = {}
        self._log = _Log(logger, {"session": session.id})

    async def serve(self) -> None:
        """ClientMessage and write until either side ends the session; leaves no task and no window behind."""
        started = self._clock()
        self._log.info("opened")
        code = "client"
        try:
            await self._run()
            code = str(self._close.code) if self._close else code
        except* Exception as errors:
            # A mistake of ours ends this session alone.
            self._log.error("failed", exc_info=errors)
            code = str(CLOSE_OUR_FAULT)
            await self._close_socket(Close(CLOSE_OUR_FAULT, "internal_error"))
        finally:
            if self._media is not None:
                self._media.close()
            self._metrics.closed_total.labels(code).inc()
            audio_s = self._session.audio_s
            self._log.info("closed with %s after %.1f s, %.1f s of audio", code, self._clock() - started, audio_s)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._driver = SessionDriver(
                self._session,
                self._transcriber,
                tasks,
                self._put,
                self._on_close,
                self._settings.final_deadline_s,
                self._final_waits.note,
            )
            reader = tasks.create_task(self._read())
            writer = tasks.create_task(self._write())
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if self._close is not None or self._is_left:
                # Everything that was said is still delivered; each send has its own time limit.
                await asyncio.wait((writer,))
            reader.cancel()
            writer.cancel()
            self._driver.cancel_windows()

    def drain(self) -> None:
        """Make final what was heard, then tell the client to go elsewhere."""
        if self._driver:
            self._driver.perform(self._session.drain())

    # Reading.

    async def _read(self) -> None:
        assert self._driver
        pace = _Pace()
        await self._take(self._dialect.open(), pace)
        while not self._session.is_closed:
            try:
                await self._take(await self._next(), pace)
            except WebSocketDisconnect:
                return
            except LimitExceeded as error:
                # What was heard before is made final; what still comes is not heard.
                self._driver.perform(self._session.end(error))
            except SessionError as error:
                self._driver.perform(self._session.fail(error))
            # Let others have their turn, also when a client's messages come faster than they are read.
            await asyncio.sleep(0)

    async def _next(self) -> Iterable[ClientMessage]:
        """What the next message comes to, or the last words of a client that has left."""
        if self._is_left:
            raise WebSocketDisconnect
        try:
            return self._dialect.read(await self._receive())
        except WebSocketDisconnect:
            if self._last_words is None or not self._session.bytes_per_s:
                raise
            self._is_left = True
            return self._last_words()

    async def _receive(self) -> str | bytes:
        allowed_s = self._dialect.idle_timeout_s or self._settings.idle_timeout_s
        timeout_s = None if self._session.is_stopping else allowed_s
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._next_message()
        except TimeoutError:
            raise LimitExceeded("idle", f"no message for {timeout_s:g} s", CLOSE_POLICY) from None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        content: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
        limit = self._session.limits.max_message_bytes if isinstance(content, bytes) else self._dialect.max_text_chars
        if len(content) > limit:
            unit = "bytes of audio" if isinstance(content, bytes) else "characters of text"
            raise LimitExceeded("too_big", f"expected at most {limit} {unit}, got {len(content)}", CLOSE_TOO_BIG)
        return content

    async def _next_message(self) -> Message:
        if self._flush_after_s is not None and self._session.bytes_per_s and not self._session.is_stopping:
            assert self._driver
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_after_s):
                    return await self._websocket.receive()
            self._driver.receive(commands.Flush(QUIET))
        return await self._websocket.receive()

    async def _take(self, items: Iterable[ClientMessage], pace: _Pace) -> None:
        assert self._driver
        for item in items:
            match item:
                case commands.Audio(data):
                    await self._take_audio(data, pace)
                case events.Notice():
                    self._driver.perform([Send(item)])
                case commands.Media(data):
                    await self._take_media(data, pace)
                case events.Reply():
                    self._put(item)
                case commands.Stop():
                    await self._end_media(pace)
                    self._driver.receive(item)
                case _:
                    self._driver.receive(item)

    async def _take_audio(self, data: bytes, pace: _Pace) -> None:
        assert self._driver
        ahead_s = pace.add(self._session.duration_s(data), self._clock())
        limit_s = self._session.limits.max_ahead_s
        if self._session.is_resumed:
            limit_s += self._session.max_utterance_s + REPLAY_EXTRA_S
        if ahead_s > limit_s:
            expected = f"at most {limit_s:g} s ahead of the clock"
            message = f"audio: expected {expected}, got {ahead_s:.1f} s; send it at the pace of speech"
            raise LimitExceeded("too_fast", message, CLOSE_POLICY)
        n_piece = max(round(self._session.bytes_per_s * PIECE_S), 1)
        for at in range(0, max(len(data), 1), n_piece):
            await self._driver.room()
            piece = data[at : at + n_piece]
            self._driver.receive(commands.Audio(piece))
            self._metrics.audio_s_total.inc(self._session.duration_s(piece))
            self._arrivals.note(self._session.now_s, self._clock())
            for reply in self._dialect.heard(self._session.now_s):
                self._put(reply)
            await asyncio.sleep(0)

    async def _take_media(self, data: bytes, pace: _Pace) -> None:
        if self._media is None:
            self._media = ContainerDecoder(self._session.n_channels)
        await self._take_decoded(self._media.decode(data), pace)

    async def _end_media(self, pace: _Pace) -> None:
        if self._media is not None:
            await self._take_decoded(self._media.finish(), pace)

    async def _take_decoded(self, decoded: AsyncGenerator[Samples], pace: _Pace) -> None:
        try:
            async with aclosing(decoded) as pieces:
                async for samples in pieces:
                    await self._take_audio(samples.tobytes(), pace)
        except MediaError as error:
            raise SessionError("bad_media", str(error), CLOSE_POLICY) from error

    # Writing.

    def _put(self, event: events.Event | events.Reply) -> None:
        assert self._driver
        try:
            self._outbox.put(event)
        except LimitExceeded as error:
            self._driver.perform(self._session.fail(error))

    def _on_close(self, close: Close) -> None:
        self._close = close
        self._outbox.close()

    async def _write(self) -> None:
        while (event := await self._outbox.get()) is not None:
            if isinstance(event, events.Reply):
                messages: Iterable[str] = (event.text,)
            else:
                self._measure(event)
                messages = self._dialect.write(event)
            try:
                for message in messages:
                    async with asyncio.timeout(self._settings.send_timeout_s):
                        await self._websocket.send_text(message)
            except TimeoutError:
                self._log.warning("the client did not read for %g s", self._settings.send_timeout_s)
                self._close = Close(CLOSE_POLICY, "slow_reader")
                break
            except (WebSocketDisconnect, RuntimeError):
                # Starlette says RuntimeError when the peer has gone while we were sending.
                return
        await self._close_socket(self._close or Close(CLOSE_OUR_FAULT, ""))

    async def _close_socket(self, close: Close) -> None:
        close = self._dialect.close(close)
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(self._settings.send_timeout_s):
                await self._websocket.close(close.code, close.reason)

    def _measure(self, event: events.Event) -> None:
        """Latencies as the client has them: from the arrival of the audio to the sending of what it said."""
        self._metrics.events_total.labels(type(event).__name__.lower()).inc()
        now = self._clock()
        match event:
            case events.SpeechStarted(utterance=number, at_s=at_s):
                arrived = self._arrivals.at(at_s)
                if arrived is not None:
                    self._awaiting_text[number] = arrived
            case events.Interim(utterance=number, end_s=end_s):
                self._first_text(number, now)
                arrived = self._arrivals.at(end_s)
                if arrived is not None:
                    self._metrics.interim_lag_s.observe(now - arrived)
            case events.Segment(utterance=number):
                self._first_text(number, now)
            case events.Utterance(utterance=number):
                self._awaiting_text.pop(number, None)
                arrived = self._arrivals.at(event.end_s)
                if arrived is not None:
                    self._metrics.final_latency_s.observe(now - arrived)
                self._metrics.count_coverage(event)

    def _first_text(self, utterance: int, now: float) -> None:
        arrived = self._awaiting_text.pop(utterance, None)
        if arrived is not None:
            self._metrics.first_text_s.observe(now - arrived)
