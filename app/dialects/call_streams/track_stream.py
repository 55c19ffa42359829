"""A call as JSON messages with base64 audio of its tracks, as Twilio streams it and others after it."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, CallStream, Opening
from tutti_server.app.dialects.call_streams.track_sync import TrackSync
from tutti_server.app.dialects.call_streams.wire import Call, CallSink
from tutti_server.app.errors import BadMessage, WrongState
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE, AudioFormat
from tutti_server.app.numbers import read_integer
from tutti_server.app.session.messages import commands, events

TRACKS = ("inbound", "outbound")
"""The tracks of a call. The caller's comes first, in whatever order a message names them."""
MAX_TIMESTAMP = 10**15
"""The largest number of a chunk that is taken for one: no call has as many milliseconds."""


class TrackStream(CallStream):
    """One stream of a call with one track or both. A subclass knows the messages of one telephone system."""

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._tracks: TrackSync | None = None
        self._names: tuple[str, ...] = ()
        self._sample_bytes = 1
        """The bytes of one sample of a track."""
        self._has_reported_late_audio = False

    def _audio(self, data: bytes) -> Iterable[ClientMessage]:
        raise BadMessage("bad_message", "messages of text", data[:20])

    def _rest(self) -> Iterable[ClientMessage]:
        return _audio(self._finish(self._tracks)) if self._tracks is not None else ()

    def _finish(self, tracks: TrackSync) -> bytes:
        return tracks.finish()

    def _begin_tracks(self, call: Call, parameters: Mapping[str, str], audio: AudioFormat) -> commands.Start:
        command = self._begin(parameters, AudioFormat(audio.encoding, audio.sample_rate, len(call.tracks)))
        self._names = call.tracks
        self._tracks = TrackSync(call.tracks, audio)
        self._sample_bytes = BYTES_PER_SAMPLE[audio.encoding]
        return command

    def _media(self, track: object, start_ms: int, data: bytes) -> Iterable[ClientMessage]:
        """The audio that is complete with a chunk of a call that has started.

        Args:
            track: whose audio it is. A call with one track need not name it.
            start_ms: where it begins, in milliseconds since the start of the call.
            data: whole samples.
        """
        name = self._track_name(track)
        assert self._tracks
        return (*_audio(self._tracks.add(name, start_ms, data)), *self._late_audio(self._tracks))

    def _track_name(self, track: object) -> str:
        """The track of a chunk, which a call with one track need not name. Raises `WrongState` or `BadMessage`."""
        if self._is_stopped:
            raise WrongState("audio_after_stop", "media: expected no audio after stop")
        name = self._names[0] if track is None else track
        if not isinstance(name, str) or name not in self._names:
            raise BadMessage("bad_message", f"{' or '.join(self._names)} as media.track", name)
        return name

    def _late_audio(self, tracks: TrackSync) -> Iterable[ClientMessage]:
        if not tracks.n_late_samples or self._has_reported_late_audio:
            return ()
        self._has_reported_late_audio = True
        message = "media: a chunk arrived after silence was used in its place; it is dropped, and others may be"
        return (events.Notice("late_audio", message),)


def payload(media: dict[str, Any], sample_bytes: int = 1) -> bytes:
    """The samples of a chunk, each of `sample_bytes` bytes.

    Raises:
        BadMessage: they are not base64, or there is a part of a sample.
    """
    encoded = media.get("payload")
    try:
        data = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except ValueError:
        raise BadMessage("bad_message", "base64 as media.payload", encoded) from None
    if len(data) % sample_bytes:
        # It would move every later sample by a byte.
        expected = f"whole samples of {8 * sample_bytes} bits as media.payload"
        raise BadMessage("bad_message", expected, f"{len(data)} bytes")
    return data


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
