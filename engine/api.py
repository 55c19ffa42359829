"""The boundary of the engine: windows go in, events come out, and `Transcriber` says how to ask.

Everything that crosses it is plain data, so that the engine may be in another process. Importing this module does not
import torch.
"""

import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, Protocol

from tutti_server.engine.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLE_RATE = 16_000
"""Samples of audio per second."""
WINDOW_S = 30
"""The length of a full window in seconds: that of Whisper's training examples."""
WINDOW_SAMPLES = WINDOW_S * SAMPLE_RATE

MAX_HOTWORDS = 64
"""The most hotwords that one window may have."""
MAX_HOTWORD_BYTES = 47
"""The most bytes that one hotword may have in UTF-8."""
LEAST_LANGUAGE_PROBABILITY = 0.05
"""Where languages are compared, a probability below this counts as this.

The detector is far too certain of short and unclear speech. So the odds of one window are at most 20 to 1.
"""

Task = Literal["transcribe", "translate"]


class Priority(IntEnum):
    """What a window is for. `engine/scheduling/batcher.py` decides the order in which windows are served by it."""

    FINAL = 0
    """A final of a live session."""
    SPECULATIVE = 1
    """A final of an utterance that has probably ended. It is encoded as a final is."""
    FILE = 2
    """A final of a recording. Files and interims share the time that the others leave."""
    INTERIM = 3

    @property
    def may_be_dropped(self) -> bool:
        """Whether the service can do without the text of such a window."""
        return self in (Priority.SPECULATIVE, Priority.INTERIM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are sampled, and when a window is decoded again. Only the attempt that counts is handed out.

    With one temperature, attempt and beam, which is the default, segments are emitted while the window is decoded,
    unless it may be decoded in two languages; otherwise at its end. The thresholds are those of openai/whisper,
    whisper/transcribe.py.
    """

    temperatures: tuple[float, ...] = (0.0,)
    """Tried one after the other, up to the first at which the text is good; 0 always takes the likeliest token."""
    best_of: int = 1
    """Decoding attempts at each temperature above 0; the likeliest of them counts."""
    beam_size: int = 1
    """Beams at temperature 0: the likeliest beginnings of the text that are decoded side by side; 1 is greedy.

    Each takes a slot of the engine. The text that a search decodes comes at its end, and the draft is not used.
    """
    sure_logprob: float | None = None
    """With beams: decode greedily as long as each text token is at least this likely, and search from the first below.

    The tokens before it stay, and the draft is used up to there. Punctuation counts as sure. `None` searches from the
    beginning. It is a log-probability, below 0.
    """
    patience: float = 1.0
    """A beam search ends when `beam_size` times this many hypotheses have ended, rounded; above 1 it looks further."""
    length_penalty: float | None = None
    """The hypothesis with the highest log-probability over a penalty for its length counts.

    The penalty is `((5 + tokens) / 6) ** length_penalty`; for `None` it is the number of tokens, as in openai/whisper.
    """
    compression_ratio_threshold: float = 2.4
    """A text that compresses better than this, or ends in a repetition, asks for the next temperature."""
    logprob_threshold: float = -1.0
    """A text whose mean log-probability is below this asks for the next temperature."""
    no_speech_threshold: float = 0.6
    """The exception: a text below `logprob_threshold` is accepted where the no-speech probability is above this."""


MAX_TEMPERATURES = 8
"""The most temperatures that one window may have."""
MAX_TEMPERATURE = 2.0
"""The highest temperature that a window may ask for."""
MAX_BEST_OF = 10
"""The most decoding attempts of one window at one temperature."""
MAX_BEAM_SIZE = 10
"""The most beams of one window."""
MAX_PATIENCE = 10.0
"""The highest patience of a beam search."""
MAX_LENGTH_PENALTY = 10.0
"""The highest length penalty of a beam search, and with a minus the lowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """How one window is to be decoded. Windows with different options share a batch."""

    language: str | None = None
    """A code of `ModelInfo.languages` such as "en"; `None` lets the model detect it."""
    languages: tuple[str, ...] = ()
    """The candidates of the detection: their probabilities add up to 1. Empty for all languages of the model.

    Where `language` is given, they do not change it: then their probabilities are reported, which are not otherwise.
    """
    language_bias: tuple[tuple[str, float], ...] = ()
    """What is known already: languages, and what is added to the log-probability of each before the likeliest is taken.

    The reported probabilities do not contain it. Only for `language=None`.
    """
    task: Task = "transcribe"
    translates: bool = False
    """Whether the window is also translated to English, from the same encoding: a `TranslatedEvent` after its text.

    There is none if the window is English or has no text. The translation is that of `task="translate"`, decoded from
    the audio alone: without prefix, previous text and hotwords.
    """
    timestamps: bool = True
    """Let the model mark segments with timestamp tokens; without them the window is one segment."""
    previous_text: str = ""
    """The text before this window; the model is shown its last tokens, after `<|startofprev|>`."""
    prefix: tuple[int, ...] = ()
    """The tokens, timestamps included, that the output is forced to begin with: what was already committed."""
    draft: tuple[int, ...] = ()
    """Draft tokens, which are likely to follow the prefix: the last hypothesis of the same speech, with timestamps.

    They are verified in one pass, and accepted as far as they are what would be decoded. They save decode steps and
    change nothing.
    """
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect: their tokens become a little likelier.

    At most `MAX_HOTWORDS`, of 1 to `MAX_HOTWORD_BYTES` bytes each.
    """
    word_times: bool = False
    """Give the time and the probability of every word. Segments are then emitted at the end of the window."""
    attention_times: bool = False
    """Give `Piece.attention_peak_s` for every word after the prefix.

    It costs almost nothing, and is coarser than `word_times`.
    """
    latest_end_s: float | None = None
    """Where a timestamp ends the text before this time, `DoneEvent.text_end_s` says how far it reaches.

    In seconds of the window; `None` to believe the timestamps.
    """
    max_tokens: int | None = None
    """The most tokens to decode, the prefix included; `None` for as many as the model has positions for.

    Where this limit ends a text, the end time of its last segment is the end of the audio, unless `word_times` is set.
    """
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Window:
    """Audio given to the engine once: mono float32 in [-1, 1] at 16 kHz, 1 to `WINDOW_SAMPLES` samples."""

    samples: "NDArray[np.float32]"
    session: str
    """The windows of one session share one place in the turns that sessions take."""
    channel: int = 0
    """A newer interim replaces an older one of the same session and channel that still waits."""
    priority: Priority = Priority.FINAL
    options: DecodeOptions = field(default_factory=DecodeOptions)

    @property
    def is_interim(self) -> bool:
        """Whether more of the window's audio follows, so that its text may change."""
        return self.priority is Priority.INTERIM


@dataclass(frozen=True, slots=True)
class Piece:
    """A word (with its leading space, if its script has any) or a timestamp: the smallest part to commit."""

    tokens: tuple[int, ...]
    text: str
    """The text of the tokens; empty for a timestamp."""
    at_s: float | None = None
    """A timestamp's time in seconds from the start of the window; `None` for a word."""
    attention_peak_s: float | None = None
    """The time in the window at which the attention of the alignment heads had its peak while the word was decoded.

    It is in seconds; `None` unless `attention_times` was asked for.
    """
    n_marks: int = field(default=0, kw_only=True, compare=False)
    """How many of its tokens, the last ones, are punctuation."""
    logprob: float | None = field(default=None, kw_only=True, compare=False)
    """The least log-probability of its tokens without the last `n_marks`.

    `None` for a timestamp, for punctuation alone, and where the prefix forced all of them. Pieces are equal without it:
    its last digits depend on what shares the batch.
    """
    marks_logprob: float | None = field(default=None, kw_only=True, compare=False)
    """The least log-probability of the last `n_marks` tokens: punctuation can be doubted where its word is certain."""

    @property
    def is_spoken(self) -> bool:
        """Whether it has anything but punctuation."""
        return self.at_s is None and self.n_marks < len(self.tokens)


def is_punctuation(text: str) -> bool:
    """Whether a text is punctuation, symbols and spaces alone."""
    return bool(text) and all(unicodedata.category(character)[0] in "PSZ" for character in text)


def text_logprob(pieces: Iterable[Piece]) -> float | None:
    """The mean over the sampled words of the least log-probability, punctuation included; `None` without words."""
    logprobs: list[float] = []
    for piece in pieces:
        least, marks = piece.logprob, piece.marks_logprob
        if least is None or (marks is not None and marks < least):
            least = marks
        if least is not None:
            logprobs.append(least)
    return sum(logprobs) / len(logprobs) if logprobs else None


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a segment; times in seconds from the start of the window, never decreasing from word to word."""

    text: str
    """The word with its leading space, if its script has any, and its punctuation.

    The words of a segment add up to its text.
    """
    start_s: float
    end_s: float
    probability: float
    """The mean of its tokens' probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Text between two timestamp tokens; times in seconds from the start of the window."""

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...]
    avg_logprob: float
    """The mean log-probability of the sampled tokens; 0.0 where the prefix forced all of them."""
    compression_ratio: float
    """Bytes of the text over its bytes after zlib; above 2.4 is repetition."""
    no_speech_prob: float
    words: tuple[Word, ...] | None = None
    """The words of the segment; `None` unless word times were asked for."""
    temperature: float = 0.0
    """The temperature at which its tokens were sampled."""
    text_logprob: float | None = None
    """What the function `text_logprob` computes; `None` where the prefix forced all words, or the engine does not tell.

    Timestamps do not count. Their probability is spread over neighbouring times, so that `avg_logprob` is low for one
    word that the model is sure of.
    """


@dataclass(frozen=True, slots=True)
class StartedEvent:
    """The window has left the queue: its encoder call begins. Always the first event, unless superseded."""

    queued_s: float
    """Seconds that it waited in the queue."""
    batch_size: int
    """Windows in the same encoder call."""
    engine: str = field(default="", compare=False)
    """The name of the engine that decodes it, where there are several."""


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment whose closing timestamp was just decoded, or, at the end of the window, the open last one.

    With word times, all segments are emitted at the end of the window.
    """

    segment: Segment
    language: str | None = None
    """The language of the window, as in `DoneEvent.language`."""
    language_probability: float | None = None
    """The probability of the language among the candidates; `None` unless the probabilities were detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTiming:
    """The time that a decoded window took, in seconds: four stages that follow one another without a gap."""

    queued_s: float
    """The time in the queue."""
    encode_s: float
    """The time from then to the prefill of its prompt. A GPU still encodes when that begins, and so prolongs it."""
    prefill_s: float
    """The prefill, up to the first token, with the detection of the language."""
    decode_s: float
    """Decode steps, further decoding attempts and the times of words, up to the last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneEvent:
    """The window is decoded. Terminal, unless `translation_follows`."""

    text: str
    pieces: tuple[Piece, ...]
    """All words and timestamps in order, forced prefix included; their tokens make a valid `prefix`."""
    segments: tuple[Segment, ...]
    language: str | None
    """`None` for a checkpoint that knows only one language and does not name it."""
    no_speech_prob: float
    avg_logprob: float
    compression_ratio: float
    is_truncated: bool
    """Whether the token limit ended the text, and not the model."""
    n_steps: int
    """Decode steps taken after prefill, in all attempts."""
    is_repetitive: bool = False
    """Whether the text began to repeat itself and was stopped: the open segment ends with the first round."""
    temperature: float = 0.0
    """The temperature at which the tokens were sampled."""
    language_probabilities: Mapping[str, float] | None = None
    """The probability of every candidate, adding up to 1; `None` unless they were detected."""
    last_text_logprob: float | None = None
    """The log-probability of the last text token: in a sentence that is complete, of its closing punctuation.

    `None` where no text was sampled after the prefix, or a repetition was cut.
    """
    end_logprob: float | None = None
    """The log-probability of the end token, against more text or another segment; `None` where no end was sampled."""
    text_end_s: float | None = None
    """Where the last word of the text ends by the model's attention, if `DecodeOptions.latest_end_s` asked for it."""
    timing: WindowTiming | None = field(default=None, compare=False)
    """The time of each stage. Events are equal without it: a window that is decoded again takes another time."""
    translation_follows: bool = False
    """Whether a `TranslatedEvent` comes after this event."""


@dataclass(frozen=True, slots=True)
class TranslatedEvent:
    """The window is translated, or will not be. Terminal; it follows the `DoneEvent` of the window's text."""

    done: DoneEvent | None
    """The translation, as the `DoneEvent` of a window with `task="translate"`; `None` if the engine was too busy."""


@dataclass(frozen=True, slots=True)
class SupersededEvent:
    """The interim or speculative final was dropped before it was decoded, or before it was translated. Terminal.

    A newer interim of the same session and channel took its place in the queue, or there is no engine that could decode
    it, because the engine's process has died.
    """


EngineEvent = StartedEvent | SegmentEvent | DoneEvent | TranslatedEvent | SupersededEvent


def is_terminal(event: EngineEvent) -> bool:
    """Whether no other event of the window follows."""
    if isinstance(event, DoneEvent):
        return not event.translation_follows
    return isinstance(event, TranslatedEvent | SupersededEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is known of a model before it is loaded."""

    name: str
    is_multilingual: bool
    languages: tuple[str, ...]
    """The codes that `DecodeOptions.language` may name, in the checkpoint's order."""
    tasks: tuple[Task, ...]
    adaptive_endpointing: bool = False
    """Whether adaptive endpointing was measured for this model, and found better than a fixed silence."""
    aliases: tuple[str, ...] = ()
    """More names that the operator gave the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo(ModelCard):
    """What is loaded, for greetings, `/v1/models` and the command line."""

    device: str
    dtype: str
    n_parameters: int
    n_slots: int
    """Sequences that can be decoded at the same time."""
    max_encode_batch: int
    """The most windows in one encoder call."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observations per bucket: `counts[i]` are those up to `edges[i]`, the last those above every edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    """The sum of all values that the histogram has counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStats:
    """What an engine's GPU does now. `None`: it is not known without the package nvidia-ml-py, or not for this GPU."""

    memory_total_bytes: int
    memory_reserved_bytes: int
    """Memory that the engine's process has taken for tensors."""
    memory_used_bytes: int | None = None
    """Memory that all programs on the GPU have taken."""
    utilization: float | None = None
    """The share of the last moment in which a kernel ran, 0 to 1."""
    power_w: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot of the engine's counters, cumulative since the start except where a field says otherwise."""

    waiting_finals: int
    """Finals that are in the queue now."""
    waiting_speculative: int
    """Speculative finals that are in the queue now."""
    waiting_files: int
    """Finals of files that are in the queue now."""
    waiting_interims: int
    """Interims that are in the queue now."""
    running: int
    """Sequences that are being decoded now."""
    encode_batch: Histogram
    """Windows per encoder call."""
    decode_batch: Histogram
    """Running sequences per decode step."""
    final_queue_s: Histogram
    """Seconds that each final waited for its encoder call."""
    speculative_queue_s: Histogram
    """Seconds that each speculative final waited for its encoder call."""
    file_queue_s: Histogram
    """Seconds that each final of a file waited for its encoder call."""
    interim_queue_s: Histogram
    """Seconds that each interim waited for its encoder call."""
    encode_s: Histogram
    """Seconds per encoder call."""
    step_s: Histogram
    """Seconds per decode step."""
    busy_s: float
    """Seconds of the device that encoder calls and decode steps took.

    On a CPU they run at the same time: each counts with its part of the cores.
    """
    final_busy_s: float
    """The part of `busy_s` that finals took, speculative ones and those of files included.

    A final is charged its part of a call or a step.
    """
    utterance_encode_s: float
    """Seconds of the device to encode the final window of an utterance of usual length, as measured lately."""
    window_decode_s: float
    """Seconds of the device for the steps of one window in a full batch, as measured lately."""
    work_waiting_s: float
    """Seconds of encoder and decode time that all windows which wait or run still need: when they would be done."""
    final_work_waiting_s: float
    """The part of it before a final that comes now: running windows, and finals that wait, speculative ones included.

    Finals overtake the interims and files that wait.
    """
    windows_done: int
    windows_superseded: int
    windows_cancelled: int
    tokens_decoded: int
    tokens_drafted: int
    """Draft tokens that were verified."""
    tokens_accepted: int
    """Draft tokens that were accepted: each saved a decode step."""
    audio_s: float
    """Seconds of audio encoded, without padding."""
    n_engines: int = 1
    """Engines that accept windows now. All seconds and counts are added up over them, but not the times of one window:
    `utterance_encode_s` and `window_decode_s` are means."""
    gpu: GpuStats | None = None
    """The engine's GPU, at most some seconds ago; `None` without one, and for several engines together."""
    engines: Mapping[str, "EngineStats"] = field(default_factory=dict)
    """The counters of each engine by its name, where there are several; empty for one engine."""
    unknown: tuple[str, ...] = ()
    """The names of further engines, which are down and whose counters are not known."""


class Transcriber(Protocol):
    """What the service needs of an engine. All methods are called on one event loop."""

    @property
    def info(self) -> ModelInfo:
        """The model that is loaded."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the engine runs. If it has failed or was closed, every `submit` raises `EngineFailed`.

        An engine in another process may be replaced: then this is true again, and finals wait for that.
        """
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the engine has ended for good: no other one replaces it, so the process has nothing to serve with."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some of several engines are given up while others run, in words for the operator; empty if none is."""
        ...

    def submit(self, window: Window) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """Queue a window; its events end with one terminal event.

        Leaving the context early cancels the window and frees its slot. Cancelling the task that iterates is safe.

        Raises, on entry:
            InvalidWindow: the window or its options cannot be decoded by this model.
            EngineOverloaded: there is no room for the window, which may be dropped. A final always has room: the caller
                bounds the number of finals, as it holds their audio in any case.
            EngineFailed: the engine has died. Also raised while iterating.
        """
        ...

    def stats(self) -> EngineStats:
        """Return the engine's counters."""
        ...


class CallbackTranscriber(Transcriber, Protocol):
    """A `Transcriber` that also gives events to a function, which costs less than a task and a queue for each window.

    The server of an engine process needs it (`cluster/local/engine_server.py`).
    """

    def begin(self, window: Window, put: Callable[[EngineEvent | EngineError], None]) -> Callable[[], None]:
        """Queue a window whose samples were checked already (`engine/validation.py`).

        Args:
            put: called on the event loop, after this has returned, with each event in order. Last comes a terminal
                event or an error, as `submit` raises it while iterating.

        Returns:
            a function that cancels the window and frees its slot. It has no effect on a window that has ended. Events
            that were on their way then may still come.

        Raises:
            EngineError: as `submit` does on entry.
        """
        ...
