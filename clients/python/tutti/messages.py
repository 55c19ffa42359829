"""The messages of `tutti.v1` as dataclasses: encodes commands, and checks and types events.

This module does no I/O. docs/protocol.md describes the messages; the tests compare this module with the golden messages
in tests/wire. All times are seconds on the timeline of the session: from its first sample, or in a resumed session from
the first sample of the lost one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal, NoReturn, TypeAlias, assert_never

from tutti.errors import ProtocolError

Encoding: TypeAlias = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
"""How samples become bytes: signed 16-bit or 32-bit float, both little-endian, or 8 bits of G.711."""
Task: TypeAlias = Literal["transcribe", "translate"]
"""Write the language that is spoken, or translate it into English."""
EndpointingMode: TypeAlias = Literal["vad", "adaptive", "manual"]
"""Whether detected speech, detected speech and its text, or the client begins and ends utterances."""
TurnKind: TypeAlias = Literal["eager_end", "resumed", "end"]
"""What happened to a turn: it has probably ended, it goes on after all, or it has ended."""
RedactedKind: TypeAlias = Literal["card", "ssn", "account", "phone", "email", "number"]
"""What is not written down: numbers of cards, social security numbers, and so on; "number" is any three digits."""

BYTES_PER_SAMPLE: Mapping[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}


# What the client sends


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The format of audio: bytes of samples, in which the channels alternate."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = 16000
    """Samples per second and channel."""
    channels: int = 1

    @property
    def bytes_per_s(self) -> int:
        """Bytes of one second of audio, over all channels."""
        return BYTES_PER_SAMPLE[self.encoding] * self.channels * self.sample_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Untranslated:
    """Final text of a lost session whose translation did not come. The client fills this in by itself."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    text: str
    language: str | None
    """The code of the language of the text, if the server said it."""
    targets: tuple[str, ...]
    """The codes of the languages whose translation is missing."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The times at which a new session continues a lost one. Send the audio from the earliest of them on."""

    from_s: float | tuple[float, ...]
    """The lost session's `resume_from_s`: for each channel, the server transcribes the audio after this time.

    A single number is the time for all channels.
    """
    prompt: str = ""
    """The text before that time, as context for the model."""
    audio_from_s: float | None = None
    """The time of the first sample that is sent, if that is earlier: the server's speech detector adapts to the audio
    before `from_s`, and no text is made of it.
    """
    detector_from_s: tuple[float | None, ...] | None = None
    """The lost session's `Utterance.detector_from_s`. With it, and with the audio from the earliest of these times on,
    the server finds the speech that the lost session would have found. None: it may find speech somewhat later.
    """
    language: tuple[str | None, ...] | None = field(default=None, kw_only=True)
    """The `Utterance.language` of each channel that the lost session sent last, so that the server goes on with it."""
    untranslated: tuple[Untranslated, ...] | None = field(default=None, kw_only=True)
    """Text before `from_s` that is still to be translated. Send its audio, too, by `audio_from_s`."""
    voices: str | None = field(default=None, kw_only=True)
    """The lost session's last `Utterance.voices`, so that its speakers keep their letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpointing:
    """When an utterance ends; see `tutti.options.EndpointingOptions`. None: the server's default."""

    mode: EndpointingMode | None = None
    silence_ms: int | None = None
    min_silence_ms: int | None = None
    max_silence_ms: int | None = None
    end_confidence: float | None = None
    eager_confidence: float | None = None
    min_utterance_s: float | None = None
    max_utterance_s: float | None = None
    padding_ms: int | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room in which a session is published for readers. A field that is None is not sent."""

    name: str | None = None
    """3 to 64 of A-Z, a-z, 0-9, _ and -. None: the server makes one that cannot be guessed."""
    token: str | None = None
    """The `RoomAddress.token` of an earlier session, whose room this one goes on in."""
    title: str | None = None
    """For readers; at most 200 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerLimit:
    """The server tells the speakers of the one channel apart."""

    max: int | None = None
    """The most speakers, 1 to 10. None: the server's default, 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """What the server does with the text before it leaves. A field that is None is not sent."""

    numerals: bool | None = None
    """Write numbers in digits; English only."""
    redact: Sequence[RedactedKind] | None = None
    """What is not written down."""
    redact_names: Sequence[str] | None = None
    """Words that are not written down either."""
    replace: Mapping[str, str] | None = None
    """Words, and what is written instead of them."""
    profanity: Literal["mask"] | None = None
    """Write asterisks instead of profane words; English only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first command: asks for a session. A field that is None is not sent, so the server's default applies."""

    audio: AudioFormat | None = None
    model: str | None = None
    language: str | None = None
    languages: tuple[str, ...] | None = None
    task: Task | None = None
    translate: tuple[str, ...] | None = None
    interim: bool | None = None
    words: bool | None = None
    turns: bool | None = None
    interim_words: bool | None = None
    endpointing: Endpointing | None = None
    prompt: str | None = None
    hotwords: tuple[str, ...] | None = None
    beam_size: int | None = None
    resume: Resume | None = None
    resumes: bool | None = None
    """Whether the client resumes the session in another one if the server ends it, so that no utterance need end."""
    room: Room | None = None
    channel_names: tuple[str, ...] | None = None
    speakers: SpeakerLimit | None = None
    text_rules: TextRules | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    """Ends open utterances now."""

    id: str | int
    """The event `Flushed` will have it."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Keeps the session open while there is no audio."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Tells the server that no more audio follows."""


Command: TypeAlias = Start | Flush | KeepAlive | Stop
"""A message of the client. Audio is sent as binary frames."""


def encode_command(command: Command) -> str:
    """The JSON text of a command."""
    wire: dict[str, object]
    match command:
        case Start():
            wire = {"type": "start", **asdict(command, dict_factory=_without_none)}
        case Flush(id=flush_id):
            wire = {"type": "flush", "id": flush_id}
        case KeepAlive():
            wire = {"type": "keepalive"}
        case Stop():
            wire = {"type": "stop"}
        case _:
            assert_never(command)
    return json.dumps(wire, ensure_ascii=False, allow_nan=False)


def _without_none(items: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in items if value is not None}


# What the server sends


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server for this session."""

    max_message_bytes: int
    """The largest message that the server accepts."""
    max_ahead_s: float
    """The server ends the session when more audio than this has come before its time, in seconds."""
    idle_timeout_s: float
    """The server ends the session when it receives nothing for this time, in seconds."""
    max_window_s: float
    """The longest audio that the model decodes at once, in seconds."""


@dataclass(frozen=True, slots=True)
class ServerWarning:
    """Something that the client should know, such as an option without effect. Also an item of `Started.warnings`."""

    type: ClassVar[str] = "warning"
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAddress:
    """The room of a session."""

    name: str
    path: str
    """Where readers find it on the server."""
    token: str
    """Proves that the room is the client's. It is a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The session is open. The first event."""

    type: ClassVar[str] = "started"
    session_id: str
    model: str
    limits: Limits
    warnings: tuple[ServerWarning, ...]
    room: RoomAddress | None = None
    """The room in which the session is published; None if `Start.room` asked for none."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """An utterance has begun."""

    type: ClassVar[str] = "speech_started"
    utterance: int
    """The number of the utterance in the session, from 0. All channels share one count."""
    channel: int
    """The index of the channel, from 0."""
    at_s: float


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a segment or of an interim, with its times."""

    word: str
    start_s: float
    end_s: float
    confidence: float
    """How sure the model is of the word, from 0 to 1."""
    speaker: str | None = field(default=None, kw_only=True)
    """The letter of its speaker, with the option `max_speakers`, as far as it is known by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """The text of an open utterance after the segments sent so far. Each interim replaces the one before it."""

    type: ClassVar[str] = "interim"
    utterance: int
    channel: int
    start_s: float
    end_s: float
    stable: str
    """Text that will not change any more."""
    tail: str
    """Text that may still change. It follows `stable`."""
    stable_words: tuple[Word, ...] = ()
    """The words of `stable`. Empty unless the option `interim_words` was set.

    Their times and confidences do not change any more, and those of the segment are the same. Only the text of the last
    word may grow, by punctuation.
    """
    speaker: str | None = None
    """The name of its channel, from the option `channel_names`."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """Something that was said and is not written down. Whoever keeps the audio may mute it there."""

    kind: str
    """What it is, such as "card"; "number" where only a part of it was heard; "name" for one of `redact_names`."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Final text. The text of an utterance is the texts of its segments, joined without a separator."""

    type: ClassVar[str] = "segment"
    utterance: int
    id: int
    channel: int
    start_s: float
    end_s: float
    text: str
    """The text of the segment, with its leading space if the script has spaces."""
    words: tuple[Word, ...]
    """The words of the segment. Empty unless the option `words` was set and the server offers word times."""
    confidence: float
    """How sure the model is of the segment, from 0 to 1."""
    language: str | None
    """A code such as "en", or None if the server does not know it."""
    language_probability: float | None = None
    """The probability of the language in this audio, from 0 to 1. None if the server did not detect it."""
    speaker: str | None = None
    """The name of its channel, from the option `channel_names`; or the letter of the speaker of most of its words, with
    `max_speakers`, as far as it is known by then: `Speakers` may revise it.
    """
    redactions: tuple[Redaction, ...] = ()
    """What was said in it and is not written down, with the option `text_rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """An utterance has ended, and all of its text is final."""

    type: ClassVar[str] = "utterance"
    utterance: int
    channel: int
    start_s: float
    end_s: float
    text: str
    uncovered: tuple[tuple[float, float], ...]
    """Parts of the audio, (start_s, end_s), where speech was detected but there is no text."""
    final_until_s: float
    """Audio before this time is final on all channels. The client need not keep it any longer."""
    resume_from_s: tuple[float, ...] = ()
    """The same for each channel: the value for `Resume.from_s` after a lost connection."""
    detector_from_s: tuple[float | None, ...] = ()
    """The value for `Resume.detector_from_s`: for each channel, from when on the server's speech detector must process
    the audio to find the same speech; None where that is not possible. Empty if the server is too old to say.
    """
    language: str | None = None
    """The code of the language of most of its text, if the server chose it. None if it was named, or is not known."""
    language_probability: float | None = None
    """The probability of that language, from 0 to 1. None if the server did not detect it for this utterance."""
    translated_until_s: tuple[float, ...] = ()
    """For each channel the time before which no more translations come. Empty without the option `translate`."""
    speaker: str | None = None
    """The name of its channel, from the option `channel_names`."""
    voices: str | None = None
    """The value for `Resume.voices`, with the option `max_speakers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translation of a piece of final text. The pieces of an utterance and a language are joined as they are.

    Sent for each language of the option `translate`, after the text.
    """

    type: ClassVar[str] = "translation"
    utterance: int
    channel: int
    language: str
    """The code of the language of the translation."""
    start_s: float
    """Where the text begins that is translated."""
    end_s: float
    text: str
    translated_until_s: tuple[float, ...]
    """For each channel the time before which no more translations come."""
    earlier: bool = False
    """The utterance is one of a lost session, by the number that `Resume.untranslated` gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """News about the end of a turn, which is an utterance. Only sent if the option `turns` was set.

    After an `eager_end` comes `resumed`, or the `Utterance` with the same text.
    """

    type: ClassVar[str] = "turn"
    event: TurnKind
    utterance: int
    channel: int
    at_s: float
    """Where the speech ended (`eager_end`), up to where it was processed (`resumed`), or where the turn ended (`end`).

    In seconds.
    """
    confidence: float | None
    """How sure the server is that the speaker has finished, from 0 to 1; None if it does not know."""
    text: str | None
    """All text of the utterance so far, of an `eager_end`; None of the others."""


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """One speaker speaks between two times."""

    from_s: float
    until_s: float
    speaker: str
    """A letter: "A" is the speaker who was heard first."""


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks when, with the option `max_speakers`. It replaces what earlier events said of these times."""

    type: ClassVar[str] = "speakers"
    channel: int
    spans: tuple[SpeakerSpan, ...]
    """In the order of their times; none overlaps another."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything that was sent before the flush with this id is final."""

    type: ClassVar[str] = "flushed"
    id: str | int


@dataclass(frozen=True, slots=True)
class Lag:
    """The server is late: speech of `behind_s` seconds ago has no text yet. Sent from 2 s on, at most once a second."""

    type: ClassVar[str] = "lag"
    behind_s: float


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error. `docs/protocol.md` lists the codes."""

    type: ClassVar[str] = "error"
    code: str
    message: str
    fatal: bool
    """Whether the error ended the session. The iteration over a `Session` raises such an error."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The session has ended as it should. The last event."""

    type: ClassVar[str] = "stopped"
    audio_s: float
    """Seconds of audio that the server received."""
    speech_s: float
    """Seconds of speech in it."""
    words: int
    """Number of words in the final text."""


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """The connection is lost, and another one will be opened. Made by the client, not sent by the server."""

    type: ClassVar[str] = "reconnecting"
    attempt: int
    """The number of the attempt in this outage, from 1."""
    reason: str
    """Why the connection, or the attempt before, failed."""
    retry_in_s: float
    """How long the client waits before the attempt, in seconds."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The session goes on over another connection. Made by the client, not sent by the server."""

    type: ClassVar[str] = "resumed"
    gap: tuple[float, float] | None
    """Audio that was not final and is lost, (from_s, until_s): the outage was longer than the client keeps audio."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a server that is newer than this client."""

    type: str
    data: Mapping[str, object]
    """The whole message."""


Event: TypeAlias = (
    Started
    | SpeechStarted
    | Interim
    | Segment
    | Utterance
    | Translation
    | Turn
    | Speakers
    | Flushed
    | Lag
    | ServerWarning
    | ErrorEvent
    | Stopped
    | Reconnecting
    | Resumed
    | UnknownEvent
)
"""A message of the server, or one of the two that the client makes itself."""


def parse_event(message: str | Mapping[str, object]) -> Event:
    """The event in a JSON text, or in an object that was parsed from one.

    Unknown fields are left out. An event of an unknown type is an `UnknownEvent`.

    Raises:
        ProtocolError: the message is not a JSON object with a `type`, or a field is missing or wrong.
    """
    if isinstance(message, str):
        try:
            message = json.loads(message, parse_constant=_refuse_constant)
        except ValueError as error:
            raise ProtocolError("message", "a JSON object", _describe(message)) from error
    if not isinstance(message, Mapping):
        raise ProtocolError("message", "a JSON object", _describe(message))
    event_type = _Fields("message", message).text("type")
    parse = _PARSERS.get(event_type)
    if parse is None:
        return UnknownEvent(event_type, dict(message))
    return parse(_Fields(event_type, message))


_LEFT_OUT = {
    ("started", "room"),
    ("segment", "language_probability"),
    ("utterance", "language"),
    ("utterance", "language_probability"),
    ("utterance", "voices"),
}
"""The fields that an event has only where there is something to say, with the types of their events."""


def event_to_wire(event: Event) -> dict[str, object]:
    """The JSON object of an event: the inverse of `parse_event`, which leaves unknown fields out."""
    if isinstance(event, UnknownEvent):
        return dict(event.data)
    wire = {"type": event.type} | {
        name: _to_lists(value)
        for name, value in asdict(event, dict_factory=_without_speaker).items()
        if value is not None or (event.type, name) not in _LEFT_OUT
    }
    if isinstance(event, Interim) and not event.stable_words:
        del wire["stable_words"]
    if isinstance(event, Segment) and not event.redactions:
        del wire["redactions"]
    if isinstance(event, Utterance) and not event.translated_until_s:
        del wire["translated_until_s"]
    if isinstance(event, Translation) and not event.earlier:
        del wire["earlier"]
    return wire


def _without_speaker(items: list[tuple[str, object]]) -> dict[str, object]:
    """The fields of an event, or of a word, which has a speaker only where that is known."""
    return {name: value for name, value in items if (name, value) != ("speaker", None)}


def _to_lists(value: object) -> object:
    """`value` with lists in place of tuples, as JSON has only lists."""
    if isinstance(value, Mapping):
        return {name: _to_lists(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_to_lists(item) for item in value]
    return value


class _Fields:
    """Reads the fields of one JSON object and checks their types."""

    def __init__(self, path: str, value: object) -> None:
        """Check that `value` is an object; `path` is its place in the message, for errors."""
        if not isinstance(value, Mapping):
            raise ProtocolError(path, "an object", _describe(value))
        self._path = path
        self._data = value

    def _get(self, name: str, expected: str) -> object:
        if name not in self._data:
            raise ProtocolError(f"{self._path}.{name}", expected, "nothing")
        value: object = self._data[name]
        return value

    def _wrong(self, name: str, expected: str) -> NoReturn:
        raise ProtocolError(f"{self._path}.{name}", expected, _describe(self._data[name]))

    def has(self, name: str) -> bool:
        return name in self._data

    def text(self, name: str) -> str:
        value = self._get(name, "a string")
        return value if isinstance(value, str) else self._wrong(name, "a string")

    def optional_text(self, name: str) -> str | None:
        """A string; None if the field is not there."""
        return self.text(name) if name in self._data else None

    def text_or_null(self, name: str) -> str | None:
        value = self._get(name, "a string or null")
        return value if value is None or isinstance(value, str) else self._wrong(name, "a string or null")

    def boolean(self, name: str) -> bool:
        value = self._get(name, "true or false")
        return value if isinstance(value, bool) else self._wrong(name, "true or false")

    def integer(self, name: str, at_least: int = 0) -> int:
        expected = f"an integer from {at_least}"
        value = self._get(name, expected)
        if isinstance(value, int) and not isinstance(value, bool) and value >= at_least:
            return value
        return self._wrong(name, expected)

    def number(self, name: str) -> float:
        return _to_number(f"{self._path}.{name}", self._get(name, "a number"))

    def number_or_null(self, name: str) -> float | None:
        value = self._get(name, "a number or null")
        return None if value is None else _to_number(f"{self._path}.{name}", value)

    def turn_kind(self, name: str) -> TurnKind:
        expected = "eager_end, resumed or end"
        match self._get(name, expected):
            case "eager_end" | "resumed" | "end" as kind:
                return kind
            case _:
                return self._wrong(name, expected)

    def text_or_integer(self, name: str) -> str | int:
        value = self._get(name, "a string or an integer")
        if isinstance(value, str | int) and not isinstance(value, bool):
            return value
        return self._wrong(name, "a string or an integer")

    def nested(self, name: str) -> _Fields:
        return _Fields(f"{self._path}.{name}", self._get(name, "an object"))

    def objects(self, name: str) -> list[_Fields]:
        return [_Fields(path, item) for path, item in self._items(name)]

    def spans(self, name: str) -> tuple[tuple[float, float], ...]:
        spans: list[tuple[float, float]] = []
        for path, item in self._items(name):
            if not (isinstance(item, list | tuple) and len(item) == 2):
                raise ProtocolError(path, "[start_s, end_s]", _describe(item))
            spans.append((_to_number(f"{path}[0]", item[0]), _to_number(f"{path}[1]", item[1])))
        return tuple(spans)

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(_to_number(path, item) for path, item in self._items(name))

    def optional_numbers_or_null(self, name: str) -> tuple[float | None, ...]:
        """A list of numbers and nulls; nothing if the field is not there."""
        items = self._items(name) if name in self._data else []
        return tuple(None if item is None else _to_number(path, item) for path, item in items)

    def optional_objects(self, name: str) -> list[_Fields]:
        return self.objects(name) if name in self._data else []

    def _items(self, name: str) -> list[tuple[str, object]]:
        value = self._get(name, "a list")
        if not isinstance(value, list | tuple):
            self._wrong(name, "a list")
        return [(f"{self._path}.{name}[{index}]", item) for index, item in enumerate(value)]


def _parse_started(data: _Fields) -> Started:
    limits = data.nested("limits")
    return Started(
        session_id=data.text("session_id"),
        model=data.text("model"),
        limits=Limits(
            max_message_bytes=limits.integer("max_message_bytes", at_least=1),
            max_ahead_s=limits.number("max_ahead_s"),
            idle_timeout_s=limits.number("idle_timeout_s"),
            max_window_s=limits.number("max_window_s"),
        ),
        warnings=tuple(_parse_warning(item) for item in data.objects("warnings")),
        room=_parse_room(data.nested("room")) if data.has("room") else None,
    )


def _parse_room(data: _Fields) -> RoomAddress:
    return RoomAddress(name=data.text("name"), path=data.text("path"), token=data.text("token"))


def _parse_speech_started(data: _Fields) -> SpeechStarted:
    return SpeechStarted(utterance=data.integer("utterance"), channel=data.integer("channel"), at_s=data.number("at_s"))


def _parse_interim(data: _Fields) -> Interim:
    return Interim(
        utterance=data.integer("utterance"),
        channel=data.integer("channel"),
        start_s=data.number("start_s"),
        end_s=data.number("end_s"),
        stable=data.text("stable"),
        tail=data.text("tail"),
        stable_words=_parse_words(data.optional_objects("stable_words")),
        speaker=data.optional_text("speaker"),
    )


def _parse_segment(data: _Fields) -> Segment:
    return Segment(
        utterance=data.integer("utterance"),
        id=data.integer("id"),
        channel=data.integer("channel"),
        start_s=data.number("start_s"),
        end_s=data.number("end_s"),
        text=data.text("text"),
        words=_parse_words(data.objects("words")),
        confidence=data.number("confidence"),
        language=data.text_or_null("language"),
        language_probability=data.number("language_probability") if data.has("language_probability") else None,
        speaker=data.optional_text("speaker"),
        redactions=tuple(map(_parse_redaction, data.objects("redactions"))) if data.has("redactions") else (),
    )


def _parse_redaction(data: _Fields) -> Redaction:
    return Redaction(data.text("kind"), data.number("start_s"), data.number("end_s"))


def _parse_words(items: list[_Fields]) -> tuple[Word, ...]:
    return tuple(
        Word(
            word=item.text("word"),
            start_s=item.number("start_s"),
            end_s=item.number("end_s"),
            confidence=item.number("confidence"),
            speaker=item.optional_text("speaker"),
        )
        for item in items
    )


def _parse_utterance(data: _Fields) -> Utterance:
    return Utterance(
        utterance=data.integer("utterance"),
        channel=data.integer("channel"),
        start_s=data.number("start_s"),
        end_s=data.number("end_s"),
        text=data.text("text"),
        uncovered=data.spans("uncovered"),
        final_until_s=data.number("final_until_s"),
        resume_from_s=data.numbers("resume_from_s"),
        detector_from_s=data.optional_numbers_or_null("detector_from_s"),
        language=data.text("language") if data.has("language") else None,
        language_probability=data.number("language_probability") if data.has("language_probability") else None,
        translated_until_s=data.numbers("translated_until_s") if data.has("translated_until_s") else (),
        speaker=data.optional_text("speaker"),
        voices=data.optional_text("voices"),
    )


def _parse_translation(data: _Fields) -> Translation:
    return Translation(
        utterance=data.integer("utterance"),
        channel=data.integer("channel"),
        language=data.text("language"),
        start_s=data.number("start_s"),
        end_s=data.number("end_s"),
        text=data.text("text"),
        translated_until_s=data.numbers("translated_until_s"),
        earlier=data.boolean("earlier") if data.has("earlier") else False,
    )


def _parse_turn(data: _Fields) -> Turn:
    return Turn(
        event=data.turn_kind("event"),
        utterance=data.integer("utterance"),
        channel=data.integer("channel"),
        at_s=data.number("at_s"),
        confidence=data.number_or_null("confidence"),
        text=data.text_or_null("text"),
    )


def _parse_speakers(data: _Fields) -> Speakers:
    spans = tuple(
        SpeakerSpan(item.number("from_s"), item.number("until_s"), item.text("speaker"))
        for item in data.objects("spans")
    )
    return Speakers(data.integer("channel"), spans)


def _parse_flushed(data: _Fields) -> Flushed:
    return Flushed(id=data.text_or_integer("id"))


def _parse_lag(data: _Fields) -> Lag:
    return Lag(behind_s=data.number("behind_s"))


def _parse_warning(data: _Fields) -> ServerWarning:
    return ServerWarning(code=data.text("code"), message=data.text("message"))


def _parse_error(data: _Fields) -> ErrorEvent:
    return ErrorEvent(code=data.text("code"), message=data.text("message"), fatal=data.boolean("fatal"))


def _parse_stopped(data: _Fields) -> Stopped:
    return Stopped(audio_s=data.number("audio_s"), speech_s=data.number("speech_s"), words=data.integer("words"))


_PARSERS: Mapping[str, Callable[[_Fields], Event]] = {
    Started.type: _parse_started,
    SpeechStarted.type: _parse_speech_started,
    Interim.type: _parse_interim,
    Segment.type: _parse_segment,
    Utterance.type: _parse_utterance,
    Translation.type: _parse_translation,
    Turn.type: _parse_turn,
    Speakers.type: _parse_speakers,
    Flushed.type: _parse_flushed,
    Lag.type: _parse_lag,
    ServerWarning.type: _parse_warning,
    ErrorEvent.type: _parse_error,
    Stopped.type: _parse_stopped,
}


def _to_number(path: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ProtocolError(path, "a number", _describe(value))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _describe(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:79] + "…"
