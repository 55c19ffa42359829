"""Telnyx's media streaming: the tracks of a call, as JSON messages with base64 audio.

Source: Telnyx's documentation, "Media Streaming over WebSockets" and "Stream call media over WebSocket", read on 25
November 2026.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, Opening
from tutti_server.app.dialects.call_streams.track_stream import TRACKS, TrackStream, nested, payload, whole_number
from tutti_server.app.dialects.call_streams.track_sync import TrackSync
from tutti_server.app.dialects.call_streams.wire import (
    Call,
    CallSink,
    call_id,
    given,
    merged,
    own_parameters,
    parameters_in,
)
from tutti_server.app.errors import BadMessage, BadStart, LimitExceeded
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.session.messages import commands
from tutti_server.plugins.carriers.byte_order import BYTE_ORDER, is_big_endian, swapped

ENCODINGS: dict[str, Encoding] = {
    "PCMU": "mulaw",
    "PCMA": "alaw",
    "audio/x-mulaw": "mulaw",
    "audio/x-alaw": "alaw",
}
"""Telnyx's names of the encodings that are decoded here. The second two are of older documentation."""
SAMPLE_RATE = 8000
"""The sample rate of these encodings, in Hz."""
L16, L16_RATES = "L16", (8000, 16_000)
"""Samples of 16 bits, and their rates. Telnyx documents neither their byte order nor which rate a call has."""
TRACK = "track"
"""The parameter of the address that says which tracks the stream has: `start` does not."""
ERROR_FIELDS = ("code", "title", "detail")
"""What an `error` message says."""
STREAM_TRACKS = {"both_tracks": TRACKS, "inbound_track": TRACKS[:1], "outbound_track": TRACKS[1:]}
"""Telnyx's names of the tracks that are streamed. All of them are expected unless the address says otherwise."""
MAX_HELD = 10
"""Chunks that wait for one that is missing. With 20 ms each, a lost chunk delays the audio after it by 200 ms once."""


class Telnyx(TrackStream):
    """One stream of a call."""

    KEY_HEADER = "x-telnyx-streaming-auth-token"
    """The header with the `stream_auth_token` of the command that started the stream."""

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._orders: dict[str, ChunkOrder] = {}
        self._swaps = False
        """Whether the high byte of samples comes first."""

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        items: Iterable[ClientMessage] = ()
        match fields.get("event"):
            case "connected":
                pass
            case "start":
                items = (self._start(fields, nested(fields, "start")),)
            case "media":
                self._require_start("media")
                items = self._ordered_media(nested(fields, "media"))
            case "dtmf":
                self._pass_on("dtmf", digit=nested(fields, "dtmf").get("digit"))
            case "mark":
                self._pass_on("mark", name=nested(fields, "mark").get("name"))
            case "error":
                error = nested(fields, "payload")
                self._pass_on("stream_error", **{name: error[name] for name in ERROR_FIELDS if name in error})
            case "stop":
                items = self.leave()
            case other:
                expected = "an event of connected, start, media, dtmf, mark, error or stop"
                raise BadMessage("unknown_type", expected, other)
        return items

    def _start(self, fields: dict[str, Any], start: dict[str, Any]) -> commands.Start:
        self._require_new()
        custom = parameters_in("custom_parameters", start.get("custom_parameters") or {})
        sides = {name: start[name] for name in ("from", "to") if isinstance(start.get(name), str)}
        parameters = merged(sides, custom, self._opening.parameters)
        track = given(parameters, TRACK, "both_tracks")
        if track not in STREAM_TRACKS:
            raise BadStart(TRACK, " or ".join(STREAM_TRACKS), track)
        call = Call(
            call_id("call_control_id", start.get("call_control_id")),
            call_id("stream_id", fields.get("stream_id")),
            STREAM_TRACKS[track],
            own_parameters(parameters, (TRACK, BYTE_ORDER)),
        )
        self._sink.begin(call)
        is_l16, audio = _audio_format(start.get("media_format"))
        self._swaps = is_l16 and is_big_endian(parameters, default=None)
        command = self._begin_tracks(call, parameters, audio)
        self._orders = {name: ChunkOrder() for name in call.tracks}
        return command

    def _ordered_media(self, media: dict[str, Any]) -> Iterable[ClientMessage]:
        track = media.get("track")
        number = whole_number(media, "chunk", "the number of the chunk")
        start_ms = whole_number(media, "timestamp", "milliseconds since the start")
        samples = payload(media, self._sample_bytes)
        chunk = Chunk(number, start_ms, swapped(samples) if self._swaps else samples)
        if not isinstance(track, str) or track not in self._orders:
            # The audio of a track that is not expected must not be lost without a word.
            named = " or ".join(STREAM_TRACKS)
            raise BadMessage("bad_message", f"{' or '.join(self._orders)} as media.track ({TRACK} is {named})", track)
        ready = self._orders[track].add(chunk)
        return tuple(chain.from_iterable(self._media(track, each.start_ms, each.data) for each in ready))

    def _finish(self, tracks: TrackSync) -> bytes:
        audio = bytearray()
        for track, order in self._orders.items():
            for chunk in order.finish():
                # A chunk from far ahead has no place any more: the stream is over.
                with suppress(LimitExceeded):
                    audio += tracks.add(track, chunk.start_ms, chunk.data)
        return bytes(audio + tracks.finish())


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a track."""

    number: int
    start_ms: int
    """The begin of the piece, in milliseconds since the start of the stream."""
    data: bytes


@dataclass(slots=True)
class ChunkOrder:
    """Puts the chunks of one track in order: Telnyx does not promise that they arrive in it."""

    _next: int | None = None
    """The number of the chunk that is due; none before the first one."""
    _held: dict[int, Chunk] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> list[Chunk]:
        """Add a chunk, and return those that are in order now. One that comes after its turn is returned at once."""
        if self._next is None:
            self._next = chunk.number
        if chunk.number < self._next:
            return [chunk]
        self._held[chunk.number] = chunk
        if len(self._held) > MAX_HELD:
            self._next = min(self._held)
        ready = []
        while self._next in self._held:
            ready.append(self._held.pop(self._next))
            self._next += 1
        return ready

    def finish(self) -> list[Chunk]:
        """Return what still waits, in order."""
        ready = [self._held[number] for number in sorted(self._held)]
        self._held.clear()
        return ready


def _audio_format(described: object) -> tuple[bool, AudioFormat]:
    """Whether samples have 16 bits, and the format of each track, from `media_format`."""
    match described:
        case {"encoding": str(encoding), "sample_rate": int(rate), **rest} if (
            encoding == L16 and rate in L16_RATES and rest.get("channels", 1) == 1
        ):
            return True, AudioFormat("pcm_s16le", rate, 1)
        case {"encoding": str(encoding), "sample_rate": rate, **rest} if (
            encoding in ENCODINGS and rate == SAMPLE_RATE and rest.get("channels", 1) == 1
        ):
            return False, AudioFormat(ENCODINGS[encoding], SAMPLE_RATE, 1)
        case _:
            expected = "PCMU or PCMA at 8000 Hz, or L16 at 8000 or 16000 Hz, with one channel (stream_codec)"
            raise BadStart("media_format", expected, described)
