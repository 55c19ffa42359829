"""Transcripts are compared word by word."""

import pytest

from benchmarks.faults.differences import Difference, Kind, differences, timed_words


def compare(expected: str, received: str) -> list[Difference]:
    return differences(timed_words(expected, 0.0, 10.0), timed_words(received, 0.0, 10.0))


def test_equal_texts_have_no_differences() -> None:
    """Nor do empty ones."""
    assert compare("one two three", "one two three") == []
    assert compare("", "") == []


@pytest.mark.parametrize(
    ("received", "kind", "n_words"),
    [
        ("one two five six", "lost", 2),
        ("one two three four five", "lost", 1),
        ("one two three two three four five six", "repeated", 2),
        ("one two three four five six six", "repeated", 1),
        ("one two new three four five six", "added", 1),
        ("one two tree fort five six", "changed", 2),
        ("one two three, four five six", "changed", 1),
    ],
)
def test_each_difference_has_a_kind(received: str, kind: Kind, n_words: int) -> None:
    (difference,) = compare("one two three four five six", received)
    assert (difference.kind, difference.n_words) == (kind, n_words)


def test_a_difference_has_the_time_of_its_words() -> None:
    """The words of an utterance are spread evenly over its time."""
    (difference,) = compare("a b c d e f g h i j", "a b c d e f x h i j")
    assert difference.at_s == pytest.approx(6.0)
    (lost_end,) = compare("a b c d e", "a b c d")
    assert lost_end.at_s == pytest.approx(8.0)
