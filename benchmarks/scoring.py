"""Word errors and percentiles."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words(text: str) -> list[str]:
    """Lower case, without punctuation; numbers as they are written. For finding words, not for scoring."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def normalise(text: str, language: str = "en") -> list[str]:
    """The words of a text as the Whisper paper scores them ("one hundred and five" is "105").

    The table of British and American spellings is left empty: the checkpoint need not have one. Languages other than
    English lose case and punctuation only.
    """
    return _plain_normaliser(language)(text)


def normaliser(language: str, spellings: Mapping[str, str]) -> Callable[[str], list[str]]:
    """`normalise` for one language; if that is English, with a table of British spellings and their American ones."""
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

    clean: Any = EnglishTextNormalizer(dict(spellings)) if language == "en" else BasicTextNormalizer()
    return lambda text: str(clean(text)).split()


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Differences of a text from its reference. They add up over texts."""

    substituted: int = 0
    missing: int = 0
    """Words of the reference that nothing stands for."""
    inserted: int = 0
    words: int = 0
    """In the reference."""

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    @property
    def rate(self) -> float | None:
        return (self.substituted + self.missing + self.inserted) / self.words if self.words else None

    @property
    def missing_rate(self) -> float | None:
        return self.missing / self.words if self.words else None


def word_errors(reference: str, text: str) -> WordErrors:
    return count_errors(normalise(reference), normalise(text))


def count_errors(expected: Sequence[str], heard: Sequence[str]) -> WordErrors:
    """Of words that are normalised already."""
    pairs = align(expected, heard)
    n_hits = sum(a is not None and b is not None and expected[a] == heard[b] for a, b in pairs)
    n_missing = sum(b is None for _, b in pairs)
    n_inserted = sum(a is None for a, _ in pairs)
    return WordErrors(len(pairs) - n_hits - n_missing - n_inserted, n_missing, n_inserted, len(expected))


def align(a: Sequence[str], b: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Indices of `a` and `b` side by side with the fewest edits; `None` where the other has nothing."""
    costs = [list(range(len(b) + 1))]
    for i, word in enumerate(a, 1):
        above, row = costs[-1], [i]
        for j, other in enumerate(b, 1):
            row.append(min(above[j - 1] + (word != other), above[j] + 1, row[j - 1] + 1))
        costs.append(row)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(a), len(b)
    while i or j:
        here = costs[i][j]
        if i and j and here == costs[i - 1][j - 1] + (a[i - 1] != b[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and here == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


def matches(a: Sequence[str], b: Sequence[str]) -> dict[int, int]:
    """Which words of `a` stand in `b`, and where."""
    return {i: j for i, j in align(a, b) if i is not None and j is not None and a[i] == b[j]}


def edit_distance(a: str, b: str) -> int:
    """The fewest characters to change, drop or put in. For texts that are too long to be aligned."""
    letters = np.frombuffer(b.encode("utf-32-le"), np.uint32)
    steps = np.arange(len(letters) + 1)
    row = steps
    for i, letter in enumerate(np.frombuffer(a.encode("utf-32-le"), np.uint32), 1):
        best = np.minimum(row[:-1] + (letters != letter), row[1:] + 1)
        # What is put in costs one for each letter from wherever it is cheapest to begin.
        row = np.minimum.accumulate(np.concatenate(([i], best)) - steps) + steps
    return int(row[-1])


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that `percent` of all values do not exceed: one that was measured, not one in between."""
    if not values:
        return None
    rank = max(math.ceil(len(values) * percent / 100), 1)
    return sorted(values)[rank - 1]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """What is kept of a list of measurements; `None` where there are none."""
    return {
        "n": len(values),
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
        "p99": percentile(values, 99),
        "max": max(values, default=None),
    }


def word_summary(values: Sequence[float]) -> dict[str, Any]:
    """The same of words that came, and beside it those that never did, which are infinitely late.

    `p95_of_all` counts them too: it is `None` where more than 5 % never came.
    """
    came = [value for value in values if math.isfinite(value)]
    of_all = percentile(values, 95)
    is_finite = of_all is not None and math.isfinite(of_all)
    return {**summary(came), "never": len(values) - len(came), "p95_of_all": of_all if is_finite else None}


@cache
def _plain_normaliser(language: str) -> Callable[[str], list[str]]:
    return normaliser(language, {})
