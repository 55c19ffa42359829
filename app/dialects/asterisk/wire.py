"""Asterisk's WebSocket channel (`chan_websocket`): control messages as text, media as binary messages.

The protocol has no message for a transcript, and text messages to Asterisk are commands of the channel. So the events
of a call go to a `Line` instead.
Source: Asterisk's documentation, "WebSocket" under "Channel Drivers", of both forms of control messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from app.dialects.call_streams.wire import (
    START_TIMEOUT_S,
    TRACK,
    Call,
    Line,
    call_id,
    own_parameters,
    passed_on,
    side_of,
    start_command,
)
from app.dialects.json_text import read_object
from app.dialects.limits import MAX_TEXT_CHARS
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close

SUBPROTOCOL = "media"
"""The subprotocol that Asterisk's documentation has clients configure."""
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


class Asterisk:
    """One WebSocket channel."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, line: Line, parameters: Mapping[str, str]) -> None:
        """Translate for one channel.

        Args:
            line: receives the events of the call.
            parameters: those of the address, which a dial string gives with `v(NAME=VALUE)`.
        """
        self._line = line
        self._parameters = parameters
        self._has_started = False
        self._is_stopped = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before `MEDIA_START`; after it, the operator's setting."""
        return None if self._has_started else START_TIMEOUT_S

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: Asterisk sends `MEDIA_START` first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before `MEDIA_START` is fatal."""
        try:
            return self._media(message) if isinstance(message, bytes) else self._control(message)
        except SessionError as error:
            if not self._has_started and not error.is_fatal:
                raise SessionError(error.code, error.message, CLOSE_POLICY) from error
            raise

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event on the line. Nothing goes to Asterisk itself."""
        self._line.publish(event)
        return ()

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: this dialect never answers."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. Asterisk closes its socket when the channel hangs up."""
        if not self._has_started or self._is_stopped:
            return ()
        self._is_stopped = True
        return (commands.Stop(),)

    def _media(self, data: bytes) -> Iterable[ClientMessage]:
        if not self._has_started:
            raise WrongState("not_started", "media: expected MEDIA_START first", CLOSE_POLICY)
        return (commands.Audio(data),) if data else ()

    def _control(self, text: str) -> Iterable[ClientMessage]:
        kind, fields = read_control(text)
        items: Iterable[ClientMessage] = ()
        if kind == "MEDIA_START":
            items = (self._start(fields),)
        elif not self._has_started:
            raise WrongState("not_started", f"{kind[:40]}: expected MEDIA_START first", CLOSE_POLICY)
        elif kind == "DTMF_END":
            self._line.publish(passed_on("dtmf", digit=fields.get("digit"), track=side_of(self._parameters)))
        elif kind == "ERROR":
            items = (events.Notice("carrier_error", f"Asterisk says: {str(fields.get('error_text', ''))[:200]}"),)
        elif kind not in ABOUT_OUR_MEDIA:
            raise BadMessage("unknown_type", "an event of Asterisk's WebSocket channel", kind)
        return items

    def _start(self, fields: Mapping[str, Any]) -> commands.Start:
        if self._has_started:
            raise WrongState("already_started", "MEDIA_START: the stream has started already")
        stream_sid = call_id("connection_id", fields.get("connection_id"))
        # Before Asterisk 20.18, 22.8 and 23.2 there is no id of the channel.
        sid = call_id("channel_id", fields.get("channel_id", stream_sid))
        side = side_of(self._parameters)
        self._line.begin(Call(sid, stream_sid, (side,), own_parameters(self._parameters, (TRACK,))))
        audio = FORMATS.get(str(fields.get("format")))
        if audio is None:
            raise BadStart("format", f"{', '.join(FORMATS)}: the codec c(…) of the dial string", fields.get("format"))
        command = start_command(self._parameters, audio)
        self._has_started = True
        return command


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
