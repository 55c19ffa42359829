"""Vonage's WebSocket endpoints: 16-bit linear audio of one call leg as binary messages, and events as JSON.

Vonage plays what it receives here to the caller and ignores other text, so the events of a call go to a `CallSink`.
Source: Vonage's documentation, "WebSockets in the Vonage Voice API".
"""

import re
from collections.abc import Iterable
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.wire import Call, call_id, given, merged, own_parameters, parameters_in
from tutti_server.app.errors import BadMessage, BadStart
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands

RATES = (8000, 16_000, 24_000)
"""The sample rates that Vonage offers, in Hz."""
CONTENT_TYPE = re.compile(r"audio/l16;\s*rate=(\d{4,5})")
TRACK = "mixed"
"""The one channel: all that Vonage plays to this end of the conversation."""
PASSED_ON = {"websocket:dtmf": "dtmf", "websocket:cleared": "cleared", "websocket:notify": "notify"}
"""Events that subscribers receive, with our names for them."""
KNOWN = ("event", "content-type", "call")
"""Fields of the first message that this dialect interprets."""


class Vonage(CallStream):
    """One WebSocket of a call."""

    START = "websocket:connected"

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        kind = fields.get("event")
        if kind == self.START:
            return (self._start(fields),)
        if not isinstance(kind, str) or kind not in PASSED_ON:
            raise BadMessage("unknown_type", f"an event of {', '.join((self.START, *PASSED_ON))}", kind)
        self._require_start(kind)
        own = {name: value for name, value in fields.items() if name not in ("event", "type")}
        self._pass_on(PASSED_ON[kind], **own)
        return ()

    def _start(self, fields: dict[str, Any]) -> commands.Start:
        self._require_new()
        content_type = fields.get("content-type")
        found = CONTENT_TYPE.fullmatch(content_type) if isinstance(content_type, str) else None
        others = {name: value for name, value in fields.items() if name not in ("event", "content-type")}
        headers = parameters_in("headers", others)
        parameters = merged(headers, self._opening.parameters)
        sid = call_id("call", given(parameters, "call", self._opening.request))
        self._sink.begin(Call(sid, self._opening.request, (TRACK,), own_parameters(parameters, KNOWN)))
        if found is None or int(found[1]) not in RATES:
            expected = f"audio/l16;rate= and one of {', '.join(map(str, RATES))}"
            raise BadStart("content-type", expected, content_type)
        return self._begin(parameters, AudioFormat("pcm_s16le", int(found[1]), 1))
