"""The boundary of the engine: what goes in (windows), what comes out (events), and how to ask.

Everything that crosses it is plain data, so that the engine may live in another process. Importing this module does
not import torch.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
WINDOW_S = 30
WINDOW_SAMPLES = WINDOW_S * SAMPLE_RATE

MAX_HOTWORDS = 64
"""Of one window."""
MAX_HOTWORD_BYTES = 47
"""Of one hotword, in UTF-8."""

Task = Literal["transcribe", "translate"]


class Priority(IntEnum):
    """Which windows are served first; lower comes first."""

    FINAL = 0
    INTERIM = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn, and when a window is read again. Only the reading that counts is handed out.

    With one temperature and one reading, which is the default, segments come while the window is decoded; else at its
    end. Thresholds as in openai/whisper, whisper/transcribe.py.
    """

    temperatures: tuple[float, ...] = (0.0,)
    """Tried in turn, up to the first at which the text is good; 0 always takes the likeliest token."""
    best_of: int = 1
    """TemperatureFallback at each temperature above 0, of which the likeliest counts."""
    seed: int = 0
    """The same seed draws the same tokens, whoever shares the batch."""
    compression_ratio_threshold: float = 2.4
    """Above this, or in a loop, a reading repeats itself …"""
    logprob_threshold: float = -1.0
    """… and below this it is too doubtful, both of which call for the next temperature …"""
    no_speech_threshold: float = 0.6
    """… unless it is doubtful where the model, with more probability than this, hears nobody speak."""


MAX_TEMPERATURES = 8
MAX_TEMPERATURE = 2.0
MAX_BEST_OF = 10
"""Of one window."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How one window is to be decoded. Windows with different options share a batch."""

    language: str | None = None
    """A code of `ModelInfo.languages` such as "en"; `None` lets the model detect it."""
    task: Task = "transcribe"
    timestamps: bool = True
    """Let the model mark segments with timestamp tokens; without them the window is one segment."""
    previous_text: str = ""
    """Text before this window; the model sees its last tokens behind `<|startofprev|>`."""
    prefix: tuple[int, ...] = ()
    """Tokens, timestamps included, that the output is forced to begin with: what was already committed."""
    draft: tuple[int, ...] = ()
    """Tokens that are likely to follow the prefix, timestamps included: the last reading of the same speech. They are
    checked in one pass and taken as far as they are what would be decoded, so that they save steps and change nothing.
    """
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect: shown to the model before the previous text, and made somewhat likelier.

    At most `MAX_HOTWORDS`, of 1 to `MAX_HOTWORD_BYTES` bytes each.
    """
    word_times: bool = False
    """Say of every word when it was said and how likely it is. Segments then come at the end of the window."""
    attention_times: bool = False
    """Say of every word behind the prefix where the alignment heads looked as it was decoded (`Piece.attention_peak_s`).

    Costs next to nothing, and is coarser than `word_times`.
    """
    max_tokens: int | None = None
    """Most tokens to decode, the prefix included; `None` is as many as the model has positions for."""
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Audio given to the engine once: mono float32 in [-1, 1] at 16 kHz, 1 to `WINDOW_SAMPLES` samples."""

    samples: NDArray[np.float32]
    session: str
    """Windows of one session share one fair place in the queue."""
    channel: int = 0
    """A newer interim of the same session and channel replaces an older one that still waits."""
    priority: Priority = Priority.FINAL
    options: DecodeOptions = field(default_factory=DecodeOptions)

    @property
    def is_interim(self) -> bool:
        """More of its audio is still to come, and its text may change."""
        return self.priority is Priority.INTERIM


@dataclass(frozen=True, slots=True)
class Piece:
    """A word (with its leading space, if its script has any) or a timestamp: the smallest part to commit."""

    tokens: tuple[int, ...]
    text: str
    """Empty for a timestamp."""
    at_s: float | None = None
    """A timestamp's time from the start of the window; `None` for a word."""
    attention_peak_s: float | None = None
    """How far into the window the alignment heads looked while the word was written, if `attention_times` asked."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a segment; times in seconds from the start of the window, never decreasing from word to word."""

    text: str
    """With its leading space, if its script has any, and its punctuation: the words add up to the segment's text."""
    start_s: float
    end_s: float
    probability: float
    """Mean of its tokens' probabilities."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Text between two timestamp tokens; times in seconds from the start of the window."""

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...]
    avg_logprob: float
    """Mean log-probability of the sampled tokens; 0.0 where all of them were forced by the prefix."""
    compression_ratio: float
    """Bytes of the text over its bytes after zlib; above 2.4 is repetition."""
    no_speech_prob: float
    words: tuple[Word, ...] | None = None
    """`None` unless word times were asked for."""
    temperature: float = 0.0
    """At which its tokens were drawn."""


@dataclass(frozen=True, slots=True)
class StartedEvent:
    """The window has left the queue: its encoder batch begins. Always the first event, unless superseded."""

    queued_s: float
    batch_size: int
    """Windows in the same encoder call."""


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment whose closing timestamp has just been decoded, or, at the end of the window, the open last one.

    With word times, all come at the end of the window.
    """

    segment: Segment
    language: str | None = None
    """As in `DoneEvent`."""


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The window is decoded. Terminal."""

    text: str
    pieces: tuple[Piece, ...]
    """All words and timestamps in order, forced prefix included; their tokens make a valid `prefix`."""
    segments: tuple[Segment, ...]
    language: str | None
    """`None` for a checkpoint that knows only one language and does not say which."""
    no_speech_prob: float
    avg_logprob: float
    compression_ratio: float
    is_truncated: bool
    """The token limit ended the text, not the model."""
    n_steps: int
    """Decode steps taken after prefill, in all readings."""
    is_repetitive: bool = False
    """The text began to repeat itself and was stopped: the open segment ends with the first round."""
    temperature: float = 0.0
    """At which the tokens were drawn."""
    language_probabilities: Mapping[str, float] | None = None
    """Of every language, adding up to 1, where it was detected."""


@dataclass(frozen=True, slots=True)
class SupersededEvent:
    """A newer interim of the same channel took this one's place in the queue. Terminal; nothing was decoded."""


EngineEvent = StartedEvent | SegmentEvent | DoneEvent | SupersededEvent


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is loaded, for greetings, `/v1/models` and the command line."""

    name: str
    device: str
    dtype: str
    is_multilingual: bool
    languages: tuple[str, ...]
    """Codes that `DecodeOptions.language` may name, in the checkpoint's order."""
    tasks: tuple[Task, ...]
    n_parameters: int
    n_slots: int
    """Sequences that can be decoded at the same time."""
    max_encode_batch: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observations per bucket: `counts[i]` are those at most `edges[i]`, the last those above every edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    """Sum of all observed values."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine's counters, cumulative since the start except where a field says otherwise."""

    waiting_finals: int
    """Now in the queue."""
    waiting_interims: int
    """Now in the queue."""
    running: int
    """Sequences being decoded now."""
    encode_batch: Histogram
    """Windows per encoder call."""
    decode_batch: Histogram
    """Running sequences per decode step."""
    final_queue_s: Histogram
    """Seconds a final waited for its encoder call."""
    interim_queue_s: Histogram
    encode_s: Histogram
    """Seconds per encoder call."""
    step_s: Histogram
    """Seconds per decode step."""
    windows_done: int
    windows_superseded: int
    windows_cancelled: int
    tokens_decoded: int
    tokens_drafted: int
    """Of drafts that were checked."""
    tokens_accepted: int
    """Of drafts: each saved a decode step."""
    audio_s: float
    """Seconds of audio encoded, without padding."""


class Transcriber(Protocol):
    """What the service needs of an engine. All methods are called on one event loop."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def is_alive(self) -> bool:
        """False once the engine has failed or was closed; every `submit` then raises `EngineFailed`.

        In another process it may be replaced: it is alive again then, and finals wait for that.
        """
        ...

    def submit(self, window: Window) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """Queue a window; its events end with one terminal event.

        Leaving the context early cancels the window and frees its slot. Cancelling the task that iterates is safe.

        Raises, on entry:
            InvalidWindow: the window or its options cannot be decoded by this model.
            EngineOverloaded: the queue is full.
            EngineFailed: the engine has died. Raised while iterating, too.
        """
        ...

    def stats(self) -> EngineStats: ...
