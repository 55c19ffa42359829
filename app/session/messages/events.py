"""What a session tells its client, independent of any wire format. Dialects translate these to their messages.

A time is in seconds on the session's timeline: since its first sample, or since `Resume.from_s` if it was resumed.
Utterances and segments are numbered from 0, over all channels of the session. Channels are numbered from 0.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tutti_server.app.media import notices
from tutti_server.engine import api

FlushId = str | int
"""The client's own name for a flush."""
Notice = notices.Notice


def confidence(avg_logprob: float) -> float:
    """The confidence in a text, 0 to 1 in thousandths: the geometric mean of its tokens' probabilities."""
    return round(min(math.exp(avg_logprob), 1.0), 3)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a session. The client receives them at the start."""

    max_message_bytes: int = 1 << 20
    """The longest message of audio, in bytes."""
    max_ahead_s: float = 60.0
    """How far audio may run ahead of the clock, in seconds."""
    idle_timeout_s: float = 60.0
    """How long a client may send nothing, in seconds."""
    max_window_s: float = float(api.WINDOW_S)
    """The longest window, in seconds."""


@dataclass(frozen=True, slots=True)
class Started:
    """The session has started. The first event."""

    session_id: str
    model: str
    """The name of the model."""
    limits: Limits
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStarted:
    """An utterance has begun. Exactly one `Endpoint` and one `Utterance` follow for it."""

    utterance: int
    channel: int
    at_s: float
    """The time at which the speech of the utterance begins."""
    is_detected: bool = True
    """Whether the detector found speech. False in mode `manual`, where an utterance begins with the first audio."""
    from_s: float = 0.0
    """The time at which the audio of the utterance begins, the padding included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """No more audio belongs to an utterance; its final text may still come."""

    utterance: int
    channel: int
    end_s: float
    """The time at which the audio of the utterance ends, the silence that showed the end included."""
    flush: FlushId | None = None
    """The flush that ended it; `None` if something else did."""
    is_discarded: bool = False
    """Whether the client discarded its audio."""
    confidence: float | None = None
    """The confidence that the speaker has finished, 0 to 1; `None` where no hypothesis of all the audio is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerEnd:
    """The speaker has probably finished, but the utterance may still go on.

    Sent at a pause if the client asked for it by `Endpointing.eager_confidence`. Either `SpeechResumed` follows, or the
    `Utterance` with the same text.
    """

    utterance: int
    channel: int
    at_s: float
    """The time at which speech has ended."""
    text: str
    """All text of the utterance so far: that of its segments, and the hypothesis after them."""
    confidence: float
    """The confidence that the speaker has finished, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechResumed:
    """The utterance goes on after its last `EagerEnd`, or its text is another one."""

    utterance: int
    channel: int
    at_s: float
    """The time up to which the audio was processed."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a segment or of an interim."""

    text: str
    """The word with its punctuation, without spaces around it."""
    start_s: float
    end_s: float
    confidence: float
    """0 to 1: the mean probability of its tokens."""
    speaker: int | None = field(default=None, kw_only=True)
    """Who speaks it, as far as that is known; `None` where the client did not ask."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """Something that was said and is not written down. Whoever keeps the audio may mute it there."""

    kind: str
    """What it is, such as `card`."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """The present hypothesis of an utterance, after the segments that were sent already."""

    utterance: int
    channel: int
    start_s: float
    """The time at which the audio of the hypothesis begins."""
    end_s: float
    """The time at which the audio of the hypothesis ends."""
    stable: str
    """The part of the text that does not change any more; it only grows."""
    tail: str
    """The part of the text that may still change."""
    avg_logprob: float = 0.0
    """The mean log-probability of the whole hypothesis: of its tokens, or, once it has stable text, of its words."""
    stable_words: tuple[Word, ...] = ()
    """The words of `stable`, if the client asked for them. Their times and confidences do not change any more.

    The list only grows, and the final text has the same times. Only the text of its last word may grow as well.
    """
    tail_words: tuple[Word, ...] = ()
    """The words of `tail`, if the client asked for them; they may still change, as `tail` may.

    Punctuation at the beginning of `tail` belongs to a stable word, and is not among them.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Final text. The texts of an utterance's segments, joined as they are, make the utterance's text."""

    utterance: int
    id: int
    """The number of the segment."""
    channel: int
    start_s: float
    end_s: float
    text: str
    """The text with its leading space, if its script has any; the first segment of an utterance has none."""
    language: str | None
    """The language code; `None` if it is not known."""
    language_probability: float | None = None
    """The probability of the language that the detector found in the audio, 0 to 1; `None` if it was not asked."""
    source: api.Segment
    """The segment as the engine decoded it. Its times count from `window_start_s`.

    Words that were stable before have the times and the log-probabilities of the interims.
    """
    window_start_s: float
    """The time at which the decoded audio begins."""
    words: tuple[Word, ...] = ()
    """The words of the segment, if the client asked for them."""
    goes_on: bool = False
    """Whether the utterance has another window after this one, so that more segments are likely to follow."""
    speaker: int | None = None
    """Who speaks most of it, as far as that is known; `None` where the client did not ask. `Speakers` may revise it."""
    redactions: tuple[Redaction, ...] = ()
    """What was said in it and is not written down, in order."""

    @property
    def confidence(self) -> float:
        """The confidence in its text, 0 to 1."""
        return confidence(self.source.avg_logprob)


@dataclass(slots=True)
class DecodingCounts:
    """How the text of an utterance came about."""

    n_redecodes: int = 0
    """How many stretches of speech without text were decoded again."""
    recovered_s: float = 0.0
    """Seconds of speech that have text thanks to these re-decodes."""
    n_speculative: int = 0
    """How many times it was decoded at a pause as if it ended there."""
    is_speculative: bool = False
    """Whether the last of these decodings gave the text of its last window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """An utterance is final. The last event of the utterance."""

    utterance: int
    channel: int
    start_s: float
    """The time at which the speech of the utterance begins."""
    end_s: float
    """The time at which the speech or the text of the utterance ends, whichever is later."""
    text: str
    language: str | None = None
    """The language of most of its text, if the server chose it; `None` if the client named it, or it is not known."""
    language_probability: float | None = None
    """The probability of that language, 0 to 1; `None` if the detector was not asked."""
    uncovered: tuple[tuple[float, float], ...]
    """Starts and ends of detected speech without text."""
    final_until_s: float
    """Audio before this time is final on all channels, and the client may forget it."""
    resume_from_s: tuple[float, ...]
    """For each channel, the time before which audio is final; `final_until_s` is the smallest of them."""
    detector_from_s: tuple[float | None, ...] = ()
    """For each channel, the time from which on a detector must process the audio to find the same speech after
    `resume_from_s`; `None` if that time lies inside an utterance.
    """
    translated_until_s: tuple[float, ...] = ()
    """For each channel the time before which no more translations come; empty if the client asked for none."""
    counts: DecodingCounts = field(default_factory=DecodingCounts)
    """How the text came about. For the operator, not for the client."""
    is_complete: bool = True
    """Whether all audio was decoded. False if the session ended, or the client discarded the audio, before that."""
    voices: str | None = None
    """What a session that goes on with this one needs to know its speakers again; `None` if it tells none apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translation of a piece of final text, to one language."""

    utterance: int
    """The number of the utterance; where it is earlier, the number that the client gave."""
    channel: int
    language: str
    """The code of the language of the translation."""
    start_s: float
    """The time at which the text begins that is translated."""
    end_s: float
    text: str
    """The texts of one utterance and language, joined as they are, make its translation."""
    translated_until_s: tuple[float, ...]
    """For each channel the time before which no more translations come."""
    is_earlier: bool = False
    """Whether the utterance is one of the session that this one goes on with."""


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """One speaker speaks between two times."""

    from_s: float
    until_s: float
    speaker: int
    """Counts from 0 in the order in which speakers first speak."""


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks when. What it says of a time replaces what earlier events said of it."""

    channel: int
    spans: tuple[SpeakerSpan, ...]
    """In the order of their times; none overlaps another."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """The answer to a flush: all text of the audio before the flush is final and has been sent."""

    id: FlushId
    """The client's name for the flush that is answered."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The text is late."""

    behind_s: float
    """How far the audio is ahead of its text, in seconds."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error. After a fatal one the session is over."""

    code: str
    """Stable, for programs."""
    message: str
    """A sentence, for people."""
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The session has ended as the client asked. The last event."""

    audio_s: float
    """Seconds of audio received on each channel."""
    speech_s: float
    """Seconds of speech detected on all channels."""
    words: int
    """Words of final text on all channels."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A message that a dialect itself answers to its client, such as an acknowledgement in a vendor's protocol.

    The session never sends it. It stands here because it is queued for the client together with the session's events,
    so that messages leave in order. `Event` does not contain it.
    """

    text: str
    """The message as it is sent."""


@dataclass(frozen=True, slots=True)
class LateReply:
    """Messages of a dialect that depend on those before them, such as numbered ones.

    As `Reply`, but the dialect makes the messages when everything before them in the queue has been sent.
    """

    make: Callable[[], Iterable[str]]
    """Makes the messages; none if there is nothing to say any more."""


Event = (
    Started
    | SpeechStarted
    | EagerEnd
    | SpeechResumed
    | Endpoint
    | Interim
    | Segment
    | Utterance
    | Translation
    | Speakers
    | Flushed
    | Lag
    | Notice
    | Failure
    | Stopped
)
