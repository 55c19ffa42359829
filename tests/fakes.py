"""Stand-ins for the detector and the engine, and the made-up speech that both of them understand.

A word is 200 ms of one level; its number is the level in hundredths. Between words lies silence. So the fake engine can
say exactly which words a window holds, and tells a word that was cut in two from a whole one.
"""

import asyncio
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from app.media.pcm import Samples, decode_samples
from engine import api
from engine.api import SAMPLE_RATE
from engine.errors import EngineError

WORD_SAMPLES = SAMPLE_RATE // 5
GAP_SAMPLES = SAMPLE_RATE * 80 // 1000
TIMESTAMP_BEGIN = 10_000
SENTENCE_GAP_SAMPLES = SAMPLE_RATE // 4
# Times are in steps of 20 ms, so a sliver of the next word may lie inside them; it is no sound of its own.
SLIVER_SAMPLES = SAMPLE_RATE // 50

EMPTY_HISTOGRAM = api.Histogram((1.0,), (0, 0), 0.0)
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


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)


def word(number: int) -> Samples:
    return np.full(WORD_SAMPLES, (number + 1) / 100, dtype=np.float32)


def speech(numbers: Iterable[int], gap_samples: int = GAP_SAMPLES) -> Samples:
    """Words with a short gap behind each."""
    parts = [part for number in numbers for part in (word(number), np.zeros(gap_samples, dtype=np.float32))]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def said(numbers: Iterable[int]) -> str:
    """The text of these words as the fake engine reads them."""
    return " ".join(f"w{number}" for number in numbers)


def pcm(samples: Samples) -> bytes:
    return bytes(samples.astype("<f4").tobytes())


def slow_mulaw(samples: Samples) -> bytes:
    """The same, twice as slow and at 8 kHz as mu-law: so long that words are whole again after resampling."""
    table = decode_samples(bytes(range(256)), "mulaw")
    levels, places = np.unique(samples, return_inverse=True)
    codes = np.abs(table - levels[:, None]).argmin(axis=1).astype(np.uint8)
    return bytes(codes[places].tobytes())


class LevelDetector:
    """Hears speech wherever a frame is not silent."""

    def is_speech(self, frame: Samples) -> bool:
        return bool(np.abs(frame).max() > 0.001)


@dataclass(frozen=True)
class _Heard:
    token: int
    text: str
    start: int
    end: int


def _hear(samples: Samples) -> list[_Heard]:
    """The words of a window; one that is cut off at an edge is read as a piece ("p7")."""
    levels = np.round(samples * 100).astype(int)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], levels, [0]))))
    heard = []
    for start, end in pairwise(edges):
        level = levels[start]
        if level == 0 or end - start < SLIVER_SAMPLES:
            continue
        is_whole = end - start >= WORD_SAMPLES
        token = int(2 * level + (not is_whole))
        heard.append(_Heard(token, f" {'w' if is_whole else 'p'}{level - 1}", int(start), int(end)))
    return heard


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
    """What the engine would say of a window: the forced prefix, then the words behind it, in timestamped segments.

    Args:
        lost: the words behind the prefix that it passes over, by their places in the window.
    """
    pieces = _forced(window.options.prefix)
    n_forced = sum(piece.at_s is None for piece in pieces)
    heard = [each for at, each in enumerate(_hear(window.samples)) if at < n_forced or at not in lost]
    if heard and not pieces:
        pieces.append(timestamp(heard[0].start))
    for index, each in enumerate(heard):
        if index < n_forced:
            continue
        if index and each.start - heard[index - 1].end >= SENTENCE_GAP_SAMPLES:
            pieces += [timestamp(heard[index - 1].end), timestamp(each.start)]
        pieces.append(api.Piece((each.token,), each.text))
    if heard:
        pieces.append(timestamp(heard[-1].end))
    return [api.StartedEvent(0.0, 1), *as_events(pieces, window.options.word_times)]


def _words(text: str, start_s: float, end_s: float) -> tuple[api.Word, ...]:
    """All equally long."""
    said = text.split()
    step_s = (end_s - start_s) / len(said)
    return tuple(
        api.Word(f" {word}", start_s + at * step_s, start_s + (at + 1) * step_s, 0.75) for at, word in enumerate(said)
    )


def as_events(pieces: list[api.Piece], word_times: bool = False) -> list[api.EngineEvent]:
    segments: list[api.Segment] = []
    start_s, text = 0.0, ""
    tokens: list[int] = []
    for piece in pieces:
        if piece.at_s is None:
            text += piece.text
            tokens += piece.tokens
        elif text:
            timed = _words(text, start_s, piece.at_s) if word_times else None
            segments.append(api.Segment(start_s, piece.at_s, text, tuple(tokens), -0.1, 1.0, 0.0, timed))
            start_s, text, tokens = piece.at_s, "", []
        else:
            start_s = piece.at_s
    assert not text
    words = "".join(piece.text for piece in pieces)
    done = api.DoneEvent(words, tuple(pieces), tuple(segments), "en", 0.0, -0.1, 1.0, False, len(pieces))
    return [*(api.SegmentEvent(segment, "en") for segment in segments), done]


@dataclass(kw_only=True)
class FakeTranscriber:
    """An engine that answers at once, or when `release` says so; counts what is open."""

    info: api.ModelInfo = MODEL
    is_alive: bool = True
    error: EngineError | None = None
    """Raised by every submission."""
    holds: bool = False
    """Windows wait for `release`."""
    lost: Container[int] = ()
    """AdmissionCounter of the words that the first window passes over."""
    queued_s: float = 0.0
    """What windows are told to have waited."""
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
        if self.error:
            raise self.error
        self.windows.append(window)
        self.n_open += 1
        self.opened.set()
        try:
            yield self._events(window)
        finally:
            self.n_open -= 1

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        if self.holds:
            await self._released.wait()
        for event in decode(window, self.lost if window is self.windows[0] else ()):
            yield replace(event, queued_s=self.queued_s) if isinstance(event, api.StartedEvent) else event

    def stats(self) -> api.EngineStats:
        e = EMPTY_HISTOGRAM
        return api.EngineStats(0, 0, self.n_open, e, e, e, e, e, e, len(self.windows), 0, 0, 0, 0, 0, 0.0)
