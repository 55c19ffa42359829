"""The native protocol, `tutti.v1`: JSON text to commands, events to JSON text. See docs/protocol.md."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, assert_never, get_args

from tutti_server.app.dialects.checks import (
    HOTWORDS_EXPECTED,
    are_hotwords,
    integer_from,
    is_boolean,
    is_integer,
    number_from,
    text_up_to,
    understood,
)
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.dialects.limits import (
    MAX_NAME_CHARS,
    MAX_NOTICES,
    MAX_PADDING_MS,
    MAX_PROMPT_CHARS,
    MAX_SILENCE_MS,
    MAX_TEXT_CHARS,
    MIN_SILENCE_MS,
)
from tutti_server.app.dialects.native import speakers_wire as speakers
from tutti_server.app.dialects.text_rules import parse_text_rules
from tutti_server.app.errors import BadMessage, BadStart, SessionError
from tutti_server.app.languages import LOCK
from tutti_server.app.live.dialect import ClientMessage, Preparation
from tutti_server.app.media.pcm import BYTES_PER_SAMPLE, AudioFormat
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api

SUBPROTOCOL = "tutti.v1"

ENCODINGS = tuple(BYTES_PER_SAMPLE)
MODES = get_args(commands.EndpointingMode)
TASKS = get_args(api.Task)
BEAM_SIZE_EXPECTED = f"an integer from 1 to {api.MAX_BEAM_SIZE}, or null"
PROMPT_EXPECTED = f"text of at most {MAX_PROMPT_CHARS} characters"
MAX_FLUSH_ID_CHARS = 200
FLUSH_ID_EXPECTED = f"a string of at most {MAX_FLUSH_ID_CHARS} characters or an integer of at most 64 bits"
MAX_LANGUAGES = 128
"""The most languages that a client may name. Whisper knows 100."""
EAGER_CONFIDENCE = 0.4
"""With `turns`, a pause is reported from this confidence on that the speaker has finished, unless the client names one.

Low enough that most turns are reported before they end. The client learns it when the speaker goes on after all.
"""
TURN_OPTIONS = ("min_silence_ms", "max_silence_ms", "end_confidence")
"""The options of endpointing that have an effect in mode adaptive only."""
MAX_UNTRANSLATED = 64
"""The most pieces of earlier text that a client may have translated."""
MAX_NUMBER = 2**53 - 1
"""The highest number of an utterance: JavaScript counts no further."""
MAX_FROM_S = 10_000_000
"""The latest time at which a session may resume, in seconds: four months. Later times lose their milliseconds."""


ROOM_NAME = re.compile(r"[A-Za-z0-9_-]{3,64}", re.ASCII)
ROOM_NAME_EXPECTED = "3 to 64 of A-Z, a-z, 0-9, _ and -"
ROOM_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)
ROOM_TOKEN_EXPECTED = "the token of an earlier `started.room`"
MAX_TITLE_CHARS = 200


class Publisher(Protocol):
    """Publishes the session of one connection in a room."""

    async def open(self, start: commands.Start) -> None:
        """Open the room that the client wants.

        Raises:
            SessionError: the client may not, the room belongs to another owner, or there is no room for one more.
        """
        ...

    def begin(self) -> dict[str, str] | None:
        """Publish what comes from now on. Returns the fields of `started.room`; `None` if no room is open."""
        ...

    def publish(self, event: events.Event, message: str) -> None:
        """Publish an event, which the client is sent as this message, if a room is open."""
        ...

    def notices(self) -> Iterable[events.Notice]:
        """What the client must know of its room now. Each notice is returned once."""
        ...


class Native:
    """The native protocol on one connection."""

    idle_timeout_s = None
    max_text_chars = MAX_TEXT_CHARS

    def __init__(self, publisher: Publisher) -> None:
        """Begin without `turn` messages; the client asks for them in `start`.

        Args:
            publisher: opens the room that the client wants, and publishes the session there.
        """
        self._publisher = publisher
        self._sends_turns: bool | None = None
        """Whether the client asked for `turn` messages; `None` before its `start`."""
        self._channel_names: tuple[str, ...] = ()

    def open(self) -> Iterable[ClientMessage]:
        """Nothing: the client sends `start` first."""
        return ()

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """A binary message is audio; a text message is a command, preceded by notices about ignored keys."""
        if isinstance(message, bytes):
            return (commands.Audio(message),)
        command, notices = decode(message)
        if not isinstance(command, commands.Start) or self._sends_turns is not None:
            return (*notices, command)
        self._sends_turns = command.endpointing.eager_confidence is not None
        self._channel_names = command.channel_names
        opening = [Preparation(partial(self._publisher.open, command))] if command.room else []
        return (*notices, *opening, command)

    def write(self, event: events.Event) -> Iterable[str]:
        """One message for each event; those about turns have one only if the client asked for them."""
        if isinstance(event, TurnEvent) and self._sends_turns:
            return (write_object(_turn(event)),)
        if isinstance(event, events.Started) and (room := self._publisher.begin()) is not None:
            return (write_object(_started(event) | {"room": room}),)
        written = messages(event, self._channel_names)
        for message in written:
            self._publisher.publish(event, message)
        return written

    def audio_received(self, until_s: float) -> Iterable[events.Reply]:
        """What the client of a room must know of it: while it speaks, it learns that within a moment."""
        return [events.Reply(text) for notice in self._publisher.notices() for text in messages(notice)]

    def close(self, close: Close) -> Close:
        """The session's own close code and reason."""
        return close


TurnEvent = events.EagerEnd | events.SpeechResumed | events.Endpoint
"""The events that become `turn` messages."""

ControlMessage = (
    events.Started
    | events.SpeechStarted
    | events.Interim
    | events.Segment
    | events.Utterance
    | events.Translation
    | events.Speakers
    | events.Flushed
    | events.Lag
    | events.Notice
    | events.Failure
    | events.Stopped
)
"""The events that every client gets a message for."""


def messages(
    event: events.Event | events.Reply | events.LateReply, channel_names: Sequence[str] = ()
) -> tuple[str, ...]:
    """An event as text messages: one, or none for what a client must ask for. A dialect makes its replies itself.

    `channel_names` are those of the channels, if they have any: text then names its speaker.
    """
    match event:
        case events.Endpoint() | events.EagerEnd() | events.SpeechResumed():
            return ()
        case events.Reply(text):
            return (text,)
        case events.LateReply(make):
            return tuple(make())
        case _:
            return (encode(event, channel_names),)


# Client messages.


def decode(text: str) -> tuple[commands.Command, tuple[events.Notice, ...]]:
    """Parse a text message into a command, and notices about the keys that were ignored.

    Raises:
        BadMessage: the message cannot be parsed.
        BadStart: the message is a `start` with a wrong value.
    """
    message = read_object(text)
    match message.pop("type", None):
        case "start":
            return _start(message), ()
        case "flush":
            fields = _Fields(message, "flush", _bad_field)
            return commands.Flush(fields.pop("id", FLUSH_ID_EXPECTED, _is_flush_id)), fields.unknown()
        case "keepalive":
            return commands.Keepalive(), _Fields(message, "keepalive", _bad_field).unknown()
        case "stop":
            return commands.Stop(), _Fields(message, "stop", _bad_field).unknown()
        case other:
            raise BadMessage("unknown_type", "a type of start, flush, keepalive or stop", other)


def _start(message: dict[str, Any]) -> commands.Start:
    fields = _Fields(message, "", BadStart)
    audio = fields.nested("audio")
    default = commands.Start()
    audio_format = AudioFormat(
        audio.pop("encoding", f"one of {', '.join(ENCODINGS)}", ENCODINGS.__contains__, default.audio.encoding),
        audio.pop("sample_rate", "an integer from 8000 to 48000", integer_from(8000, 48000), default.audio.sample_rate),
        audio.pop("channels", "an integer from 1 to 8", integer_from(1, 8), default.audio.channels),
    )
    wants_turns = fields.pop("turns", "true or false", is_boolean, False)
    endpointing, notices = _endpointing(fields.nested("endpointing"), wants_turns)
    resume = _resume(fields)
    room = _room(fields)
    max_speakers = speakers.parse_max(fields)
    channel_names = speakers.parse_channel_names(fields, audio_format.channels)
    speakers.require_one_kind(max_speakers, channel_names)
    hotwords: list[str] = fields.pop("hotwords", HOTWORDS_EXPECTED, are_hotwords, [])
    language = fields.pop("language", f"a language code, {LOCK} or null", _is_language, default.language)
    return commands.Start(
        audio=audio_format,
        model=fields.pop("model", f"text of at most {MAX_NAME_CHARS} characters", text_up_to(MAX_NAME_CHARS), None),
        language=None if language == LOCK else language,
        languages=tuple(fields.pop("languages", "a list of language codes", _are_languages, [])),
        locks_language=language == LOCK,
        translate=tuple(fields.pop("translate", "a list of language codes", _are_languages, [])),
        task=fields.pop("task", "transcribe or translate", TASKS.__contains__, default.task),
        interim=fields.pop("interim", "true or false", is_boolean, default.interim),
        endpointing=endpointing,
        prompt=fields.pop("prompt", PROMPT_EXPECTED, text_up_to(MAX_PROMPT_CHARS), default.prompt),
        hotwords=tuple(hotword.strip() for hotword in hotwords),
        beam_size=fields.pop("beam_size", BEAM_SIZE_EXPECTED, _is_beam_size, default.beam_size),
        words=fields.pop("words", "true or false", is_boolean, default.words),
        interim_words=fields.pop("interim_words", "true or false", is_boolean, default.interim_words),
        resume=resume,
        resumes=fields.pop("resumes", "true or false", is_boolean, default.resumes),
        room=room,
        max_speakers=max_speakers,
        channel_names=channel_names,
        text_rules=parse_text_rules(fields.object("text_rules"), BadStart),
        notices=(*notices, *fields.unknown()),
    )


def _endpointing(fields: "_Fields", wants_turns: bool) -> tuple[commands.Endpointing, tuple[events.Notice, ...]]:
    """The endpointing of a `start`, and notices about options that have no effect.

    Args:
        fields: the object `endpointing`.
        wants_turns: whether the client asked for `turn` messages.
    """
    default = commands.Endpointing()
    # A client that chooses a silence and no mode means a silence that is always the same.
    usual = default.mode if any(map(fields.has, ("silence_ms", *TURN_OPTIONS))) else None
    mode = fields.pop("mode", f"one of {', '.join(MODES)}", MODES.__contains__, usual)
    notices = _without_effect(fields, mode, wants_turns)
    minimum = fields.pop("min_utterance_s", "a number from 0 to 10", number_from(0, 10), default.min_utterance_s)
    maximum = fields.pop("max_utterance_s", "a number from 10 to 300", number_from(10, 300), default.max_utterance_s)
    padding_expected = f"an integer from 0 to {MAX_PADDING_MS}"
    eager_confidence = fields.confidence("eager_confidence", EAGER_CONFIDENCE)
    endpointing = commands.Endpointing(
        mode=mode,
        silence_ms=fields.silence("silence_ms", default.silence_ms),
        min_silence_ms=fields.silence("min_silence_ms", default.min_silence_ms),
        max_silence_ms=fields.silence("max_silence_ms", default.max_silence_ms),
        end_confidence=fields.confidence("end_confidence", default.end_confidence),
        eager_confidence=eager_confidence if wants_turns else None,
        min_utterance_s=float(minimum),
        max_utterance_s=float(maximum),
        padding_ms=fields.pop("padding_ms", padding_expected, integer_from(0, MAX_PADDING_MS), default.padding_ms),
        threshold=fields.pop("threshold", "a number from 0 to 1", number_from(0, 1), default.threshold),
    )
    if mode == "adaptive" and endpointing.min_silence_ms > endpointing.max_silence_ms:
        expected = f"at most max_silence_ms, {endpointing.max_silence_ms}"
        raise BadStart("endpointing.min_silence_ms", expected, endpointing.min_silence_ms)
    return endpointing, notices


def _without_effect(fields: "_Fields", mode: str | None, wants_turns: bool) -> tuple[events.Notice, ...]:
    """Notices about options of endpointing that have no effect."""
    reasons: dict[str, str] = {}
    if mode == "manual":
        silences = ("silence_ms", "min_utterance_s", "eager_confidence")
        reasons |= dict.fromkeys(silences, "in mode manual, where silence ends no utterance")
        reasons["padding_ms"] = "in mode manual, where an utterance begins with the first audio"
    if mode != "adaptive":
        reasons |= dict.fromkeys(TURN_OPTIONS, f"in mode {mode}; it belongs to mode adaptive")
    if not wants_turns:
        reasons["eager_confidence"] = "without turns"
    message = "endpointing.{}: has no effect {}"
    return tuple(
        events.Notice("no_effect", message.format(name, why)) for name, why in reasons.items() if fields.has(name)
    )


def _resume(fields: "_Fields") -> commands.Resume | None:
    if fields.pop_null("resume"):
        return None
    resume = fields.nested("resume")
    from_s = resume.pop("from_s", f"seconds from 0 to {MAX_FROM_S}, or a list of them", _is_from_s)
    times = tuple(map(float, from_s)) if isinstance(from_s, list) else (float(from_s),)
    audio_from_s = resume.pop("audio_from_s", f"seconds from 0 to {MAX_FROM_S}", number_from(0, MAX_FROM_S), None)
    detector_expected = f"a list of seconds from 0 to {MAX_FROM_S} or null"
    detector_from_s = resume.pop("detector_from_s", detector_expected, _is_detector_from_s, [])
    language = resume.pop("language", "a language code or null, or a list of them", _is_language_before, None)
    return commands.Resume(
        times,
        resume.pop("prompt", PROMPT_EXPECTED, text_up_to(MAX_PROMPT_CHARS), ""),
        None if audio_from_s is None else float(audio_from_s),
        tuple(None if time_s is None else float(time_s) for time_s in detector_from_s),
        language=tuple(language) if isinstance(language, list) else (language,) if language else (),
        untranslated=tuple(map(_untranslated, resume.objects("untranslated", MAX_UNTRANSLATED))),
        voices=speakers.parse_voices(resume),
    )


def _untranslated(fields: "_Fields") -> commands.Untranslated:
    number_expected = "an integer from 0 on"
    time_expected, is_time = f"seconds from 0 to {MAX_FROM_S}", number_from(0, MAX_FROM_S)
    return commands.Untranslated(
        utterance=fields.pop("utterance", number_expected, integer_from(0, MAX_NUMBER)),
        channel=fields.pop("channel", number_expected, integer_from(0, MAX_NUMBER)),
        start_s=float(fields.pop("start_s", time_expected, is_time)),
        end_s=float(fields.pop("end_s", time_expected, is_time)),
        text=fields.pop("text", PROMPT_EXPECTED, text_up_to(MAX_PROMPT_CHARS)),
        language=fields.pop("language", "a language code or null", _is_language, None),
        targets=tuple(dict.fromkeys(fields.pop("targets", "a list of language codes", _are_languages))),
    )


def _room(fields: "_Fields") -> commands.RoomRequest | None:
    if fields.pop_null("room"):
        return None
    room = fields.nested("room")
    name: str | None = room.pop("name", ROOM_NAME_EXPECTED, _matches(ROOM_NAME), None)
    token: str | None = room.pop("token", ROOM_TOKEN_EXPECTED, _matches(ROOM_TOKEN), None)
    if token and not name:
        raise BadStart("room.name", "the name of the room beside its token", None)
    title_expected = f"text of at most {MAX_TITLE_CHARS} characters"
    return commands.RoomRequest(
        name=name, token=token, title=room.pop("title", title_expected, text_up_to(MAX_TITLE_CHARS), "")
    )


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _bad_field(field: str, expected: str, got: object) -> BadMessage:
    return BadMessage("bad_message", f"{expected} as {field}", got)


_REQUIRED = object()


class _Fields:
    """A JSON object whose known keys are popped one by one. The keys that remain at the end are unknown."""

    def __init__(self, values: dict[str, Any], path: str, error: Callable[[str, str, object], SessionError]) -> None:
        self._values = dict(values)
        self._path = path
        self._error = error
        self._nested: list[_Fields] = []

    def pop(self, key: str, expected: str, is_valid: Callable[[Any], bool], default: Any = _REQUIRED) -> Any:
        """Remove a key and return its value, or the default if it is absent.

        Args:
            expected: describes valid values, for the error.
            is_valid: whether the value is valid. A text may spell a boolean or a number.
            default: without one, the key is required. An empty text that is not valid stands for it, too.
        """
        value = self._values.pop(key, default)
        if value is default and default is not _REQUIRED:
            return default
        if value is _REQUIRED:
            raise self._error(self._name(key), expected, None)
        value = understood(value, is_valid)
        if value == "" and default is not _REQUIRED and not is_valid(value):
            return default
        if not is_valid(value):
            raise self._error(self._name(key), expected, value)
        return value

    def silence(self, key: str, default: int) -> int:
        """Remove a key and return its value, a length of silence in milliseconds, or the default if it is absent."""
        expected = f"an integer from {MIN_SILENCE_MS} to {MAX_SILENCE_MS}"
        silence_ms: int = self.pop(key, expected, integer_from(MIN_SILENCE_MS, MAX_SILENCE_MS), default)
        return silence_ms

    def confidence(self, key: str, default: float) -> float:
        """Remove a key and return its value, a number from 0 to 1, or the default if it is absent."""
        return float(self.pop(key, "a number from 0 to 1", number_from(0, 1), default))

    def object(self, key: str) -> dict[str, Any]:
        """Remove a key whose value is an object and return the value; an empty object if the key is absent."""
        value = self._values.pop(key, {})
        if not isinstance(value, dict):
            raise self._error(self._name(key), "an object", value)
        return value

    def nested(self, key: str) -> "_Fields":
        """As `object`; the keys that are not popped are unknown, too."""
        nested = _Fields(self.object(key), self._name(key), self._error)
        self._nested.append(nested)
        return nested

    def objects(self, key: str, at_most: int) -> list["_Fields"]:
        """Remove a key whose value is a list of objects and return them; none if the key is absent."""
        values = self._values.pop(key, [])
        if not isinstance(values, list) or len(values) > at_most or not all(isinstance(each, dict) for each in values):
            raise self._error(self._name(key), f"a list of at most {at_most} objects", values)
        nested = [_Fields(each, f"{self._name(key)}[{index}]", self._error) for index, each in enumerate(values)]
        self._nested += nested
        return nested

    def has(self, key: str) -> bool:
        """Whether a key is present and was not popped."""
        return key in self._values

    def pop_null(self, key: str) -> bool:
        """Whether a key is absent or `null`; a `null` is removed."""
        if self._values.get(key) is not None:
            return False
        self._values.pop(key, None)
        return True

    def unknown(self) -> tuple[events.Notice, ...]:
        """A notice for each key that was not popped, here and in nested objects."""
        names = [self._name(key) for key in self._values]
        own = [events.Notice("unknown_key", f"{name[:MAX_NAME_CHARS]}: unknown key; ignored") for name in names]
        return (*own, *(notice for nested in self._nested for notice in nested.unknown()))[:MAX_NOTICES]

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _is_beam_size(value: object) -> bool:
    return value is None or integer_from(1, api.MAX_BEAM_SIZE)(value)


def _is_language(value: object) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _are_languages(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) <= MAX_LANGUAGES and all(each and _is_language(each) for each in value)
    )


def _is_language_before(value: object) -> bool:
    return _is_language(value) or (isinstance(value, list) and len(value) > 0 and all(map(_is_language, value)))


def _is_flush_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_FLUSH_ID_CHARS
    return isinstance(value, int) and is_integer(value) and -(2**63) <= value < 2**63


def _is_from_s(value: object) -> bool:
    is_time = number_from(0, MAX_FROM_S)
    return is_time(value) or (isinstance(value, list) and len(value) > 0 and all(map(is_time, value)))


def _is_detector_from_s(value: object) -> bool:
    is_time = number_from(0, MAX_FROM_S)
    return isinstance(value, list) and all(time_s is None or is_time(time_s) for time_s in value)


# Server messages.


def encode(event: ControlMessage, channel_names: Sequence[str] = ()) -> str:
    """Write an event as a text message; `channel_names` as for `messages`."""
    if isinstance(event, events.Interim | events.Segment | events.Utterance):
        return write_object(speakers.named(_text(event), channel_names))
    match event:
        case events.Started():
            message = _started(event)
        case events.SpeechStarted(utterance=number, channel=channel, at_s=at_s):
            message = {"type": "speech_started", "utterance": number, "channel": channel, "at_s": at_s}
        case events.Translation():
            message = _translation(event)
        case events.Speakers():
            message = speakers.changed(event)
        case events.Flushed(flush_id):
            message = {"type": "flushed", "id": flush_id}
        case events.Lag(behind_s):
            message = {"type": "lag", "behind_s": behind_s}
        case events.Notice(code, text):
            message = {"type": "warning", "code": code, "message": text}
        case events.Failure(code, text, is_fatal):
            message = {"type": "error", "code": code, "message": text, "fatal": is_fatal}
        case events.Stopped(audio_s, speech_s, words):
            message = {"type": "stopped", "audio_s": audio_s, "speech_s": speech_s, "words": words}
        case _:
            assert_never(event)
    return write_object(message)


def _turn(event: TurnEvent) -> dict[str, Any]:
    """What is known about the end of a turn; `confidence` and `text` are null where there is none."""
    place = {"utterance": event.utterance, "channel": event.channel}
    match event:
        case events.EagerEnd(at_s=at_s, confidence=confidence, text=text):
            news = {"event": "eager_end", **place, "at_s": at_s, "confidence": confidence, "text": text}
        case events.SpeechResumed(at_s=at_s):
            news = {"event": "resumed", **place, "at_s": at_s, "confidence": None, "text": None}
        case events.Endpoint(end_s=at_s, confidence=end_confidence):
            news = {"event": "end", **place, "at_s": at_s, "confidence": end_confidence, "text": None}
        case _:
            assert_never(event)
    return {"type": "turn", **news}


def _started(event: events.Started) -> dict[str, Any]:
    limits = event.limits
    return {
        "type": "started",
        "session_id": event.session_id,
        "model": event.model,
        "limits": {
            "max_message_bytes": limits.max_message_bytes,
            "max_ahead_s": limits.max_ahead_s,
            "idle_timeout_s": limits.idle_timeout_s,
            "max_window_s": limits.max_window_s,
        },
        "warnings": [{"code": notice.code, "message": notice.message} for notice in event.notices],
    }


def _text(event: events.Interim | events.Segment | events.Utterance) -> dict[str, Any]:
    match event:
        case events.Interim():
            return _interim(event)
        case events.Segment():
            return _segment(event)
        case events.Utterance():
            return _utterance(event)


def _interim(event: events.Interim) -> dict[str, Any]:
    return {
        "type": "interim",
        "utterance": event.utterance,
        "channel": event.channel,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "stable": event.stable,
        "tail": event.tail,
        # Absent where there are none, so that interims are as they were for clients that did not ask.
        **({"stable_words": _words(event.stable_words)} if event.stable_words else {}),
    }


def _segment(event: events.Segment) -> dict[str, Any]:
    message = {
        "type": "segment",
        "utterance": event.utterance,
        "id": event.id,
        "channel": event.channel,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "text": event.text,
        "words": _words(event.words),
        "confidence": event.confidence,
        "language": event.language,
    }
    if event.language_probability is not None:
        message["language_probability"] = event.language_probability
    if event.redactions:
        message["redactions"] = [
            {"kind": each.kind, "start_s": each.start_s, "end_s": each.end_s} for each in event.redactions
        ]
    return message | speakers.speaker(event.speaker)


def _words(words: Iterable[events.Word]) -> list[dict[str, Any]]:
    return [
        {"word": word.text, "start_s": word.start_s, "end_s": word.end_s, "confidence": word.confidence}
        | speakers.speaker(word.speaker)
        for word in words
    ]


def _utterance(event: events.Utterance) -> dict[str, Any]:
    message: dict[str, Any] = {
        "type": "utterance",
        "utterance": event.utterance,
        "channel": event.channel,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "text": event.text,
        "uncovered": [list(span) for span in event.uncovered],
        "final_until_s": event.final_until_s,
        "resume_from_s": list(event.resume_from_s),
        "detector_from_s": list(event.detector_from_s),
    }
    if event.language is not None:
        message["language"] = event.language
    if event.language_probability is not None:
        message["language_probability"] = event.language_probability
    if event.translated_until_s:
        message["translated_until_s"] = list(event.translated_until_s)
    if event.voices:
        message["voices"] = event.voices
    return message


def _translation(event: events.Translation) -> dict[str, Any]:
    return {
        "type": "translation",
        "utterance": event.utterance,
        "channel": event.channel,
        "language": event.language,
        "start_s": event.start_s,
        "end_s": event.end_s,
        "text": event.text,
        "translated_until_s": list(event.translated_until_s),
        # Absent for the utterances of this session, which is nearly always.
        **({"earlier": True} if event.is_earlier else {}),
    }
