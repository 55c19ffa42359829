"""Vonage's WebSocket endpoints: 16-bit linear audio of one call leg as binary messages, and events as JSON.

Vonage plays what it receives here to the caller and ignores other text, so the events of a call go to a `Line`.
Source: Vonage's documentation, "WebSockets in the Vonage Voice API".
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from app.dialects.call_streams.wire import (
    START_TIMEOUT_S,
    Call,
    Line,
    call_id,
    given,
    merged,
    own_parameters,
    passed_on,
    start_command,
)
from app.dialects.json_text import read_object
from app.dialects.limits import MAX_TEXT_CHARS
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError, WrongState
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close

RATES = (8000, 16_000, 24_000)
"""The sample rates that Vonage offers, in Hz."""
CONTENT_TYPE = re.compile(r"audio/l16;\s*rate=(\d{4,5})")
TRACK = "mixed"
"""The one channel: all that Vonage plays to this end of the conversation."""
CONNECTED = "websocket:connected"
PASSED_ON = {"websocket:dtmf": "dtmf", "websocket:cleared": "cleared", "websocket:notify": "notify"}
"""Events that subscribers receive, with our names for them."""
KNOWN = ("event", "content-type", "call")
"""Fields of the first message that this dialect interprets."""


class Vonage:
    """One WebSocket of a call."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, line: Line, parameters: Mapping[str, str], *, stream_sid: str) -> None:
        """Translate for one stream.

        Args:
            line: receives the events of the call.
            parameters: those of the address. They win over the headers that the call's NCCO names.
            stream_sid: the id of the stream, and of the call if nothing else names it.
        """
        self._line = line
        self._parameters = dict(parameters)
        self._stream_sid = stream_sid
        self._has_started = False
        self._is_stopped = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before the first message; after it, the operator's setting."""
        return None if self._has_started else START_TIMEOUT_S

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: Vonage describes the audio first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. Every error before `websocket:connected` is fatal."""
        if isinstance(message, bytes):
            if not self._has_started:
                raise WrongState("not_started", f"audio: expected {CONNECTED} first", CLOSE_POLICY)
            return (commands.Audio(message),) if message else ()
        try:
            return self._read(read_object(message))
        except SessionError as error:
            if self._has_started or error.is_fatal:
                raise
            raise SessionError(error.code, error.message, CLOSE_POLICY) from error

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event on the line. Nothing goes to Vonage itself."""
        self._line.publish(event)
        return ()

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: this dialect never answers."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. Vonage closes the socket without another message."""
        if not self._has_started or self._is_stopped:
            return ()
        self._is_stopped = True
        return (commands.Stop(),)

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        kind = fields.get("event")
        if kind == CONNECTED:
            return (self._start(fields),)
        if not isinstance(kind, str) or kind not in PASSED_ON:
            raise BadMessage("unknown_type", f"an event of {', '.join((CONNECTED, *PASSED_ON))}", kind)
        if not self._has_started:
            raise WrongState("not_started", f"{kind}: expected {CONNECTED} first", CLOSE_POLICY)
        own = {name: value for name, value in fields.items() if name not in ("event", "type")}
        self._line.publish(passed_on(PASSED_ON[kind], **own))
        return ()

    def _start(self, fields: dict[str, Any]) -> commands.Start:
        if self._has_started:
            raise WrongState("already_started", f"{CONNECTED}: the call has started already")
        content_type = fields.get("content-type")
        found = CONTENT_TYPE.fullmatch(content_type) if isinstance(content_type, str) else None
        headers = {name: value for name, value in fields.items() if name not in ("event", "content-type")}
        if not all(isinstance(value, str) for value in headers.values()):
            raise BadStart("headers", "values of text", headers)
        parameters = merged(headers, self._parameters)
        sid = call_id("call", given(parameters, "call", self._stream_sid))
        self._line.begin(Call(sid, self._stream_sid, (TRACK,), own_parameters(parameters, KNOWN)))
        if found is None or int(found[1]) not in RATES:
            expected = f"audio/l16;rate= and one of {', '.join(map(str, RATES))}"
            raise BadStart("content-type", expected, content_type)
        command = start_command(parameters, AudioFormat("pcm_s16le", int(found[1]), 1))
        self._has_started = True
        return command
