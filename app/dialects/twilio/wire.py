"""Twilio's media streams: the tracks of a call, as JSON messages with base64 audio.

Source: Twilio's documentation, "Media Streams: WebSocket messages".
"""

from collections.abc import Iterable
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import NOTHING_KNOWN, Opening
from tutti_server.app.dialects.call_streams.track_stream import TRACKS, TrackStream, nested, payload, whole_number
from tutti_server.app.dialects.call_streams.wire import Call, CallSink, call_id, own_parameters, parameters_in
from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.dialects.limits import MAX_TEXT_CHARS
from tutti_server.app.errors import BadMessage, BadStart, WrongState
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands

AUDIO = AudioFormat("mulaw", 8000, 1)
MEDIA_FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": AUDIO.sample_rate, "channels": 1}
TOKEN = "token"
"""The custom parameter that holds the API key."""


class Twilio(TrackStream):
    """One stream of a call."""

    def __init__(self, sink: CallSink, opening: Opening = NOTHING_KNOWN) -> None:
        super().__init__(sink, opening)
        self._is_connected = False

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        items: Iterable[ClientMessage] = ()
        match fields.get("event"):
            case "connected":
                self._connect(fields)
            case "start":
                items = (self._start(nested(fields, "start")),)
            case "media":
                self._require_start("media")
                media = nested(fields, "media")
                start_ms = whole_number(media, "timestamp", "milliseconds since the start")
                items = self._media(media.get("track"), start_ms, payload(media))
            case "dtmf":
                dtmf = nested(fields, "dtmf")
                track = str(dtmf.get("track", "")).removesuffix("_track")
                self._pass_on("dtmf", digit=dtmf.get("digit"), track=track)
            case "mark":
                self._pass_on("mark", name=nested(fields, "mark").get("name"))
            case "stop":
                items = self.leave()
            case other:
                raise BadMessage("unknown_type", "an event of connected, start, media, dtmf, mark or stop", other)
        return items

    def _connect(self, fields: dict[str, Any]) -> None:
        if self._is_connected:
            raise WrongState("already_connected", "connected: expected one such message, got another")
        if fields.get("protocol") not in (None, "Call"):
            raise BadStart("protocol", "Call", fields.get("protocol"))
        self._is_connected = True

    def _start(self, start: dict[str, Any]) -> commands.Start:
        self._require_new()
        names = start.get("tracks")
        if not isinstance(names, list) or not names or any(name not in TRACKS for name in names):
            raise BadStart("tracks", f"a list of {' and '.join(TRACKS)}", names)
        parameters = parameters_in("customParameters", start.get("customParameters") or {})
        call = Call(
            call_id("callSid", start.get("callSid")),
            call_id("streamSid", start.get("streamSid")),
            tuple(name for name in TRACKS if name in names),
            own_parameters(parameters, (TOKEN,)),
        )
        self._sink.begin(call)
        media_format = start.get("mediaFormat")
        if not isinstance(media_format, dict) or not MEDIA_FORMAT.items() <= media_format.items():
            raise BadStart("mediaFormat", str(MEDIA_FORMAT), media_format)
        return self._begin_tracks(call, parameters, AUDIO)


def shown_key(message: str | bytes) -> str | None:
    """The key in the first messages of a stream: `None` in `connected`, empty in a `start` without a key.

    Raises:
        BadMessage: it is neither of these messages.
    """
    fields = read_object(message) if isinstance(message, str) and len(message) <= MAX_TEXT_CHARS else {}
    match fields:
        case {"event": "connected"}:
            return None
        case {"event": "start", "start": {"customParameters": {"token": str(token)}}}:
            return token
        case {"event": "start"}:
            return ""
        case _:
            raise BadMessage("bad_message", "connected or start", message[:20])
