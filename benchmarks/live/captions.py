"""Measures how late each word of the reference appears in live captions, for any server. No I/O.

A word counts only in its own place: every text is aligned with the reference words that have begun by then, so that a
stray "the" does not count as one three sentences later.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import ReferenceUtterance
from benchmarks.scoring import matches, words

EARLY_S = 0.5
"""Seconds by which a word may appear before its reference start, which is interpolated inside an utterance."""


@dataclass(frozen=True, slots=True)
class Caption:
    """The whole text of a session at one moment."""

    arrived_at: float
    """When the text arrived, on the clock of the session: `time.monotonic`, or seconds of audio."""
    shown: str
    stable: str
    """The beginning of `shown` that the server promises not to change."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    word: str
    start_s: float
    end_s: float


@dataclass(slots=True, kw_only=True)
class WordLatencies:
    """Seconds from the end of each word to its arrival, for one stream or several.

    Infinite for words that never arrived.
    """

    seen_s: list[float] = field(default_factory=list)
    """Until the first text that has the word in its place."""
    shown_s: list[float] = field(default_factory=list)
    """Until the first text from which on the word stays."""
    stable_s: list[float] = field(default_factory=list)
    """Until the first text from which on the word stays in the stable part."""
    n_revised: int = 0
    """Words that a text shows and the next text does not."""
    n_taken_back: int = 0
    """Words that the stable part of a text shows and the next stable part does not."""

    def add(self, other: "WordLatencies") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def measure_words(captions: Sequence[Caption], spoken: Sequence[SpokenWord], started_at: float) -> WordLatencies:
    """The word latencies of one session, whose first sample was spoken at `started_at`."""
    starts_s = [word.start_s for word in spoken]
    shown, stable = _History(spoken), _History(spoken)
    for caption in captions:
        n_begun = bisect_right(starts_s, caption.arrived_at - started_at + EARLY_S)
        shown.add(caption.arrived_at, caption.shown, n_begun)
        stable.add(caption.arrived_at, caption.stable, n_begun)
    ends = [started_at + word.end_s for word in spoken]
    return WordLatencies(
        seen_s=[time - end for time, end in zip(shown.first, ends, strict=True)],
        shown_s=[time - end for time, end in zip(shown.since, ends, strict=True)],
        stable_s=[time - end for time, end in zip(stable.since, ends, strict=True)],
        n_revised=shown.n_lost,
        n_taken_back=stable.n_lost,
    )


def spoken_words(utterances: Iterable[ReferenceUtterance]) -> list[SpokenWord]:
    """Every word of the reference with its start and end.

    The last word of an utterance ends with its speech. The ends of the other words are interpolated by letters over the
    speech spans, which is correct to about 0.2 s for synthetic voices.
    """
    found = []
    for each in utterances:
        spoken = words(each.text)
        speech_s = sum(end - start for start, end in each.spans)
        n_letters = sum(map(len, spoken))
        start_s = each.start_s
        for word, so_far in zip(spoken, itertools.accumulate(map(len, spoken)), strict=True):
            end_s = _time_at_speech(each.spans, speech_s * so_far / n_letters)
            found.append(SpokenWord(word, start_s, end_s))
            start_s = end_s
    return found


class _History:
    """Records which words of the reference a growing text holds, and since when."""

    def __init__(self, spoken: Sequence[SpokenWord]) -> None:
        # By word of the reference: the first time it was there, and the time since which it is there without a break.
        self.first = [math.inf] * len(spoken)
        self.since = [math.inf] * len(spoken)
        self.n_lost = 0
        self._aligner = PrefixAligner([word.word for word in spoken])
        self._words: list[str] = []
        self._found: set[int] = set()
        self._n_begun = 0

    def add(self, arrived_at: float, text: str, n_begun: int) -> None:
        """Add the next text; `n_begun` words of the reference have begun by then."""
        shown = words(text)
        if shown == self._words and (n_begun == self._n_begun or not shown):
            return
        n_same = _n_common(shown, self._words)
        self.n_lost += len(self._words) - n_same - len(matches(self._words[n_same:], shown[n_same:]))
        self._words, self._n_begun = shown, n_begun
        found = set(self._aligner.align(shown, n_begun))
        for index in self._found - found:
            self.since[index] = math.inf
        for index in found - self._found:
            self.since[index] = arrived_at
            self.first[index] = min(self.first[index], arrived_at)
        self._found = found


class PrefixAligner:
    """Aligns a growing text with the beginning of a reference.

    The table of edit costs is kept for the words that a text shares with the text before it, so that even after an hour
    a text costs no more than its new words.
    """

    def __init__(self, reference: Sequence[str]) -> None:
        self._ids: dict[str, int] = {}
        self._reference = np.array([self._id(word) for word in reference], np.int64)
        self._steps = np.arange(len(reference) + 1)
        self._aligned: list[int] = []
        self._rows: list[NDArray[np.int64]] = [self._steps]

    def align(self, shown: Sequence[str], n_reference: int) -> list[int]:
        """The indices of those among the first `n_reference` reference words that stand in `shown`.

        Where several alignments are equally good, the earlier words count.
        """
        ids = [self._id(word) for word in shown]
        n_same = _n_common(ids, self._aligned)
        del self._rows[n_same + 1 :]
        for i, word in enumerate(ids[n_same:], n_same + 1):
            above = self._rows[-1]
            best = np.minimum(above[:-1] + (self._reference != word), above[1:] + 1)
            # Missing words cost one each, counted from the position where starting is cheapest.
            self._rows.append(np.minimum.accumulate(np.concatenate(([i], best)) - self._steps) + self._steps)
        self._aligned = ids
        found = []
        i, j = len(ids), n_reference
        while i and j:
            here = self._rows[i][j]
            if here == self._rows[i][j - 1] + 1:
                j -= 1
            elif here == self._rows[i - 1][j - 1] + (ids[i - 1] != self._reference[j - 1]):
                i, j = i - 1, j - 1
                if ids[i] == self._reference[j]:
                    found.append(j)
            else:
                i -= 1
        return found[::-1]

    def _id(self, word: str) -> int:
        return self._ids.setdefault(word, len(self._ids))


def _n_common(a: Sequence[object], b: Sequence[object]) -> int:
    """The number of equal items at the beginning of both."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _time_at_speech(spans: tuple[tuple[float, float], ...], speech_s: float) -> float:
    """The time at which `speech_s` seconds of the speech in these spans are over."""
    ends = list(itertools.accumulate(end - start for start, end in spans))
    index = next((i for i, end in enumerate(ends) if end >= speech_s - 1e-9), len(spans) - 1)
    return spans[index][1] - (ends[index] - speech_s)
