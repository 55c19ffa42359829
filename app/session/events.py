"""What a session tells its client, independent of any wire format; dialects translate.

Times are seconds on the session's timeline: since its first sample, or since `Resume.from_s` for a resumed one.
"""

import math
from dataclasses import dataclass

from engine import api

FlushId = str | int


def confidence(avg_logprob: float) -> float:
    """The probability of a token, on geometric average, in thousandths."""
    return round(min(math.exp(avg_logprob), 1.0), 3)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the client should know and that changes nothing: an option ignored, a key unknown."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    max_message_bytes: int = 1 << 20
    max_ahead_s: float = 60.0
    """How far audio may run ahead of the clock."""
    idle_timeout_s: float = 60.0
    max_window_s: float = float(api.WINDOW_S)


@dataclass(frozen=True, slots=True)
class Started:
    session_id: str
    model: str
    limits: Limits
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    utterance: int
    channel: int
    at_s: float
    is_detected: bool = True
    """False in mode `manual`, where an utterance begins with the first audio."""
    from_s: float = 0.0
    """Where its audio begins, the padding included."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """No more audio belongs to an utterance that was announced; its text may still come. One for each, before its
    `Utterance`.
    """

    utterance: int
    channel: int
    end_s: float
    """Where its audio ends, the silence that showed the end included."""
    flush: FlushId | None = None
    """The flush that ended it, if one did."""
    is_discarded: bool = False


@dataclass(frozen=True, slots=True)
class Interim:
    """The reading of an utterance behind the segments sent so far: `stable` only grows, `tail` may change."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    stable: str
    tail: str
    avg_logprob: float = 0.0
    """Of the whole reading."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    """With its punctuation, without spaces around it."""
    start_s: float
    end_s: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Segment:
    """Final text. The texts of an utterance's segments, joined as they are, make the utterance's text."""

    utterance: int
    id: int
    channel: int
    start_s: float
    end_s: float
    text: str
    language: str | None
    source: api.Segment
    """As the engine decoded it; its times count from the start of its window."""
    window_start_s: float
    words: tuple[Word, ...] = ()
    """Where they were asked for."""
    goes_on: bool = False
    """The utterance has a window behind this segment's, so that this is hardly its last."""

    @property
    def confidence(self) -> float:
        return confidence(self.source.avg_logprob)


@dataclass(frozen=True, slots=True)
class Utterance:
    """The one terminal event of an utterance."""

    utterance: int
    channel: int
    start_s: float
    end_s: float
    text: str
    uncovered: tuple[tuple[float, float], ...]
    """Stretches of detected speech without text."""
    final_until_s: float
    """Audio before it is done on all channels and may be forgotten by the client."""
    resume_from_s: tuple[float, ...]
    """The same for each channel; `final_until_s` is the least of them."""
    n_redecodes: int = 0
    """Stretches of speech without text that were read again; for the operator, not for the client."""
    recovered_s: float = 0.0
    """Speech that has text thanks to them."""
    is_complete: bool = True
    """False where the session had to end, or the client discarded its audio, before all of it was read."""


@dataclass(frozen=True, slots=True)
class Flushed:
    id: FlushId


@dataclass(frozen=True, slots=True)
class Lag:
    behind_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """An error told to the client; after a fatal one the session is over."""

    code: str
    message: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    audio_s: float
    speech_s: float
    words: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A dialect's own answer to its client, as it goes out; it keeps its place among the events."""

    text: str


Event = Started | SpeechStarted | Endpoint | Interim | Segment | Utterance | Flushed | Lag | Notice | Failure | Stopped
