"""A call as JSON messages with base64 audio of its tracks, as Twilio streams it and others after it.

These systems ignore answers on the socket, or play them to the caller, so the events of the call go to a `Line`.
"""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from app.dialects.call_streams.track_sync import TrackSync
from app.dialects.call_streams.wire import START_TIMEOUT_S, Call, Line, passed_on, start_command
from app.dialects.json_text import read_object
from app.dialects.limits import MAX_TEXT_CHARS
from app.errors import CLOSE_POLICY, BadMessage, SessionError, WrongState
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.numbers import read_integer
from app.session import commands, events
from app.session.effects import Close

TRACKS = ("inbound", "outbound")
"""The tracks of a call. The caller's comes first, in whatever order a message names them."""
MAX_TIMESTAMP = 10**15
"""The largest number of a chunk that is taken for one: no call has as many milliseconds."""


class TrackStream(ABC):
    """One stream of a call. A subclass knows the messages of one telephone system."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, line: Line) -> None:
        """Translate for one stream, and publish the events of its call on `line`."""
        self._line = line
        self._tracks: TrackSync | None = None
        self._names: tuple[str, ...] = ()
        self._is_stopped = False
        self._has_reported_late_audio = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before the call is described; after it, the operator's setting."""
        return START_TIMEOUT_S if self._tracks is None else None

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: the system describes the call first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before the call is described is fatal."""
        try:
            if isinstance(message, bytes):
                raise BadMessage("bad_message", "messages of text", message[:20])
            return self._read(read_object(message))
        except SessionError as error:
            if self._tracks is None and not error.is_fatal:
                # Without this, a client without a key could hold a session for ever by sending bad messages.
                raise SessionError(error.code, error.message, CLOSE_POLICY) from error
            raise

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event on the line. Nothing goes to the telephone system itself."""
        self._line.publish(event)
        return ()

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: this dialect never answers."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. Also called when the system only disconnects."""
        if self._tracks is None or self._is_stopped:
            return ()
        self._is_stopped = True
        return (*_audio(self._finish(self._tracks)), commands.Stop())

    @abstractmethod
    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        """Translate a message."""
        ...

    def _finish(self, tracks: TrackSync) -> bytes:
        """The audio that is left at the end."""
        return tracks.finish()

    def _require_new(self) -> None:
        """Raise `WrongState` if the call has started."""
        if self._tracks is not None:
            raise WrongState("already_started", "start: the call has started already")

    def _begin(self, call: Call, parameters: Mapping[str, str], audio: AudioFormat) -> commands.Start:
        """Begin the call, and return the start of its session.

        Args:
            call: its description. The line has begun it.
            parameters: with the options of the session.
            audio: the format of each track.
        """
        command = start_command(parameters, AudioFormat(audio.encoding, audio.sample_rate, len(call.tracks)))
        self._names = call.tracks
        self._tracks = TrackSync(call.tracks, audio)
        return command

    def _open_tracks(self, what: str) -> TrackSync:
        """The tracks of the call. Raises `WrongState` before its start, naming the message that came."""
        if self._tracks is None:
            raise WrongState("not_started", f"{what}: expected start first", CLOSE_POLICY)
        return self._tracks

    def _media(self, track: object, start_ms: int, data: bytes) -> Iterable[ClientMessage]:
        """The audio that is complete with a chunk.

        Args:
            track: whose audio it is. A call with one track need not name it.
            start_ms: where it begins, in milliseconds since the start of the call.
            data: samples.
        """
        tracks = self._open_tracks("media")
        if self._is_stopped:
            raise WrongState("audio_after_stop", "media: expected no audio after stop")
        name = self._names[0] if track is None else track
        if not isinstance(name, str) or name not in self._names:
            raise BadMessage("bad_message", f"{' or '.join(self._names)} as media.track", name)
        return (*_audio(tracks.add(name, start_ms, data)), *self._late_audio(tracks))

    def _late_audio(self, tracks: TrackSync) -> Iterable[ClientMessage]:
        """A notice about the first chunk that came too late."""
        if not tracks.n_late_samples or self._has_reported_late_audio:
            return ()
        self._has_reported_late_audio = True
        message = "media: a chunk arrived after silence was used in its place; it is dropped, and others may be"
        return (events.Notice("late_audio", message),)

    def _pass_on(self, kind: str, **fields: Any) -> None:
        """Publish something that happened on the call, which is no event of the session."""
        self._open_tracks(kind)
        self._line.publish(passed_on(kind, **fields))


def payload(media: dict[str, Any]) -> bytes:
    """The samples of a chunk.

    Raises:
        BadMessage: they are not base64.
    """
    encoded = media.get("payload")
    try:
        return base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise BadMessage("bad_message", "base64 as media.payload", encoded) from None


def whole_number(media: dict[str, Any], name: str, meaning: str) -> int:
    """A number of a chunk that may be written as text.

    Raises:
        BadMessage: it is no number.
    """
    value = media.get(name)
    number = read_integer(str(value), 0, MAX_TIMESTAMP) if isinstance(value, str | int) else None
    if number is None:
        raise BadMessage("bad_message", f"{meaning} as media.{name}", value)
    return number


def nested(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """An object in a message.

    Raises:
        BadMessage: it is missing.
    """
    value = fields.get(name)
    if not isinstance(value, dict):
        raise BadMessage("bad_message", f"an object as {name}", value)
    return value


def _audio(data: bytes) -> Iterable[ClientMessage]:
    return (commands.Audio(data),) if data else ()
