"""The reading half of a connection: the client's messages become commands of its session."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from starlette.websockets import WebSocketDisconnect

from tutti_server.app.errors import CLOSE_TOO_BIG, IdleTimeout, LimitExceeded, SessionError
from tutti_server.app.live.audio_receiver import AudioReceiver
from tutti_server.app.live.dialect import ClientMessage, Dialect, Preparation
from tutti_server.app.live.timed_socket import TimedSocket
from tutti_server.app.service.key_limits import AdmitSession
from tutti_server.app.session.core.effects import Send
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands, events

IDLE_FLUSH_ID = "quiet"
"""The id of the flush that a connection makes for a client that is idle. Dialects see its `Flushed` event as well."""

OnDisconnect = Callable[[], Iterable[ClientMessage]]
"""Makes the last items of a client that has left, in place of the messages that it cannot send any more."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a connection knows of a session whose text goes to others than its client."""

    on_disconnect: OnDisconnect
    """Makes the last items when the client leaves, as the others still wait for its text."""
    refusal: asyncio.Future[SessionError]
    """Why the session is to end with what it has received, as soon as that is known."""


TakeModel = Callable[[str | None], Awaitable[None]]
"""Gives the session the engine of the model with this name, or of the first model without a name.

Raises `SessionError` if there is none.
"""


class Reader:
    """Reads one client's messages until its session is closed or the client has left."""

    def __init__(
        self,
        socket: TimedSocket,
        dialect: Dialect,
        driver: SessionDriver,
        audio: AudioReceiver,
        on_reply: Callable[[events.Reply | events.LateReply], None],
        *,
        idle_timeout_s: float,
        on_disconnect: OnDisconnect | None = None,
        admit_session: AdmitSession | None = None,
    ) -> None:
        """Prepare to read; `run` reads.

        Args:
            audio: receives the audio; closed at the end of `run`.
            on_reply: sends an answer that the dialect gives by itself.
            idle_timeout_s: the operator's limit, used where the dialect has none.
            on_disconnect: see `Publication`. `None`: the session ends when its client leaves.
            admit_session: called once, before the first valid message that is a start or follows one. The client has
                `idle_timeout_s` in all up to there.
        """
        self._socket = socket
        self._dialect = dialect
        self._session = driver.session
        self._driver = driver
        self._audio = audio
        self._on_reply = on_reply
        self._idle_timeout_s = idle_timeout_s
        self._on_disconnect = on_disconnect
        self._admit_session = admit_session
        self._take_model: TakeModel | None = None
        self._begun_s = asyncio.get_running_loop().time()
        self.is_client_gone = False
        """The client has left, and its audio is being made final for others."""

    def choose_model_by(self, take_model: TakeModel) -> None:
        """Call this before the session starts, with the model that the client's start names."""
        self._take_model = take_model

    async def run(self) -> None:
        """Read until the end. What is wrong with a message is reported by the session."""
        with closing(self._audio), suppress(WebSocketDisconnect):
            await self._perform(self._begin())
            while not self._session.is_closed:
                await self._perform(self._read_message())
                # Other tasks run in between, even if messages arrive faster than they are handled.
                await asyncio.sleep(0)

    async def _perform(self, work: Awaitable[None]) -> None:
        """Wait for a part of the work, whose errors end the session."""
        try:
            await work
        except LimitExceeded as error:
            # Audio received so far becomes final text, unless its client resumes; later audio is ignored.
            self._driver.perform(self._session.end(error))
        except SessionError as error:
            self._driver.perform(self._session.fail(error))

    async def _begin(self) -> None:
        """Do what comes before the first message. A model that is loaded for it takes none of the client's time."""
        await self._dispatch(self._dialect.open())
        self._begun_s = asyncio.get_running_loop().time()

    async def _read_message(self) -> None:
        items = tuple(await self._next_items())
        self._admit(items)
        await self._dispatch(items)

    async def _next_items(self) -> Iterable[ClientMessage]:
        """The items of the next message, or the last items of a client that has just left."""
        if self.is_client_gone:
            raise WebSocketDisconnect
        try:
            return self._dialect.read(await self._receive())
        except WebSocketDisconnect:
            if self._on_disconnect is None or not self._has_started:
                raise
            self.is_client_gone = True
            return self._on_disconnect()

    async def _receive(self) -> str | bytes:
        if self._session.is_stopping:
            content = await self._socket.receive(None, None)
        else:
            idle_timeout_s = self._dialect.idle_timeout_s or self._idle_timeout_s
            if self._admit_session is not None:
                content = await self._receive_within(idle_timeout_s)
            else:
                content = await self._socket.receive(idle_timeout_s, self._flush if self._has_started else None)
        limit = self._session.limits.max_message_bytes if isinstance(content, bytes) else self._dialect.max_text_chars
        if len(content) > limit:
            unit = "bytes of audio" if isinstance(content, bytes) else "characters of text"
            raise LimitExceeded("too_big", f"expected at most {limit} {unit}, got {len(content)}", CLOSE_TOO_BIG)
        return content

    async def _receive_within(self, limit_s: float) -> str | bytes:
        """The next message of an unauthenticated client: messages that are not valid give it no more time than this."""
        left_s = self._begun_s + limit_s - asyncio.get_running_loop().time()
        with suppress(IdleTimeout):
            if left_s > 0:
                return await self._socket.receive(left_s, None)
        raise IdleTimeout(f"no valid message for {limit_s:g} s")

    def _admit(self, items: Sequence[ClientMessage]) -> None:
        """Admit the session, unless it is admitted, if these items hold a command for a session that has begun."""
        own = events.Notice | events.Reply | events.LateReply | Preparation
        of_client = [item for item in items if not isinstance(item, own)]
        if self._admit_session is None or not of_client:
            return
        start = next((item for item in of_client if isinstance(item, commands.Start)), None)
        if self._has_started or start:
            admit_session, self._admit_session = self._admit_session, None
            admit_session(start is not None and start.resume is not None)

    @property
    def _has_started(self) -> bool:
        return self._session.bytes_per_s > 0

    def _flush(self) -> None:
        self._driver.receive(commands.Flush(IDLE_FLUSH_ID))

    async def _dispatch(self, items: Iterable[ClientMessage]) -> None:
        for item in items:
            match item:
                case commands.Audio(data):
                    await self._audio.receive_pcm(data)
                case events.Notice():
                    self._driver.perform([Send(item)])
                case Preparation(work):
                    await work()
                case commands.Media(data):
                    await self._audio.receive_container(data)
                case events.Reply() | events.LateReply():
                    self._on_reply(item)
                case commands.Start() if not self._has_started:
                    if self._take_model:
                        await self._take_model(item.model)
                    await self._driver.start(item)
                case commands.Stop():
                    await self._audio.finish()
                    self._driver.receive(item)
                case _:
                    self._driver.receive(item)
