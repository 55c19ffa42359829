"""A client's audio on its way into a session: the pace is checked, containers are decoded, messages are cut small."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from tutti_server.app.errors import CLOSE_POLICY, LimitExceeded, MediaError, SessionError
from tutti_server.app.media.format_check import FormatCheck
from tutti_server.app.media.notices import OnNotice
from tutti_server.app.media.pcm import Samples
from tutti_server.app.media.stream_decoder import ContainerDecoder
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands
from tutti_server.app.session.session import Session

PIECE_S = 0.5
"""The session receives audio in pieces of this many seconds, so that a large message does not block the event loop."""
MAX_PACE = 1.5
"""The pace, in seconds of audio per second, at which a client may send for ever.

A client that is ahead of the clock gets its allowance back at this pace, so a replay may run at it.
"""
REPLAY_EXTRA_S = 30.0
"""How far a resumed client may be ahead of the clock beyond its longest utterance, in seconds: one window.

After a reconnect a client replays all audio without final text.
"""


@dataclass(slots=True)
class Pace:
    """How far audio is ahead of the clock: a leaky bucket that audio fills and time drains."""

    _ahead_s: float = 0.0
    _updated_at: float = 0.0
    """The clock time of the last update, in seconds."""

    def add(self, duration_s: float, now: float) -> float:
        """Add received audio. Returns how many seconds the audio is ahead of the clock."""
        self._ahead_s = max(self._ahead_s - (now - self._updated_at) * MAX_PACE, 0.0) + duration_s
        self._updated_at = now
        return self._ahead_s


class AudioReceiver:
    """Gives a client's audio to its session. `close` it at the end."""

    def __init__(
        self,
        session: Session,
        driver: SessionDriver,
        on_audio: Callable[[float, float], None],
        on_notice: OnNotice,
        clock: Callable[[], float],
    ) -> None:
        """Prepare to receive the audio of one session.

        Args:
            on_audio: called after each piece, with its duration and the end of all audio, both in seconds.
            clock: the time in seconds, for the pace.
        """
        self._session = session
        self._driver = driver
        self._on_audio = on_audio
        self._on_notice = on_notice
        self._clock = clock
        self._pace = Pace()
        self._check: FormatCheck | None = None
        """Looks at raw audio in its present format."""
        self._container: ContainerDecoder | None = None
        self._container_since = 0.0
        """The clock time at which the session would have begun if its audio had come at the pace of speech."""

    async def receive_pcm(self, data: bytes) -> None:
        """Give raw audio to the session, and notify its client if it does not look like what was declared.

        Waits while the engine has a backlog.

        Raises:
            LimitExceeded: the client is too far ahead of the clock.
        """
        audio = self._session.audio_format
        if audio is not None and (self._check is None or self._check.audio != audio):
            self._finish_check()
            self._check = FormatCheck(audio)
        if self._check is not None and (notice := self._check.add(data)):
            self._on_notice(notice)
        await self._receive(data)

    async def _receive(self, data: bytes) -> None:
        if not self._session.is_open:
            # Whole, so that it is refused once.
            self._driver.receive(commands.Audio(data))
            return
        self._check_pace(data)
        n_piece_bytes = round(self._session.bytes_per_s * PIECE_S)
        # Empty data is one empty piece.
        for start in range(0, max(len(data), 1), n_piece_bytes):
            await self._driver.room()
            piece = data[start : start + n_piece_bytes]
            await self._driver.receive_audio(piece)
            self._on_audio(self._duration_s(piece), self._session.now_s)
            await asyncio.sleep(0)

    async def receive_container(self, data: bytes) -> None:
        """Decode the next bytes of a container, and give its audio to the session.

        Raises:
            LimitExceeded: the client is too far ahead of the clock.
            SessionError: the container cannot be decoded.
        """
        if self._container is None:
            audio = self._session.audio_format
            self._container = ContainerDecoder(audio.n_transcribed if audio else 0, self._on_notice)
            self._container_since = self._clock() - self._session.audio_s
        await self._receive_decoded(self._container.decode(data))

    async def finish(self) -> None:
        """Give the session what the decoder still holds; no more bytes follow. Raises like `receive_container`."""
        self._finish_check()
        if self._container is not None:
            await self._receive_decoded(self._container.finish())

    def _finish_check(self) -> None:
        if self._check is not None and (notice := self._check.finish()):
            self._on_notice(notice)

    def close(self) -> None:
        """Free the decoder."""
        if self._container is not None:
            self._container.close()

    def _duration_s(self, data: bytes) -> float:
        return len(data) / self._session.bytes_per_s

    def _check_pace(self, data: bytes) -> None:
        duration_s, now = self._duration_s(data), self._clock()
        ahead_s = self._pace.add(duration_s, now)
        if self._container is not None:
            # A recorder that has paused jumps over the pause, and the silence for it comes at once.
            ahead_s = min(ahead_s, self._session.audio_s + duration_s - (now - self._container_since))
        limit_s = self._session.limits.max_ahead_s
        if self._session.continues_earlier:
            limit_s += self._session.max_utterance_s + REPLAY_EXTRA_S
        if ahead_s > limit_s:
            expected = f"at most {limit_s:g} s ahead of the clock"
            message = f"audio: expected {expected}, got {ahead_s:.1f} s; send it at the pace of speech"
            raise LimitExceeded("too_fast", message, CLOSE_POLICY)

    async def _receive_decoded(self, decoded: AsyncGenerator[Samples]) -> None:
        if not self._session.is_open:
            # The session takes no more audio: what is wrong with it must not end the session before its final texts.
            return
        try:
            async with aclosing(decoded) as pieces:
                async for samples in pieces:
                    await self._receive(samples.tobytes())
        except MediaError as error:
            raise SessionError("bad_media", str(error), CLOSE_POLICY) from error
