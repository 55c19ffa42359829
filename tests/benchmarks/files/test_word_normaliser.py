"""Word errors count what was heard wrongly, not how it is written."""

import pytest

from benchmarks.files.word_normaliser import normalise


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
        ("the ship (so they say) was lost", "the ship so they say was lost"),
    ],
)
def test_ways_of_writing_are_no_errors(said: str, heard: str) -> None:
    assert normalise(said) == normalise(heard)


@pytest.mark.parametrize(
    ("text", "expected"), [("Das ist gut.", ["das", "ist", "gut"]), ("eins (zwei)", ["eins", "zwei"])]
)
def test_other_languages_lose_only_case_and_punctuation(text: str, expected: list[str]) -> None:
    assert normalise(text, "de") == expected


@pytest.mark.parametrize("text", ["5, 5, 6, 1, 7.", "5 5 6 1 7", "5. 5. 6. 1. 7", "5-5-6-1-7", "55617"])
def test_digits_in_a_row_are_one_number_however_they_are_written(text: str) -> None:
    assert normalise(text) == normalise("five five six one seven") == ["55617"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5, 10", ["5", "10"]), ("2.5 6", ["2.5", "6"]), ("5-6 people", ["5", "6", "people"]), ("$5 6", ["$5", "6"])],
)
def test_other_numbers_stay_apart(text: str, expected: list[str]) -> None:
    assert normalise(text) == expected


def test_a_word_beside_a_number_is_not_spelled() -> None:
    """The text "a 5" stays two words, and "b 5" is a code."""
    assert normalise("a five") == ["a", "5"]
    assert normalise("b five") == ["b5"]
