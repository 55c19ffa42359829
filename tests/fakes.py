"""Fakes of the detector and the engine, and made-up speech that both of them understand.

A word is 200 ms of one level; its number is the level in hundredths. Between words lies silence. So the fake engine
knows exactly which words a window holds, and distinguishes a word that was cut in two from a whole one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from tutti_server.app.media.pcm import Samples, decode_samples
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.decoding.language import choose_language
from tutti_server.engine.errors import EngineError
from tutti_server.engine.scheduling.stats import StatsRecorder

WORD_SAMPLES = SAMPLE_RATE // 5
GAP_SAMPLES = SAMPLE_RATE * 80 // 1000
TIMESTAMP_BEGIN = 10_000
SENTENCE_GAP_SAMPLES = SAMPLE_RATE // 4
SLIVER_SAMPLES = SAMPLE_RATE // 50
"""Shorter sounds are ignored: timestamps have steps of 20 ms, so that the edge of a word may lie inside them."""

MODEL = api.ModelInfo(
    name="fake",
    device="cpu",
    dtype="float32",
    is_multilingual=True,
    languages=("en", "de"),
    tasks=("transcribe",),
    n_parameters=0,
    n_slots=8,
    max_encode_batch=4,
)


PATIENCE_S = 40.0
"""How long `until` waits, in seconds."""


async def until(holds: Callable[[], object]) -> None:
    """Run the other tasks until `holds()` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)


def word(number: int) -> Samples:
    return np.full(WORD_SAMPLES, (number + 1) / 100, dtype=np.float32)


def speech(numbers: Iterable[int], gap_samples: int = GAP_SAMPLES) -> Samples:
    """Words with a short gap after each."""
    parts = [part for number in numbers for part in (word(number), np.zeros(gap_samples, dtype=np.float32))]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def said(numbers: Iterable[int]) -> str:
    """The text of these words as the fake engine decodes them."""
    return " ".join(f"w{number}" for number in numbers)


def pcm(samples: Samples) -> bytes:
    return bytes(samples.astype("<f4").tobytes())


def slow_mulaw(samples: Samples) -> bytes:
    """Half as fast, as mu-law at 8 kHz: words last so long that they are whole again after resampling."""
    table = decode_samples(bytes(range(256)), "mulaw")
    levels, places = np.unique(samples, return_inverse=True)
    codes = np.abs(table - levels[:, None]).argmin(axis=1).astype(np.uint8)
    return bytes(codes[places].tobytes())


class LevelDetector:
    """Takes every frame that is not silent for speech."""

    memory_samples = 0

    def prepare(self, frames: Samples) -> None:
        pass

    def is_speech(self, frame: Samples) -> bool:
        return bool(np.abs(frame).max() > 0.001)

    def set_threshold(self, threshold: float | None) -> None:
        pass

    def renew(self) -> None:
        pass


@dataclass(frozen=True)
class _Word:
    token: int
    text: str
    start: int
    end: int


def _find_words(samples: Samples) -> list[_Word]:
    """The words of a window; one that is cut off at an edge is a piece ("p7")."""
    levels = np.round(samples * 100).astype(int)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], levels, [0]))))
    words = []
    for start, end in pairwise(edges):
        level = levels[start]
        if level == 0 or end - start < SLIVER_SAMPLES:
            continue
        is_whole = end - start >= WORD_SAMPLES
        token = int(2 * level + (not is_whole))
        words.append(_Word(token, f" {'w' if is_whole else 'p'}{level - 1}", int(start), int(end)))
    return words


def timestamp(sample: int) -> api.Piece:
    steps = round(sample / SAMPLE_RATE / 0.02)
    return api.Piece((TIMESTAMP_BEGIN + steps,), "", steps * 0.02)


def _forced(prefix: tuple[int, ...]) -> list[api.Piece]:
    def piece(token: int) -> api.Piece:
        if token >= TIMESTAMP_BEGIN:
            return api.Piece((token,), "", (token - TIMESTAMP_BEGIN) * 0.02)
        return api.Piece((token,), f" {'p' if token % 2 else 'w'}{token // 2 - 1}")

    return [piece(token) for token in prefix]


def decode(window: api.Window, lost: Container[int] = ()) -> list[api.EngineEvent]:
    """The engine's events for a window: the forced prefix, then the words after it, in timestamped segments.

    Args:
        window: the window.
        lost: indices within the window of words after the prefix that the engine misses.
    """
    pieces = _forced(window.options.prefix)
    n_forced = sum(piece.at_s is None for piece in pieces)
    words = [each for at, each in enumerate(_find_words(window.samples)) if at < n_forced or at not in lost]
    if words and not pieces:
        pieces.append(timestamp(words[0].start))
    for index, each in enumerate(words):
        if index < n_forced:
            continue
        if index and each.start - words[index - 1].end >= SENTENCE_GAP_SAMPLES:
            pieces += [timestamp(words[index - 1].end), timestamp(each.start)]
        pieces.append(api.Piece((each.token,), each.text))
    if words:
        pieces.append(timestamp(words[-1].end))
    options, language = window.options, window.options.language or "en"
    if options.task == "translate":
        pieces = in_english(pieces)
    made = as_events(pieces, options.word_times, language)
    if not (options.translates and words and language != "en"):
        return [api.StartedEvent(0.0, 1), *made]
    done, translation = made[-1], as_events(in_english(pieces), language=language)[-1]
    assert isinstance(done, api.DoneEvent) and isinstance(translation, api.DoneEvent)
    last: list[api.EngineEvent] = [replace(done, translation_follows=True), api.TranslatedEvent(translation)]
    return [api.StartedEvent(0.0, 1), *made[:-1], *last]


def in_english(pieces: list[api.Piece]) -> list[api.Piece]:
    """The translation of words: "e7" of "w7"."""
    return [replace(piece, text=piece.text.replace("w", "e")) for piece in pieces]


def _words(text: str, start_s: float, end_s: float) -> tuple[api.Word, ...]:
    """The words of a segment, all equally long."""
    words = text.split()
    step_s = (end_s - start_s) / len(words)
    return tuple(
        api.Word(f" {each}", start_s + at * step_s, start_s + (at + 1) * step_s, 0.75) for at, each in enumerate(words)
    )


def segment(
    text: str,
    start_s: float = 0.0,
    end_s: float = 1.0,
    *,
    logprob: float = -0.1,
    text_logprob: float | None = None,
    no_speech_prob: float = 0.0,
    compression_ratio: float = 1.0,
    words: tuple[api.Word, ...] | None = None,
) -> api.Segment:
    """A segment of the engine."""
    return api.Segment(
        start_s=start_s,
        end_s=end_s,
        text=text,
        tokens=(1,),
        avg_logprob=logprob,
        compression_ratio=compression_ratio,
        no_speech_prob=no_speech_prob,
        words=words,
        text_logprob=text_logprob,
    )


def done(
    text: str,
    *segments: api.Segment,
    pieces: tuple[api.Piece, ...] = (),
    language: str = "en",
    no_speech_prob: float = 0.0,
) -> api.DoneEvent:
    """The last event of a window, which the model has some doubts about."""
    return api.DoneEvent(
        text=text,
        pieces=pieces,
        segments=segments,
        language=language,
        no_speech_prob=no_speech_prob,
        avg_logprob=-0.5,
        compression_ratio=1.0,
        is_truncated=False,
        n_steps=1,
    )


def as_events(pieces: list[api.Piece], word_times: bool = False, language: str = "en") -> list[api.EngineEvent]:
    segments: list[api.Segment] = []
    start_s, text = 0.0, ""
    tokens: list[int] = []
    for piece in pieces:
        if piece.at_s is None:
            text += piece.text
            tokens += piece.tokens
        elif text:
            timed = _words(text, start_s, piece.at_s) if word_times else None
            segments.append(replace(segment(text, start_s, piece.at_s, words=timed), tokens=tuple(tokens)))
            start_s, text, tokens = piece.at_s, "", []
        else:
            start_s = piece.at_s
    assert not text
    words = "".join(piece.text for piece in pieces)
    last = replace(
        done(words, *segments, pieces=tuple(pieces), language=language),
        avg_logprob=-0.1,
        n_steps=len(pieces),
        last_text_logprob=-0.1 if words else None,
        end_logprob=-0.01,
        timing=api.WindowTiming(queued_s=0.004, encode_s=0.003, prefill_s=0.002, decode_s=0.001),
    )
    return [*(api.SegmentEvent(each, language) for each in segments), last]


def detected(
    window: api.Window, events: list[api.EngineEvent], probabilities: Mapping[str, float]
) -> list[api.EngineEvent]:
    """The events of a window as an engine gives them that detects these probabilities of languages, if it is asked."""
    options = window.options
    if options.language is not None and not options.languages:
        return events
    possible = {each: share for each, share in probabilities.items() if each in (options.languages or probabilities)}
    shares = {each: share / sum(possible.values()) for each, share in possible.items()}
    language = options.language or choose_language(shares, dict(options.language_bias))
    return [
        replace(event, language=language, language_probability=shares[language])
        if isinstance(event, api.SegmentEvent)
        else replace(event, language=language, language_probabilities=shares)
        if isinstance(event, api.DoneEvent)
        else event
        for event in events
    ]


class FakeSession:
    """A live session that does nothing."""

    def drain(self) -> None: ...

    def abandon(self) -> None: ...


@dataclass(kw_only=True)
class FakeTranscriber:
    """An engine that answers at once, or after `release`; it counts the windows that are open."""

    info: api.ModelInfo = MODEL
    is_alive: bool = True
    is_lost: bool = False
    problems: tuple[str, ...] = ()
    error: EngineError | None = None
    """Raised by every submission."""
    holds: bool = False
    """Windows wait for `release`."""
    lost: Container[int] = ()
    """Indices of the words that the first window misses."""
    queued_s: float = 0.0
    """How long windows have waited in the queue, in seconds, by its events."""
    detector: Callable[[api.Window], Mapping[str, float]] | None = None
    """The probabilities of languages in a window; `None`: every window is English, and none are reported."""
    windows: list[api.Window] = field(default_factory=list)
    n_open: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first window."""
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.holds = False
        self._released.set()

    @asynccontextmanager
    async def submit(self, window: api.Window) -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
        self._open(window)
        try:
            yield self._events(window)
        finally:
            self._close()

    def begin(self, window: api.Window, put: Callable[[api.EngineEvent | EngineError], None]) -> Callable[[], None]:
        self._open(window)
        task = asyncio.create_task(self._put_events(window, put))
        task.add_done_callback(lambda _: self._close())

        def cancel() -> None:
            task.cancel()

        return cancel

    async def _put_events(self, window: api.Window, put: Callable[[api.EngineEvent | EngineError], None]) -> None:
        try:
            async for event in self._events(window):
                put(event)
        except EngineError as error:
            put(error)

    def _open(self, window: api.Window) -> None:
        if self.error:
            raise self.error
        self.windows.append(window)
        self.n_open += 1
        self.opened.set()

    def _close(self) -> None:
        self.n_open -= 1

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        if self.holds:
            await self._released.wait()
        events = decode(window, self.lost if window is self.windows[0] else ())
        for event in detected(window, events, self.detector(window)) if self.detector else events:
            yield replace(event, queued_s=self.queued_s) if isinstance(event, api.StartedEvent) else event

    def stats(self) -> api.EngineStats:
        stats = StatsRecorder().snapshot(
            n_waiting=lambda priority: 0,
            running=self.n_open,
            utterance_encode_s=0.001,
            window_decode_s=0.001,
            work_waiting_s=0.002 * self.n_open,
            final_work_waiting_s=0.002 * self.n_open,
        )
        return replace(stats, windows_done=len(self.windows))
