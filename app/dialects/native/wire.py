"""The native protocol, `tutti.v1`: JSON text to commands, events to JSON text. See docs/protocol.md."""

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from app.dialects.json_text import read_object, write_object
from app.errors import BadMessage, BadStart, SessionError
from app.live.dialect import Read
from app.media.pcm import BYTES_PER_SAMPLE, AudioFormat
from app.session import commands, events
from app.session.effects import Close
from engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

SUBPROTOCOL = "tutti.v1"

ENCODINGS = tuple(BYTES_PER_SAMPLE)
MODES = ("vad", "manual")
TASKS = ("transcribe", "translate")
MAX_PROMPT_CHARS = 10_000
PROMPT_EXPECTED = f"text of at most {MAX_PROMPT_CHARS} characters"
HOTWORDS_EXPECTED = f"a list of at most {MAX_HOTWORDS} texts of 1 to {MAX_HOTWORD_BYTES} bytes"
MAX_FLUSH_ID_CHARS = 200
FLUSH_ID_EXPECTED = f"a string of at most {MAX_FLUSH_ID_CHARS} characters or an integer of at most 64 bits"
# Ten million seconds are four months; times beyond lose their milliseconds.
MAX_FROM_S = 10_000_000
# What is said about unknown keys is bounded, whatever a client sends.
MAX_NOTICES = 20
MAX_KEY_CHARS = 80
# Text messages are short; only audio may be as large as the operator's limit.
MAX_TEXT_CHARS = 65_536


class Native:
    """The protocol as a connection speaks it."""

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def open(self) -> Iterable[Read]:
        return ()

    def read(self, message: str | bytes) -> Iterable[Read]:
        if isinstance(message, bytes):
            return (commands.Audio(message),)
        command, notices = decode(message)
        return (*notices, command)

    def write(self, event: events.Event) -> Iterable[str]:
        # That an utterance has ended is told with its text.
        return () if isinstance(event, events.Endpoint) else (encode(event),)

    def heard(self, until_s: float) -> Iterable[events.Reply]:
        return ()

    def close(self, close: Close) -> Close:
        return close


def decode(text: str) -> tuple[commands.Command, tuple[events.Notice, ...]]:
    """A text frame as a command, and what of it was ignored.

    Raises:
        BadMessage: it cannot be read.
        BadStart: it is a `start` with a value that is wrong.
    """
    message = read_object(text)
    match message.pop("type", None):
        case "start":
            return _start(message), ()
        case "flush":
            fields = _Fields(message, "flush", _bad_field)
            return commands.Flush(fields.take("id", FLUSH_ID_EXPECTED, _is_flush_id)), fields.unknown()
        case "keepalive":
            return commands.Keepalive(), _Fields(message, "keepalive", _bad_field).unknown()
        case "stop":
            return commands.Stop(), _Fields(message, "stop", _bad_field).unknown()
        case other:
            raise BadMessage("unknown_type", "a type of start, flush, keepalive or stop", other)


ControlMessage = (
    events.Started
    | events.SpeechStarted
    | events.Interim
    | events.Segment
    | events.Utterance
    | events.Flushed
    | events.Lag
    | events.Notice
    | events.Failure
    | events.Stopped
)
"""The events that the protocol has a word for."""


def encode(event: ControlMessage) -> str:
    """An event as a text frame."""
    return write_object(_wire(event))


def _start(message: dict[str, Any]) -> commands.Start:
    fields = _Fields(message, "", BadStart)
    audio = fields.nested("audio")
    default = commands.Start()
    audio_format = AudioFormat(
        audio.take("encoding", f"one of {', '.join(ENCODINGS)}", ENCODINGS.__contains__, default.audio.encoding),
        audio.take("sample_rate", "an integer from 8000 to 48000", _integer(8000, 48000), default.audio.sample_rate),
        audio.take("channels", "an integer from 1 to 8", _integer(1, 8), default.audio.channels),
    )
    endpointing, notices = _endpointing(fields.nested("endpointing"))
    resume = _resume(fields)
    hotwords: list[str] = fields.take("hotwords", HOTWORDS_EXPECTED, _are_hotwords, [])
    return commands.Start(
        audio=audio_format,
        language=fields.take("language", "a language code or null", _is_language, default.language),
        task=fields.take("task", "transcribe or translate", TASKS.__contains__, default.task),
        interim=fields.take("interim", "true or false", _is_boolean, default.interim),
        endpointing=endpointing,
        prompt=fields.take("prompt", PROMPT_EXPECTED, _is_prompt, default.prompt),
        hotwords=tuple(hotword.strip() for hotword in hotwords),
        words=fields.take("words", "true or false", _is_boolean, default.words),
        resume=resume,
        notices=(*notices, *fields.unknown()),
    )


def _endpointing(fields: "_Fields") -> tuple[commands.Endpointing, tuple[events.Notice, ...]]:
    default = commands.Endpointing()
    mode = fields.take("mode", f"one of {', '.join(MODES)}", MODES.__contains__, default.mode)
    of_silence = [name for name in ("silence_ms", "min_utterance_s") if fields.has(name)] if mode == "manual" else []
    endpointing = commands.Endpointing(
        mode=mode,
        silence_ms=fields.take("silence_ms", "an integer from 100 to 5000", _integer(100, 5000), default.silence_ms),
        min_utterance_s=float(
            fields.take("min_utterance_s", "a number from 0 to 10", _number(0, 10), default.min_utterance_s)
        ),
        max_utterance_s=float(
            fields.take("max_utterance_s", "a number from 10 to 300", _number(10, 300), default.max_utterance_s)
        ),
    )
    message = "endpointing.{}: has no effect in mode manual, where silence ends no utterance"
    return endpointing, tuple(events.Notice("no_effect", message.format(name)) for name in of_silence)


def _resume(fields: "_Fields") -> commands.Resume | None:
    if fields.is_null("resume"):
        return None
    resume = fields.nested("resume")
    from_s = resume.take("from_s", f"seconds from 0 to {MAX_FROM_S}, or a list of them", _is_from_s)
    times = tuple(map(float, from_s)) if isinstance(from_s, list) else (float(from_s),)
    return commands.Resume(times, resume.take("prompt", PROMPT_EXPECTED, _is_prompt, ""))


def _bad_field(field: str, expected: str, got: object) -> BadMessage:
    return BadMessage("bad_message", f"{expected} as {field}", got)


_REQUIRED = object()


class _Fields:
    """Takes known keys out of a JSON object; what is left over at the end was unknown."""

    def __init__(self, values: dict[str, Any], path: str, error: Callable[[str, str, object], SessionError]) -> None:
        self._values = dict(values)
        self._path = path
        self._error = error
        self._inner: list[_Fields] = []

    def take(self, key: str, expected: str, is_valid: Callable[[Any], bool], default: Any = _REQUIRED) -> Any:
        value = self._values.pop(key, default)
        if value is default and default is not _REQUIRED:
            return default
        if value is _REQUIRED:
            raise self._error(self._name(key), expected, None)
        if not is_valid(value):
            raise self._error(self._name(key), expected, value)
        return value

    def nested(self, key: str) -> "_Fields":
        value = self._values.pop(key, {})
        if not isinstance(value, dict):
            raise self._error(self._name(key), "an object", value)
        inner = _Fields(value, self._name(key), self._error)
        self._inner.append(inner)
        return inner

    def has(self, key: str) -> bool:
        return key in self._values

    def is_null(self, key: str) -> bool:
        if self._values.get(key, None) is None:
            self._values.pop(key, None)
            return True
        return False

    def unknown(self) -> tuple[events.Notice, ...]:
        names = [self._name(key) for key in self._values]
        own = [events.Notice("unknown_key", f"{name[:MAX_KEY_CHARS]}: unknown key; ignored") for name in names]
        return (*own, *(notice for inner in self._inner for notice in inner.unknown()))[:MAX_NOTICES]

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_language(value: object) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _is_prompt(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_PROMPT_CHARS


def _are_hotwords(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_HOTWORDS
        and all(isinstance(item, str) and 1 <= len(item.strip().encode()) <= MAX_HOTWORD_BYTES for item in value)
    )


def _is_flush_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_FLUSH_ID_CHARS
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_from_s(value: object) -> bool:
    is_time = _number(0, MAX_FROM_S)
    return is_time(value) or (isinstance(value, list) and len(value) > 0 and all(map(is_time, value)))


def _integer(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(low: float, high: float) -> Callable[[Any], bool]:
    def is_valid(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

    return is_valid


def _wire(event: ControlMessage) -> dict[str, Any]:
    match event:
        case events.Started(session_id, model, limits, notices):
            return {
                "type": "started",
                "session_id": session_id,
                "model": model,
                "limits": {
                    "max_message_bytes": limits.max_message_bytes,
                    "max_ahead_s": limits.max_ahead_s,
                    "idle_timeout_s": limits.idle_timeout_s,
                    "max_window_s": limits.max_window_s,
                },
                "warnings": [{"code": notice.code, "message": notice.message} for notice in notices],
            }
        case events.SpeechStarted(utterance=utterance, channel=channel, at_s=at_s):
            return {"type": "speech_started", "utterance": utterance, "channel": channel, "at_s": at_s}
        case events.Interim():
            return {
                "type": "interim",
                "utterance": event.utterance,
                "channel": event.channel,
                "start_s": event.start_s,
                "end_s": event.end_s,
                "stable": event.stable,
                "tail": event.tail,
            }
        case events.Segment():
            return {
                "type": "segment",
                "utterance": event.utterance,
                "id": event.id,
                "channel": event.channel,
                "start_s": event.start_s,
                "end_s": event.end_s,
                "text": event.text,
                "words": [
                    {"word": word.text, "start_s": word.start_s, "end_s": word.end_s, "confidence": word.confidence}
                    for word in event.words
                ],
                "confidence": event.confidence,
                "language": event.language,
            }
        case events.Utterance():
            return {
                "type": "utterance",
                "utterance": event.utterance,
                "channel": event.channel,
                "start_s": event.start_s,
                "end_s": event.end_s,
                "text": event.text,
                "uncovered": [list(span) for span in event.uncovered],
                "final_until_s": event.final_until_s,
                "resume_from_s": list(event.resume_from_s),
            }
        case events.Flushed(flush_id):
            return {"type": "flushed", "id": flush_id}
        case events.Lag(behind_s):
            return {"type": "lag", "behind_s": behind_s}
        case events.Notice(code, message):
            return {"type": "warning", "code": code, "message": message}
        case events.Failure(code, message, is_fatal):
            return {"type": "error", "code": code, "message": message, "fatal": is_fatal}
        case events.Stopped(audio_s, speech_s, words):
            return {"type": "stopped", "audio_s": audio_s, "speech_s": speech_s, "words": words}
        case _:
            assert_never(event)
