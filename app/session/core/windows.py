"""What the session core knows of utterances and of their windows: the open one, and those that have ended."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.options import ChannelOptions
from tutti_server.app.session.messages.events import DecodingCounts
from tutti_server.app.session.speech.coverage import Missed, Span, duration, find_missed
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.app.session.text.language_choice import UtteranceLanguage
from tutti_server.app.session.text.stabilizer import Stabilizer
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

SPEECH_GAP_SAMPLES = SAMPLE_RATE // 5
"""A gap in the detected speech of at least this many samples is silence (0.2 s); shorter gaps lie between words."""
MAX_REDECODES = 2
"""The most stretches of one window that are decoded again, so that its final text comes in bounded time."""


@dataclass(frozen=True, slots=True)
class SentEagerEnd:
    """A report that the speaker has probably finished."""

    text: str
    """All text of the utterance before it."""
    speech_until: int
    """Position after the speech before it."""


@dataclass(slots=True, kw_only=True)
class PendingUtterance:
    """An utterance that was announced and has not ended for the client yet."""

    number: int
    """The number of the utterance within the session, over all channels."""
    start: int
    """Position of the first sample of its speech."""
    prompt: str
    """The client's prompt. The model is shown it whenever `PreviousText.of` has no text for a window of the utterance.

    In mode `none` that is always so, in mode `utterance` until the utterance has text, and in mode `channel` until the
    channel has text and after `PreviousText.clear`.
    """
    options: ChannelOptions
    """How the windows of the utterance are decoded."""
    detector_from: int | None = None
    """The position at which a detector must begin to find the same speech from the first window on that is not done.

    `None` if that window is not the first of the utterance, or follows one that was cut.
    """
    language: UtteranceLanguage
    """Decides the language of its windows, and notes that of its text."""
    text: str = ""
    """The text of the segments that were sent."""
    text_until: int = 0
    """Position where the last segment ended."""
    uncovered: list[Span] = field(default_factory=list)
    """Detected speech without text, of the windows that are done."""
    counts: DecodingCounts = field(default_factory=DecodingCounts)
    """What its decodings cost, and what they gave."""
    eager_end: SentEagerEnd | None = None
    """The eager end that was sent last; `None` if the speaker went on after it."""


class WindowKind(Enum):
    """Who decides whether an ended window is decoded."""

    DETECTED = auto()
    """The detector decides: a window without detected speech is not decoded."""
    MANUAL = auto()
    """The client decides, in manual mode: the window is decoded even if no speech was detected in it."""
    DISCARDED = auto()
    """The client has discarded the audio: the window is not decoded, and only its stable text is sent."""


@dataclass(slots=True)
class EngineTranslation:
    """The engine's translation of one window, as far as it has come."""

    n_open: int = 0
    """Parts that the engine has not translated yet: the window, and missed speech in it."""
    done: list[tuple[int, api.DoneEvent]] = field(default_factory=list)
    """The translated parts, each with the position of its first sample."""
    is_dropped: bool = False
    """Whether the engine was too busy for a part."""


@dataclass(slots=True)
class SentText:
    """What was sent of the text of one window."""

    text: str = ""
    language: str | None = None
    """The language of its last segment."""
    times: list[Span] = field(default_factory=list)
    """The start and the end of each of its segments, in order."""


@dataclass(slots=True)
class Decoding:
    """The engine's answer to one window, as far as it has come."""

    had_context: bool
    """Whether the model was shown a previous text or a prefix, which can mislead it."""
    events: deque[api.SegmentEvent | api.DoneEvent] = field(default_factory=deque)
    """Events that are not processed yet: an earlier window is not done, or missed speech before them is decoded again.

    The tokens of one window bound their number.
    """
    is_repetitive: bool = False
    """Whether a decoding attempt repeated itself."""
    refused: str = field(default="", kw_only=True)
    """The text of the last segment that was refused as a hallucination."""
    language_probabilities: Mapping[str, float] | None = None
    """The probability of every candidate for its language; `None` until they are known, and where none were asked."""
    translation: EngineTranslation = field(default_factory=EngineTranslation, kw_only=True)


@dataclass(slots=True)
class Redecoding:
    """Finds missed speech of one window. At most one stretch is decoded again at a time."""

    checked_until: int = 0
    """Position before which missed speech has been looked for."""
    n_started: int = 0
    """How many stretches were decoded again, the present one included."""
    stretch: Missed | None = None
    """The stretch that the engine decodes now; the next event of the window waits for its text."""
    following_text: str = ""
    """The text of the segment after the stretch."""

    def find(self, speech: list[Span], since: int, until: int) -> Missed | None:
        """The missed speech between two positions that is worth another attempt, if any. Looks at no audio twice."""
        since = max(since, self.checked_until)
        self.checked_until = max(since, until)
        return find_missed(speech, since, until) if self.n_started < MAX_REDECODES else None

    def start(self, stretch: Missed, following_text: str) -> None:
        """The engine was asked to decode this stretch."""
        self.stretch, self.following_text = stretch, following_text
        self.n_started += 1

    def finish(self) -> None:
        """The engine has decoded the stretch, or could not."""
        self.stretch, self.following_text = None, ""


@dataclass(slots=True, kw_only=True)
class EndedWindow:
    """A window that has ended and waits for its text, or for the windows before it."""

    utterance: PendingUtterance
    kind: WindowKind
    span: Span
    """The positions of its first sample and after its last one."""
    samples: Samples
    """The audio of the window; empty if the client discarded it."""
    speech: list[Span]
    """The speech detected in it, in order."""
    stabilizer: Stabilizer
    """Holds the text that the client was shown as stable; the final text begins with it."""
    is_last: bool
    """Whether its utterance ends with it."""
    decoding: Decoding | None = None
    """`None` until the engine is asked for its text. A speculative decoding may have begun before the window ended."""
    redecoding: Redecoding = field(default_factory=Redecoding)
    covered: list[Span] = field(default_factory=list)
    """Stretches that the segments sent so far cover by the model's timestamps, in order."""
    sent: SentText = field(default_factory=SentText)
    n_processed_chars: int = 0
    """How many characters of its decoded segments were processed: sent, or rejected as a hallucination.

    A window with stable text has no rejected segments, so there these are the characters that were sent.
    """

    @property
    def unsent_stable(self) -> str:
        """The stable text that is still to be sent; no other text may be sent before it."""
        return self.stabilizer.stable[self.n_processed_chars :]

    @property
    def needs_decoding(self) -> bool:
        """Whether the engine must decode it. A window that begins in a pause may end without any speech."""
        if self.kind is WindowKind.DETECTED:
            return bool(self.speech or self.stabilizer.tokens)
        return self.kind is WindowKind.MANUAL

    @property
    def speech_s(self) -> float:
        """Seconds of speech detected in it."""
        return duration(self.speech) / SAMPLE_RATE

    @property
    def start(self) -> int:
        """Position of its first sample."""
        return self.span[0]

    @property
    def end(self) -> int:
        """Position after its last sample."""
        return self.span[1]


@dataclass(slots=True, kw_only=True)
class OpenWindow:
    """The window of a channel that still receives audio."""

    utterance: PendingUtterance
    start: int
    """Position of its first sample."""
    speech: list[Span]
    """The speech detected in it so far, in order."""
    stabilizer: Stabilizer
    """Decides and holds which text of the window was shown as stable."""

    @property
    def speech_s(self) -> float:
        """Seconds of speech detected in it so far."""
        return duration(self.speech) / SAMPLE_RATE

    def extend_speech(self, speech_until: int) -> None:
        """Note that the detector has found speech up to the position `speech_until`."""
        if speech_until <= (self.speech[-1][1] if self.speech else self.start):
            return
        begin = max(speech_until - FRAME_SAMPLES, self.start)
        if self.speech and begin - self.speech[-1][1] < SPEECH_GAP_SAMPLES:
            self.speech[-1] = (self.speech[-1][0], speech_until)
        else:
            self.speech.append((begin, speech_until))

    def split_speech(self, cut: int) -> list[Span]:
        """Keep the speech before the position `cut`; return the speech after it."""
        speech_after = [(max(start, cut), end) for start, end in self.speech if end > cut]
        self.speech = [(start, min(end, cut)) for start, end in self.speech if start < cut]
        return speech_after

    def end(self, end: int, samples: Samples, kind: WindowKind, is_last: bool) -> EndedWindow:
        """The window as it is when it ends at the position `end`."""
        return EndedWindow(
            utterance=self.utterance,
            kind=kind,
            span=(self.start, end),
            samples=samples,
            speech=self.speech,
            stabilizer=self.stabilizer,
            is_last=is_last,
        )
