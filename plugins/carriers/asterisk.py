"""Asterisk's WebSocket channel (`chan_websocket`): control messages as text, media as binary messages.

The protocol has no message for a transcript, and text messages to Asterisk are commands of the channel. So the events
of a call go to a `CallSink` instead.
Source: Asterisk's documentation, "WebSocket" under "Channel Drivers", of both forms of control messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.wire import TRACK, Call, call_id, own_parameters, side_of
from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.errors import BadMessage, BadStart
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events

FORMATS = {
    "ulaw": AudioFormat("mulaw", 8000),
    "alaw": AudioFormat("alaw", 8000),
    "slin": AudioFormat("pcm_s16le", 8000),
    "slin12": AudioFormat("pcm_s16le", 12_000),
    "slin16": AudioFormat("pcm_s16le", 16_000),
    "slin24": AudioFormat("pcm_s16le", 24_000),
    "slin32": AudioFormat("pcm_s16le", 32_000),
    "slin44": AudioFormat("pcm_s16le", 44_100),
    "slin48": AudioFormat("pcm_s16le", 48_000),
}
"""What we decode, by Asterisk's name of the codec. `slin` is in the byte order of Asterisk's machine: little-endian."""
ABOUT_OUR_MEDIA = (
    *("MEDIA_XON", "MEDIA_XOFF", "STATUS", "MEDIA_BUFFERING_COMPLETED", "MEDIA_MARK_PROCESSED", "QUEUE_DRAINED"),
)
"""Events about media and commands that an application sends. We send none, so they need no answer."""


class Asterisk(CallStream):
    """One WebSocket channel. A dial string gives the parameters of its address with `v(NAME=VALUE)`."""

    START = "MEDIA_START"
    SUBPROTOCOL = "media"
    """Asterisk's documentation has clients configure it."""

    def _text(self, text: str) -> Iterable[ClientMessage]:
        kind, fields = read_control(text)
        if kind == self.START:
            return (self._start(fields),)
        self._require_start(kind[:40])
        if kind == "DTMF_END":
            self._pass_on("dtmf", digit=fields.get("digit"), track=side_of(self._opening.parameters))
        elif kind == "ERROR":
            return (events.Notice("carrier_error", f"Asterisk says: {str(fields.get('error_text', ''))[:200]}"),)
        elif kind not in ABOUT_OUR_MEDIA:
            raise BadMessage("unknown_type", "an event of Asterisk's WebSocket channel", kind)
        return ()

    def _start(self, fields: Mapping[str, Any]) -> commands.Start:
        self._require_new()
        stream_sid = call_id("connection_id", fields.get("connection_id"))
        # Before Asterisk 20.18, 22.8 and 23.2 there is no id of the channel.
        sid = call_id("channel_id", fields.get("channel_id", stream_sid))
        parameters = self._opening.parameters
        self._sink.begin(Call(sid, stream_sid, (side_of(parameters),), own_parameters(parameters, (TRACK,))))
        audio = FORMATS.get(str(fields.get("format")))
        if audio is None:
            raise BadStart("format", f"{', '.join(FORMATS)}: the codec c(…) of the dial string", fields.get("format"))
        return self._begin(parameters, audio)


def read_control(text: str) -> tuple[str, Mapping[str, Any]]:
    """The kind and the fields of a control message, in either of its forms.

    Raises:
        BadMessage: it is neither a JSON object with an event, nor a word with fields `name:value`.
    """
    if text.lstrip().startswith("{"):
        fields = read_object(text)
        kind = fields.get("event")
        if not isinstance(kind, str):
            raise BadMessage("bad_message", "an event of Asterisk's WebSocket channel", text)
        return kind, fields
    kind, _, rest = text.strip().partition(" ")
    if not kind:
        raise BadMessage("bad_message", "an event of Asterisk's WebSocket channel", text)
    if kind == "ERROR":
        # Its text is the last field, and has spaces.
        before, _, error_text = rest.partition("error_text:")
        return kind, {**_plain_fields(before), "error_text": error_text}
    return kind, _plain_fields(rest)


def _plain_fields(text: str) -> dict[str, str]:
    fields = (each.partition(":") for each in text.split())
    return {name: value for name, colon, value in fields if colon}
