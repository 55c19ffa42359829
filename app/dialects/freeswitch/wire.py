"""FreeSWITCH's audio streams: 16-bit linear audio as binary messages, text of the dial plan, events as JSON.

`mod_audio_stream` passes every text that it receives on as the event `mod_audio_stream::json`. `mod_audio_fork`, which
offers the subprotocol `audio.drachtio.org`, knows types of messages: ours are `transcription` and `error`.
Source: the README of amigniter/mod_audio_stream and of drachtio's mod_audio_fork.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.dialects.call_streams.wire import (
    MAX_PARAMETER_CHARS,
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
from app.dialects.checks import is_boolean, understood
from app.dialects.json_text import read_object
from app.dialects.limits import MAX_TEXT_CHARS
from app.errors import CLOSE_POLICY, BadMessage, BadStart, SessionError
from app.live.dialect import ClientMessage
from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Close

FORK_SUBPROTOCOL = "audio.drachtio.org"
"""The subprotocol that `mod_audio_fork` offers, and `mod_audio_stream` does not."""
TRACKS = {"mono": ("inbound",), "mixed": ("mixed",), "stereo": ("inbound", "outbound")}
"""The channels of each `mix-type` of the module. The caller's comes first."""
RATES = {"8k": 8000, "16k": 16_000, "8000": 8000, "16000": 16_000, "24000": 24_000, "32000": 32_000, "48000": 48_000}
"""What the parameter `rate` may be: the `sampling-rate` of the module."""
KNOWN = ("call", "mix", "rate", "answers")
"""Parameters that this dialect interprets."""

WriteEvent = Callable[[events.Event], Iterable[str]]
"""Writes an event as JSON texts."""


class FreeSwitch:
    """One audio stream."""

    max_text_chars = MAX_TEXT_CHARS

    def __init__(
        self, line: Line, parameters: Mapping[str, str], write_event: WriteEvent, *, stream_sid: str, is_fork: bool
    ) -> None:
        """Translate for one stream.

        Args:
            line: receives the events of the call.
            parameters: those of the address.
            write_event: writes the events that FreeSWITCH receives.
            stream_sid: the id of the stream, and of the call if the address has none.
            is_fork: whether the module is `mod_audio_fork`.
        """
        self._line = line
        self._parameters = dict(parameters)
        self._write_event = write_event
        self._stream_sid = stream_sid
        self._is_fork = is_fork
        self._answers: Any = understood(given(parameters, "answers", "true"), is_boolean)
        """Whether events are written for FreeSWITCH."""
        self._has_started = False
        self._is_stopped = False

    @property
    def idle_timeout_s(self) -> float | None:
        """A short time before the first message; after it, the operator's setting."""
        return None if self._has_started else START_TIMEOUT_S

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: the first message may be text that describes the call."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate a message. The first one starts the session; every error before that is fatal."""
        if isinstance(message, bytes):
            start = self._start({})
            return (*start, commands.Audio(message)) if message else start
        if not self._has_started:
            return self._start(read_metadata(message))
        self._line.publish(passed_on("text", text=message))
        return ()

    def write(self, event: events.Event) -> Iterable[str]:
        """Publish the event on the line, and write it for FreeSWITCH."""
        self._line.publish(event)
        if not self._answers:
            return ()
        texts = self._write_event(event)
        if not self._is_fork:
            return texts
        kind = "error" if isinstance(event, events.Failure) else "transcription"
        return tuple(f'{{"type":"{kind}","data":{text}}}' for text in texts)

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """Nothing: audio is not acknowledged."""
        return ()

    def close(self, close: Close) -> Close:
        """The session's own close code and reason; the module shows both in its event `disconnect`."""
        return close

    def leave(self) -> Iterable[ClientMessage]:
        """End the stream: all audio up to here becomes final. The module closes the socket without another message."""
        if not self._has_started or self._is_stopped:
            return ()
        self._is_stopped = True
        return (commands.Stop(),)

    def _start(self, metadata: Mapping[str, str]) -> tuple[ClientMessage, ...]:
        """The start of the session, if it has not started yet."""
        if self._has_started:
            return ()
        parameters = self._parameters = merged(metadata, self._parameters)
        tracks = TRACKS.get(given(parameters, "mix", "mono"))
        rate = RATES.get(given(parameters, "rate", "8k"))
        sid = call_id("call", given(parameters, "call", self._stream_sid))
        self._line.begin(Call(sid, self._stream_sid, tracks or (), own_parameters(parameters, KNOWN)))
        if tracks is None:
            raise BadStart("mix", ", ".join(TRACKS), parameters["mix"])
        if rate is None:
            raise BadStart("rate", ", ".join(RATES), parameters["rate"])
        self._answers = understood(given(parameters, "answers", "true"), is_boolean)
        if not is_boolean(self._answers):
            raise BadStart("answers", "true or false", parameters["answers"])
        command = start_command(parameters, AudioFormat("pcm_s16le", rate, len(tracks)))
        self._has_started = True
        return (command,)


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
