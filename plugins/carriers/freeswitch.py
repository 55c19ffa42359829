"""FreeSWITCH's audio streams: 16-bit linear audio as binary messages, text of the dial plan, events as JSON.

`mod_audio_stream` passes every text that it receives on as the event `mod_audio_stream::json`. `mod_audio_fork`, which
offers the subprotocol `audio.drachtio.org`, knows types of messages: ours are `transcription` and `error`.
Source: the README of amigniter/mod_audio_stream and of drachtio's mod_audio_fork.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tutti_server.app.dialects.call_streams.call_stream import CallStream, Opening
from tutti_server.app.dialects.call_streams.wire import (
    MAX_PARAMETER_CHARS,
    Call,
    CallSink,
    call_id,
    given,
    merged,
    own_parameters,
)
from tutti_server.app.dialects.checks import is_boolean, understood
from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events

TRACKS = {"mono": ("inbound",), "mixed": ("mixed",), "stereo": ("inbound", "outbound")}
"""The channels of each `mix-type` of the module. The caller's comes first."""
RATES = {"8k": 8000, "16k": 16_000, "8000": 8000, "16000": 16_000, "24000": 24_000, "32000": 32_000, "48000": 48_000}
"""What the parameter `rate` may be: the `sampling-rate` of the module."""
KNOWN = ("call", "mix", "rate", "answers")
"""Parameters that this dialect interprets."""


class FreeSwitch(CallStream):
    """One audio stream. Its first message starts the session."""

    SUBPROTOCOL = "audio.drachtio.org"
    """The subprotocol that `mod_audio_fork` offers, and `mod_audio_stream` does not."""

    def __init__(self, sink: CallSink, opening: Opening) -> None:
        super().__init__(sink, opening)
        self._answers: Any = understood(given(opening.parameters, "answers", "true"), is_boolean)
        """Whether events are written for FreeSWITCH."""

    def _audio(self, data: bytes) -> Iterable[ClientMessage]:
        start = self._start({})
        return (*start, commands.Audio(data)) if data else start

    def _text(self, text: str) -> Iterable[ClientMessage]:
        if not self._has_started:
            return self._start(read_metadata(text))
        self._pass_on("text", text=text)
        return ()

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event, and write it for FreeSWITCH."""
        self._sink.publish(event)
        if not self._answers:
            return ()
        texts = tuple(self._opening.write_event(event))
        if self._opening.subprotocol is None:
            return texts
        kind = "error" if isinstance(event, events.Failure) else "transcription"
        return tuple(f'{{"type":"{kind}","data":{text}}}' for text in texts)

    def _start(self, metadata: Mapping[str, str]) -> tuple[ClientMessage, ...]:
        """The start of the session, if it has not started yet."""
        if self._has_started:
            return ()
        request = self._opening.request
        parameters = merged(metadata, self._opening.parameters)
        tracks = TRACKS.get(given(parameters, "mix", "mono"))
        rate = RATES.get(given(parameters, "rate", "8k"))
        sid = call_id("call", given(parameters, "call", request))
        self._sink.begin(Call(sid, request, tracks or (), own_parameters(parameters, KNOWN)))
        if tracks is None:
            raise BadStart("mix", ", ".join(TRACKS), parameters["mix"])
        if rate is None:
            raise BadStart("rate", ", ".join(RATES), parameters["rate"])
        self._answers = understood(given(parameters, "answers", "true"), is_boolean)
        if not is_boolean(self._answers):
            raise BadStart("answers", "true or false", parameters["answers"])
        return (self._begin(parameters, AudioFormat("pcm_s16le", rate, len(tracks))),)


def read_metadata(text: str) -> dict[str, str]:
    """The parameters in the first text of a stream: the fields of a JSON object, or the text itself as `metadata`.

    Raises:
        SessionError: the text is too long, or not readable as JSON although it begins like an object.
    """
    if not text.lstrip().startswith("{"):
        if len(text) > MAX_PARAMETER_CHARS:
            raise BadStart("metadata", f"at most {MAX_PARAMETER_CHARS} characters, or a JSON object", text)
        return {"metadata": text} if text.strip() else {}
    try:
        fields = read_object(text)
    except BadMessage as error:
        raise SessionError(error.code, f"metadata: {error.message}", CLOSE_POLICY) from error
    return {name: _parameter(name, value) for name, value in fields.items()}


def _parameter(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case None:
            return ""
        case _:
            raise BadStart(f"metadata.{name}", "text, a number, true, false or null", value)
