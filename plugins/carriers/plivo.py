"""Plivo's audio streaming: the tracks of a call, as JSON messages with base64 audio.

Source: Plivo's documentation, "Audio Streaming Protocol Reference" and "Stream", read on 25 November 2026.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, Opening
from tutti_server.app.dialects.call_streams.track_stream import TRACKS, TrackStream, nested, payload, whole_number
from tutti_server.app.dialects.call_streams.wire import Call, CallSink, call_id, merged, own_parameters
from tutti_server.app.errors import BadMessage, BadStart
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.session.messages import commands
from tutti_server.plugins.carriers.byte_order import BYTE_ORDER, is_big_endian, swapped

FORMATS: dict[tuple[str, int], Encoding] = {
    ("audio/x-mulaw", 8000): "mulaw",
    ("audio/x-l16", 8000): "pcm_s16le",
    ("audio/x-l16", 16_000): "pcm_s16le",
}
"""The formats that Plivo offers. The bytes of 16-bit samples are little-endian unless a parameter says otherwise."""
HEADER_PREFIX = "X-PH-"
"""Begins the names of extra headers in some of Plivo's examples."""
MAX_HELD = 10
"""The first chunks that wait until each track has one. With 20 ms each, a track without one is silent after 200 ms."""


class Plivo(TrackStream):
    """One stream of a call."""

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._swaps = False
        """Whether the high byte of samples comes first."""
        self._first_ms: int | None = None
        """The earliest time of a chunk. Plivo's times are those of a clock, not of the call."""
        self._held: list[_Chunk] = []
        """The chunks that came before `_first_ms` is known: one of another track may be earlier."""

    def leave(self) -> Iterable[ClientMessage]:
        """See `CallStream.leave`."""
        return (*self._release(), *super().leave())

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        items: Iterable[ClientMessage] = ()
        match fields.get("event"):
            case "start":
                items = (self._start(fields, nested(fields, "start")),)
            case "media":
                self._require_start("media")
                items = self._timed_media(nested(fields, "media"))
            case "dtmf":
                dtmf = nested(fields, "dtmf")
                self._pass_on("dtmf", digit=dtmf.get("digit"), track=dtmf.get("track"))
            case "playedStream":
                self._pass_on("played", name=fields.get("name"))
            case "clearedAudio":
                self._pass_on("cleared")
            case "stop":
                items = self.leave()
            case other:
                expected = "an event of start, media, dtmf, playedStream, clearedAudio or stop"
                raise BadMessage("unknown_type", expected, other)
        return items

    def _start(self, fields: dict[str, Any], start: dict[str, Any]) -> commands.Start:
        self._require_new()
        names = start.get("tracks")
        if not isinstance(names, list) or not names or any(name not in TRACKS for name in names):
            raise BadStart("tracks", f"a list of {' and '.join(TRACKS)}", names)
        parameters = merged(_headers(fields.get("extra_headers") or ""), self._opening.parameters)
        call = Call(
            call_id("callId", start.get("callId")),
            call_id("streamId", start.get("streamId")),
            tuple(name for name in TRACKS if name in names),
            own_parameters(parameters, (BYTE_ORDER,)),
        )
        self._sink.begin(call)
        media_format = start.get("mediaFormat")
        described = media_format if isinstance(media_format, dict) else {}
        encoding, rate = described.get("encoding"), described.get("sampleRate")
        if not isinstance(encoding, str) or not isinstance(rate, int) or (encoding, rate) not in FORMATS:
            expected = " or ".join(f"{name} at {hz} Hz" for name, hz in FORMATS)
            raise BadStart("mediaFormat", expected, media_format)
        audio = AudioFormat(FORMATS[encoding, rate], rate, 1)
        self._swaps = audio.encoding == "pcm_s16le" and is_big_endian(parameters, default="little")
        return self._begin_tracks(call, parameters, audio)

    def _timed_media(self, media: dict[str, Any]) -> Iterable[ClientMessage]:
        time_ms = whole_number(media, "timestamp", "milliseconds of a clock")
        samples = payload(media, self._sample_bytes)
        data = swapped(samples) if self._swaps else samples
        track = media.get("track")
        if self._first_ms is not None:
            return self._media(track, time_ms - self._first_ms, data)
        self._held.append(_Chunk(time_ms, self._track_name(track), data))
        has_all = {each.track for each in self._held} == set(self._names)
        return self._release() if has_all or len(self._held) == MAX_HELD else ()

    def _release(self) -> Iterable[ClientMessage]:
        """The audio that is complete with the chunks that were held. The earliest one begins the call."""
        if not self._held:
            return ()
        chunks = sorted(self._held, key=lambda each: each.time_ms)
        self._held.clear()
        self._first_ms = first_ms = chunks[0].time_ms
        return tuple(
            chain.from_iterable(self._media(each.track, each.time_ms - first_ms, each.data) for each in chunks)
        )


@dataclass(frozen=True, slots=True)
class _Chunk:
    time_ms: int
    """Its begin on Plivo's clock, in milliseconds."""
    track: str
    data: bytes


def _headers(text: object) -> dict[str, str]:
    """The extra headers of a stream.

    Plivo's pages show `name=value`, separated by `;` in messages and by commas in its XML, and `{X-PH-name: value}`.
    Systems that copy it send `{}` where there are none.
    """
    pairs: list[tuple[str, str, str]] | None = None
    if isinstance(text, str):
        listed = text.strip()
        is_braced = listed.startswith("{") and listed.endswith("}")
        parts = re.split("[;,]", listed[1:-1] if is_braced else listed)
        pairs = [each.partition(":" if is_braced else "=") for each in parts if each.strip()]
    if pairs is None or not all(equals for _, equals, _ in pairs):
        raise BadStart("extra_headers", "name=value, separated by semicolons", text)
    return {name.strip(' "').removeprefix(HEADER_PREFIX): value.strip(' "') for name, _, value in pairs}
