"""The messages of `tutti.v1` as dataclasses: the one place where their fields are written down.

The server writes and reads these classes, too. `python -m tests.wire_messages` makes the TypeScript types and the
tables of docs/protocol.md from them, and the AsyncAPI document of a server is computed from them. So a description
speaks of names as they are on the wire. This module does no I/O. All times are seconds on the timeline of the session:
from its first sample, or in a resumed session from the first sample of the lost one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Annotated, ClassVar, Literal, NoReturn, TypeAlias, cast, get_args

from tutti.errors import ProtocolError
from tutti.fields import ALWAYS, REQUIRED, Length, Null, Within, Wrong, read, writer

MAX_PROMPT_CHARS = 10_000
"""The longest prompt, in characters."""
MIN_SILENCE_MS, MAX_SILENCE_MS = 100, 5000
"""How short and how long the silence may be that ends an utterance, in milliseconds."""
MAX_PADDING_MS = 1000
"""The most audio before detected speech that an utterance may include, in milliseconds."""
MAX_SPEAKERS = 10
"""The most speakers of a channel, also where the client names no number."""
MAX_PHRASES = 200
"""The most names, and the most replacements, of text rules."""
MAX_PHRASE_CHARS = 100
"""The longest of them, in characters."""

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
FlushId: TypeAlias = Annotated[str, Length(most=200)] | Annotated[int, Within(-(2**63), 2**63 - 1)]
"""The client's own name for a flush."""

Language: TypeAlias = Annotated[str, Length(1, called="a language code")]
Languages: TypeAlias = Annotated[tuple[Language, ...], Length(most=128)]
Number: TypeAlias = Annotated[int, Within(0, 2**53 - 1)]
"""A whole number that JavaScript can count to."""
Seconds: TypeAlias = Annotated[float, Within(0, 10_000_000)]
"""A time at which a session may resume. The latest is after four months: later times lose their milliseconds."""
Share: TypeAlias = Annotated[float, Within(0, 1)]
SilenceMs: TypeAlias = Annotated[int, Within(MIN_SILENCE_MS, MAX_SILENCE_MS)]
Prompt: TypeAlias = Annotated[str, Length(most=MAX_PROMPT_CHARS)]
Hotword: TypeAlias = Annotated[str, Length(pattern=r"[\s\S]*\S[\s\S]*", called="a text with a word")]
Phrase: TypeAlias = Annotated[str, Length(1, MAX_PHRASE_CHARS)]

BYTES_PER_SAMPLE: Mapping[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}


# What the client sends


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The format of audio: bytes of samples, in which the channels alternate."""

    encoding: Encoding = "pcm_s16le"
    """How samples become bytes."""
    sample_rate: Annotated[int, Within(8000, 48000)] = 16000
    """Samples per second and channel."""
    channels: Annotated[int, Within(1, 8)] = 1
    """Each channel is transcribed on its own."""

    @property
    def bytes_per_s(self) -> int:
        """Bytes of one second of audio, over all channels."""
        return BYTES_PER_SAMPLE[self.encoding] * self.channels * self.sample_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Untranslated:
    """Final text of a lost session whose translations did not come. A session fills this in by itself."""

    utterance: Number
    channel: Number
    start_s: Seconds
    end_s: Seconds
    text: Prompt
    language: Language | Null = None
    """The code of the language of the text, if the server said it."""
    targets: Languages
    """The codes of the languages whose translation is missing."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The times at which a new session continues a lost one. Send the audio from the earliest of them on."""

    from_s: Seconds | Annotated[tuple[Seconds, ...], Length(1)]
    """The `resume_from_s` of the lost session's last `utterance`: one time for each channel, or one for all.

    The server transcribes the audio after it.
    """
    prompt: Prompt = ""
    """The text before that time, as context for the model. It takes the place of `prompt` for the first utterance."""
    audio_from_s: Seconds | Null = None
    """The time of the first sample that is sent, if that is earlier. No text is made of the audio before `from_s`.

    The server's speech detector adapts to it.
    """
    detector_from_s: tuple[Seconds | None, ...] | None = None
    """The `detector_from_s` of the lost session's last `utterance`.

    With the audio from the earliest of these times on, the server finds the same speech; without it, perhaps later.
    """
    language: Language | Annotated[tuple[Language | None, ...], Length(1)] | Null = field(default=None, kw_only=True)
    """The `language` of the last `utterance` of each channel, so that the server goes on with it; or one for all."""
    untranslated: Annotated[tuple[Untranslated, ...], Length(most=64)] | None = field(default=None, kw_only=True)
    """Final text before `from_s` whose translations did not come. Send its audio, too, by `audio_from_s`."""
    voices: Annotated[str, Length(most=20_000)] | None = field(default=None, kw_only=True)
    """The `voices` of the lost session's last `utterance`, so that its speakers keep their letters. With `speakers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpointing:
    """When an utterance begins and ends."""

    mode: EndpointingMode | Null = None
    """What begins and ends utterances.

    "vad": detected speech. "adaptive": as "vad", but what was spoken decides how long the silence must be. "manual":
    the client's audio and `flush`. The default is "adaptive" where that was measured for the server's model, else
    "vad". It is always "vad" with one of the four options below.
    """
    silence_ms: SilenceMs | None = None
    """The silence that ends an utterance; with "adaptive", one as sure as `end_confidence`, or of unknown text."""
    min_silence_ms: SilenceMs | None = None
    """With "adaptive": the silence that ends an utterance that is certainly complete."""
    max_silence_ms: SilenceMs | None = None
    """With "adaptive": the silence that ends any utterance. At least `min_silence_ms`."""
    end_confidence: Share | None = None
    """With "adaptive": how sure the server must be that the speaker has finished to end a turn early.

    A surer end comes before `silence_ms`, a less sure one later.
    """
    eager_confidence: Share | None = None
    """With `turns`: how sure the server must be that the speaker has finished to send an "eager_end"."""
    min_utterance_s: Annotated[float, Within(0, 10)] | None = None
    """Silence does not end an utterance that is shorter than this, so that a single word waits for more speech."""
    max_utterance_s: Annotated[float, Within(10, 300)] | None = None
    """A longer utterance ends at its next window."""
    padding_ms: Annotated[int, Within(0, MAX_PADDING_MS)] | None = None
    """Audio before detected speech that belongs to the utterance."""
    threshold: Share | Null = None
    """How sure the server must be that a sound is speech. More takes less noise for speech, and more soft speech for
    noise. Without it, the operator's.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room in which a session is published for readers."""

    name: Annotated[str, Length(pattern="[A-Za-z0-9_-]{3,64}", called="3 to 64 of A-Z, a-z, 0-9, _ and -")] | Null = (
        None
    )
    """Without a name the server makes one that cannot be guessed."""
    token: (
        Annotated[str, Length(pattern="[A-Za-z0-9_-]{16,128}", called="the token of an earlier `started.room`")] | Null
    ) = None
    """The `room.token` of an earlier `started`, whose room this session goes on in."""
    title: Annotated[str, Length(most=200)] | None = None
    """The title that readers see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerLimit:
    """The server tells the speakers of the one channel apart.

    `speaker` of segments and words is a letter then, and `speakers` events say who speaks when, and revise it.
    """

    max: Annotated[int, Within(1, MAX_SPEAKERS)] | None = None
    """The most speakers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """What the server does with the text before it leaves."""

    numerals: bool | None = None
    """Write numbers in digits; English only."""
    redact: Sequence[RedactedKind] | None = None
    """What is not written down; "number" is any three digits."""
    redact_names: Annotated[Sequence[Phrase], Length(most=MAX_PHRASES)] | None = None
    """Words that are not written down either."""
    replace: (
        Annotated[Mapping[Phrase, Annotated[str, Length(most=MAX_PHRASE_CHARS)]], Length(most=MAX_PHRASES)] | None
    ) = None
    """Words, and what is written instead of them."""
    profanity: Literal["mask"] | Null = None
    """Write asterisks instead of profane words; English only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Asks for a session. The first command. For a field that is left out, the server has a default."""

    type: ClassVar[str] = "start"
    audio: AudioFormat | None = None
    """The format of the audio."""
    model: Annotated[str, Length(most=80)] | Null = None
    """A name of the model, where the server has several; without it the first one."""
    language: Language | Null = None
    """A code such as "en"; None: it is detected, and its changes are followed; "lock": it is detected once."""
    languages: Languages | None = None
    """The languages that are possible, where the server detects the language. Without any: all it knows."""
    task: Task | None = None
    """Whether to write the language that is spoken, or to translate it into English."""
    translate: Languages | None = None
    """The codes of the languages that final text is translated to, by `translation` events."""
    interim: bool | None = None
    """Whether to send `interim` events."""
    words: bool | None = None
    """Whether segments have the times of their words. They then come with the end of their window."""
    turns: bool | None = None
    """Whether to send `turn` events."""
    interim_words: bool | None = None
    """Whether interims have the times of their stable words, too. Needs `words` and `interim`."""
    endpointing: Endpointing | None = None
    """When an utterance begins and ends."""
    prompt: Prompt | None = None
    """Text that the speech may follow on from, or names that it may contain."""
    hotwords: Annotated[tuple[Hotword, ...], Length(most=64)] | None = None
    """Names and terms to expect, as they are written. Each has at most 47 bytes."""
    beam_size: Annotated[int, Within(1, 10)] | Null = None
    """The beams of final text: more make fewer mistakes and more work. Without it, what the server has chosen.

    There are no more than the engine has slots.
    """
    resume: Resume | Null = None
    """Where to continue after a lost connection."""
    resumes: bool | None = None
    """Whether the client goes on in another session if the server ends this one, so that no utterance need end."""
    room: Room | Null = None
    """The room in which the session is published for readers; `{}` has a name that cannot be guessed."""
    channel_names: tuple[Annotated[str, Length(1, 64)], ...] | None = None
    """A name for each channel, all different, which then is `speaker` of its text, such as `["agent", "caller"]`."""
    speakers: SpeakerLimit | Null = None
    """Tells the speakers of the one channel apart. Not with `channel_names`."""
    text_rules: TextRules | None = None
    """What the server does with the text before it leaves."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Ends open utterances now. `flushed` answers when everything that was received before it is final."""

    type: ClassVar[str] = "flush"
    id: FlushId
    """Identifies the flush; the event `flushed` has the same."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Keeps the session open while there is no audio."""

    type: ClassVar[str] = "keepalive"


@dataclass(frozen=True, slots=True)
class Stop:
    """Tells the server that no more audio follows. What is left is made final, then `stopped` comes."""

    type: ClassVar[str] = "stop"


Command: TypeAlias = Start | Flush | KeepAlive | Stop
"""A message of the client. Audio is sent as binary frames."""


def encode_command(command: Command) -> str:
    """The JSON text of a command."""
    kind: type = type(command)
    return json.dumps(writer(kind)(command), ensure_ascii=False, allow_nan=False)


# What the server sends


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server for this session."""

    max_message_bytes: Annotated[int, Within(1)]
    """The largest message that the server accepts."""
    max_ahead_s: float
    """The server ends the session when more audio than this has come before its time, in seconds."""
    idle_timeout_s: float
    """The server ends the session when it receives nothing for this time, in seconds."""
    max_window_s: float
    """The longest audio that the model decodes at once, in seconds."""


@dataclass(frozen=True, slots=True)
class ServerWarning:
    """Something that the client should know, such as an option without effect. Also an item of `started.warnings`."""

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
    """The room in which the session is published, if `start` asked for one."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """An utterance has begun."""

    type: ClassVar[str] = "speech_started"
    utterance: int
    """The number of the utterance in the session. All channels share one count."""
    channel: int
    """The index of the channel."""
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
    """The letter of its speaker, if `start` has `speakers`, as far as it is known by then."""


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
    """The words of `stable`, if `start` has `interim_words` and there are any.

    Their times and confidences do not change any more, and those of the segment are the same. Only the text of the last
    word may grow, by punctuation.
    """
    speaker: str | None = None
    """The name of its channel, if `start` has `channel_names`."""


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
    """The words of the segment. Empty unless `start` has `words` and the server offers word times."""
    confidence: float
    """How sure the model is of the segment, from 0 to 1."""
    language: str | None
    """A code such as "en", or None if the server does not know it."""
    language_probability: float | None = None
    """The probability of the language in this audio, from 0 to 1. Only if the server detected it."""
    redactions: tuple[Redaction, ...] = ()
    """What was said in it and is not written down, if `start` has `text_rules` that redact."""
    speaker: str | None = None
    """The name of its channel, if `start` has `channel_names`. Or the letter of the speaker of most of its words, if it
    has `speakers`, as far as that is known by then: `speakers` events may revise it.
    """


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
    """Parts of the audio, `[start_s, end_s]`, where speech was detected but there is no text."""
    final_until_s: float
    """Audio before this time is final on all channels. The client need not keep it any longer."""
    resume_from_s: Annotated[tuple[float, ...], REQUIRED] = ()
    """For each channel, the time before which audio is final: the value for `resume.from_s` after a lost connection."""
    detector_from_s: Annotated[tuple[float | None, ...], ALWAYS] = ()
    """The value for `resume.detector_from_s`: for each channel, from when on the server's speech detector must process
    the audio to find the same speech; None where that is not possible. Empty if the server is too old to say.
    """
    language: str | None = None
    """The code of the language of most of its text, if the server chose it."""
    language_probability: float | None = None
    """The probability of that language, from 0 to 1. Only if the server detected it for this utterance."""
    translated_until_s: tuple[float, ...] = ()
    """For each channel the time before which no more translations come, if `start` has `translate`."""
    voices: str | None = None
    """The value for `resume.voices`, if `start` has `speakers`."""
    speaker: str | None = None
    """The name of its channel, if `start` has `channel_names`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translation of a piece of final text. The pieces of an utterance and a language are joined as they are.

    Sent for each language of `translate`, after the text.
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
    """The utterance is one of a lost session, by the number that `resume.untranslated` gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """News about the end of a turn, which is an utterance. Only sent if `start` has `turns`.

    After an "eager_end" comes "resumed", or the `utterance` with the same text.
    """

    type: ClassVar[str] = "turn"
    event: TurnKind
    utterance: int
    channel: int
    at_s: float
    """Where the speech ended ("eager_end"), up to where it was processed ("resumed"), or where the turn ended ("end").
    """
    confidence: float | None
    """How sure the server is that the speaker has finished, from 0 to 1; None if it does not know."""
    text: str | None
    """All text of the utterance so far, of an "eager_end"; None of the others."""


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """One speaker speaks between two times."""

    from_s: float
    until_s: float
    speaker: str
    """A letter: "A" is the speaker who was heard first."""


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks when, if `start` has `speakers`. It replaces what earlier events said of these times."""

    type: ClassVar[str] = "speakers"
    channel: int
    spans: tuple[SpeakerSpan, ...]
    """In the order of their times; none overlaps another."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything that was sent before the flush with this id is final."""

    type: ClassVar[str] = "flushed"
    id: FlushId


@dataclass(frozen=True, slots=True)
class Lag:
    """The server is late: speech of `behind_s` seconds ago has no text yet. Sent from 2 s on, at most once a second."""

    type: ClassVar[str] = "lag"
    behind_s: float


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error. The page about the protocol lists the codes."""

    type: ClassVar[str] = "error"
    code: str
    message: str
    fatal: bool
    """Whether the error ended the session."""


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
    """Audio that was not final and is lost, `[from_s, until_s]`: the outage was longer than the client keeps audio."""


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
    event_type = message.get("type", MISSING)
    if not isinstance(event_type, str):
        raise ProtocolError("message.type", "a string", _describe(event_type))
    kind = EVENTS.get(event_type)
    if kind is None:
        return UnknownEvent(event_type, dict(message))
    try:
        return cast(Event, read(kind, message))
    except Wrong as wrong:
        raise ProtocolError(event_type + wrong.path, wrong.expected, _describe(wrong.value)) from None


def event_to_wire(event: Event) -> dict[str, object]:
    """The JSON object of an event: the inverse of `parse_event`, which leaves unknown fields out."""
    kind: type = type(event)
    return dict(event.data) if isinstance(event, UnknownEvent) else writer(kind)(event)


EVENTS: Mapping[str, type] = {
    kind.type: kind for kind in get_args(Event) if kind not in (Reconnecting, Resumed, UnknownEvent)
}
"""The classes of the events that a server sends, by their types."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _describe(value: object) -> str:
    if value is MISSING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:79] + "…"
