"""Word errors count what was heard wrongly, not how it is written."""

import pytest

from benchmarks.files.word_normaliser import normalise, word_errors
from benchmarks.scoring import WordErrors


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("The answer is one hundred and five.", "the answer is 105"),
        ("It starts at 2:30 p.m.", "it starts at two thirty pm"),
        ("Call 555-0142-9876.", "call five five five zero one four two nine eight seven six"),
        ("The code is X R 7.", "The code is XR7."),
        ("Write to anna@example.org", "write to anna at example dot org"),
        ("It is -5 degrees.", "It is minus five degrees"),
        ("Don’t go to the theatre.", "do not go to the theater"),
        ("Spell it with a P.", "spell it with a p"),
    ],
)
def test_ways_of_writing_are_no_errors(said: str, heard: str) -> None:
    assert normalise(said) == normalise(heard)


def test_errors_are_counted_by_kind() -> None:
    """A wrong word, a missing one, and one too many."""
    errors = word_errors("the cat sat on the mat", "the bat sat the mat now")
    assert errors == WordErrors(substituted=1, missing=1, inserted=1, words=6)


def test_a_word_beside_a_number_is_not_spelled() -> None:
    """The text "a 5" stays two words, and "b 5" is a code."""
    assert normalise("a five") == ["a", "5"]
    assert normalise("b five") == ["b5"]


def test_other_languages_lose_only_case_and_punctuation() -> None:
    assert normalise("Das ist gut.", "de") == ["das", "ist", "gut"]
