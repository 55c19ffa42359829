"""Counts word errors and summarises measurements with percentiles."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words(text: str) -> list[str]:
    """The words of a text in lower case and without punctuation, with numbers unchanged.

    Used to find words in a text, not to score it.
    """
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def normalise(text: str, language: str = "en") -> list[str]:
    """The words of a text as the Whisper paper scores them: "one hundred and five" becomes "105".

    The table of British and American spellings is left empty, because not every checkpoint has one. For languages other
    than English only case and punctuation are removed.
    """
    return str(_normaliser(language)(text)).split()


@dataclass(frozen=True, slots=True)
class WordErrors:
    """The word errors of a text against its reference, or their sum over several texts."""

    substituted: int = 0
    missing: int = 0
    """Words of the reference that have no counterpart in the text."""
    inserted: int = 0
    words: int = 0
    """Words of the reference."""

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    @property
    def rate(self) -> float | None:
        return (self.substituted + self.missing + self.inserted) / self.words if self.words else None

    @property
    def missing_rate(self) -> float | None:
        return self.missing / self.words if self.words else None


def word_errors(reference: str, text: str) -> WordErrors:
    """Count the word errors of an English text after normalising both texts."""
    return count_errors(normalise(reference), normalise(text))


def count_errors(expected: Sequence[str], actual: Sequence[str]) -> WordErrors:
    pairs = align(expected, actual)
    n_hits = sum(a is not None and b is not None and expected[a] == actual[b] for a, b in pairs)
    n_missing = sum(b is None for _, b in pairs)
    n_inserted = sum(a is None for a, _ in pairs)
    return WordErrors(len(pairs) - n_hits - n_missing - n_inserted, n_missing, n_inserted, len(expected))


def align(a: Sequence[str], b: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Align two lists of words with the fewest edits.

    Returns pairs of an index in `a` and an index in `b`. One of the two is `None` where a word has no counterpart.
    """
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
    """The indices of the words of `a` that also stand in `b`, each with its index in `b`."""
    return {i: j for i, j in align(a, b) if i is not None and j is not None and a[i] == b[j]}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest measured value that `percent` of all values do not exceed; nothing is interpolated."""
    if not values:
        return None
    rank = max(math.ceil(len(values) * percent / 100), 1)
    return sorted(values)[rank - 1]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """The count, percentiles and maximum of a list of measurements; `None` where it is empty."""
    return {
        "n": len(values),
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
        "p99": percentile(values, 99),
        "max": max(values, default=None),
    }


def word_summary(values: Sequence[float]) -> dict[str, Any]:
    """A summary of word latencies. Those of words that never arrived are infinite: `never` counts them."""
    arrived = [value for value in values if math.isfinite(value)]
    return {**summary(arrived), "never": len(values) - len(arrived)}


@cache
def _normaliser(language: str) -> Any:
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

    return EnglishTextNormalizer({}) if language == "en" else BasicTextNormalizer()
