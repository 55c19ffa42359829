"""What a reader of live captions saw, whichever server made them, and how late each word of the reference was. No I/O.

A word counts where it belongs: every text is aligned with the words that have begun by then, so that a stray "the"
does not stand for one three sentences later.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import Said
from benchmarks.scoring import matches, words

EARLY_S = 0.5
"""A word may be shown so long before its reckoned beginning: inside an utterance that is interpolated."""


@dataclass(frozen=True, slots=True)
class Caption:
    """All text of a session as it stood at one moment."""

    at: float
    """Arrival, as `time.monotonic` has it."""
    shown: str
    stable: str
    """The part of it, from its beginning, that the server says will not change."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    word: str
    start_s: float
    end_s: float


@dataclass(slots=True)
class WordDelays:
    """Seconds from the end of a word to its arrival; infinite for words that never came. They add up over streams."""

    seen_s: list[float] = field(default_factory=list)
    """To the first text that has it in its place."""
    shown_s: list[float] = field(default_factory=list)
    """To the first text that has it and behind which it is never lost again."""
    stable_s: list[float] = field(default_factory=list)
    """To its being shown for good in the part that will not change."""
    n_revised: int = 0
    """Words shown that the next text did not have."""
    n_taken_back: int = 0
    """The same of words that were said not to change."""

    def add(self, other: "WordDelays") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def measure_words(captions: Sequence[Caption], spoken: Sequence[SpokenWord], begun: float) -> WordDelays:
    """Of one session, whose first sample was spoken at `begun`."""
    starts_s = [word.start_s for word in spoken]
    shown, stable = _History(spoken), _History(spoken)
    for caption in captions:
        n_begun = bisect_right(starts_s, caption.at - begun + EARLY_S)
        shown.add(caption.at, caption.shown, n_begun)
        stable.add(caption.at, caption.stable, n_begun)
    ends = [begun + word.end_s for word in spoken]
    return WordDelays(
        [at - end for at, end in zip(shown.first, ends, strict=True)],
        [at - end for at, end in zip(shown.since, ends, strict=True)],
        [at - end for at, end in zip(stable.since, ends, strict=True)],
        shown.n_lost,
        stable.n_lost,
    )


def spoken_words(said: Iterable[Said]) -> list[SpokenWord]:
    """Every word of the reference and when it is said.

    An utterance's last word ends with its speech. The others' ends are interpolated by letters over its spans of
    speech, which is right to about 0.2 s for synthetic voices.
    """
    found = []
    for each in said:
        spoken = words(each.text)
        speech_s = sum(end - start for start, end in each.spans)
        n_letters = sum(map(len, spoken))
        start_s = each.start_s
        for word, so_far in zip(spoken, itertools.accumulate(map(len, spoken)), strict=True):
            end_s = _at(each.spans, speech_s * so_far / n_letters)
            found.append(SpokenWord(word, start_s, end_s))
            start_s = end_s
    return found


class _History:
    """Which words of the reference a growing text has had, and since when."""

    def __init__(self, spoken: Sequence[SpokenWord]) -> None:
        self.first = [math.inf] * len(spoken)
        self.since = [math.inf] * len(spoken)
        self.n_lost = 0
        self._aligner = PrefixAligner([word.word for word in spoken])
        self._words: list[str] = []
        self._found: set[int] = set()
        self._n_begun = 0

    def add(self, at: float, text: str, n_begun: int) -> None:
        heard = words(text)
        if heard == self._words and (n_begun == self._n_begun or not heard):
            return
        n_same = _n_common(heard, self._words)
        self.n_lost += len(self._words) - n_same - len(matches(self._words[n_same:], heard[n_same:]))
        self._words, self._n_begun = heard, n_begun
        found = set(self._aligner.align(heard, n_begun))
        for index in self._found - found:
            self.since[index] = math.inf
        for index in found - self._found:
            self.since[index] = at
            self.first[index] = min(self.first[index], at)
        self._found = found


class PrefixAligner:
    """Aligns texts that grow at their end with the beginning of a reference.

    The table of edit costs is kept for what a text has in common with the one before it: a session of an hour costs
    no more for a text than its new words.
    """

    def __init__(self, reference: Sequence[str]) -> None:
        self._ids: dict[str, int] = {}
        self._reference = np.array([self._id(word) for word in reference], np.int64)
        self._steps = np.arange(len(reference) + 1)
        self._heard: list[int] = []
        self._rows: list[NDArray[np.int64]] = [self._steps]

    def align(self, heard: Sequence[str], n_reference: int) -> list[int]:
        """The words among the first `n_reference` of the reference that stand in `heard`, by their places.

        Where there is a choice, the earlier ones.
        """
        ids = [self._id(word) for word in heard]
        n_same = _n_common(ids, self._heard)
        del self._rows[n_same + 1 :]
        for i, word in enumerate(ids[n_same:], n_same + 1):
            above = self._rows[-1]
            best = np.minimum(above[:-1] + (self._reference != word), above[1:] + 1)
            # What is missing costs one for each word from wherever it is cheapest to begin.
            self._rows.append(np.minimum.accumulate(np.concatenate(([i], best)) - self._steps) + self._steps)
        self._heard = ids
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
    """How many items both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _at(spans: tuple[tuple[float, float], ...], speech_s: float) -> float:
    """When so much of the speech is over."""
    ends = list(itertools.accumulate(end - start for start, end in spans))
    index = next((i for i, end in enumerate(ends) if end >= speech_s - 1e-9), len(spans) - 1)
    return spans[index][1] - (ends[index] - speech_s)
