"""Word errors, alignment and percentiles."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scoring import WordErrors, align, matches, percentile, summary, word_errors, word_summary, words

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("reference", "text", "expected"),
    [
        ("Hello there, everyone.", "hello there everyone", WordErrors(0, 0, 0, 3)),
        ("red green blue white", "red grain blue", WordErrors(1, 1, 0, 4)),
        ("the end", "so the end it is", WordErrors(0, 0, 3, 2)),
        ("it costs one hundred and five", "It costs 105.", WordErrors(0, 0, 0, 3)),
        ("three words lost", "", WordErrors(0, 3, 0, 3)),
        ("", "words from nowhere", WordErrors(0, 0, 3, 0)),
    ],
)
def test_word_errors(reference: str, text: str, expected: WordErrors) -> None:
    """Case, punctuation and the way numbers are written are no errors; every word too many or too few is."""
    assert word_errors(reference, text) == expected


def test_rates_are_of_the_reference() -> None:
    """Errors add up over texts before they are divided, so that long texts count more."""
    errors = WordErrors(1, 1, 1, 4) + WordErrors(0, 0, 0, 6)
    assert (errors.rate, errors.missing_rate) == (0.3, 0.1)
    assert WordErrors().rate is None


@given(WORDS, WORDS)
def test_an_alignment_covers_both_sides_in_order(a: list[str], b: list[str]) -> None:
    """Every word stands in it once, and a text aligned with itself matches everywhere."""
    pairs = align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))
    assert matches(a, a) == {i: i for i in range(len(a))}


def test_words_keep_apostrophes_and_numbers() -> None:
    assert words("“Don’t”, she said: 7.30 p.m.!") == ["don't", "she", "said", "7", "30", "p", "m"]


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank, without interpolation."""
    values = [float(each) for each in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 99, 100)] == [50.0, 95.0, 99.0, 100.0]
    assert percentile([3.0], 95) == 3.0
    assert summary([]) == {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}


def test_words_that_never_came_are_counted_beside_the_others() -> None:
    """They are in none of the percentiles."""
    late = word_summary([1.0] * 19 + [math.inf])
    assert (late["n"], late["never"], late["p95"]) == (19, 1, 1.0)
