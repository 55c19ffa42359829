"""The words of stable text that goes on in another connection."""

import pytest

from tutti.messages import Word
from tutti.stable_words import grow, without_text


def timed(text: str, first_s: float = 0.0) -> tuple[Word, ...]:
    """The words of a text, half a second each."""
    return tuple(
        Word(word, first_s + index / 2, first_s + (index + 1) / 2, 0.9) for index, word in enumerate(text.split())
    )


def test_words_that_were_shown_keep_their_times() -> None:
    """Those after them begin no earlier than they end."""
    assert grow(timed("one two"), "one two three", timed("one two three", -0.25)) == (
        *timed("one two"),
        Word("three", 1.0, 1.25, 0.9),
    )


def test_words_come_from_the_end_of_what_the_connection_sent() -> None:
    """Its text may begin with other words than those that were shown."""
    assert grow(timed("one two"), "one two three", timed("tooth three")) == (
        *timed("one two"),
        Word("three", 1.0, 1.0, 0.9),
    )


def test_punctuation_joins_the_last_word() -> None:
    (one, two) = timed("one two")
    assert grow((one, two), "one two.", timed("one two.", 3.0)) == (one, Word("two.", two.start_s, two.end_s, 0.9))


@pytest.mark.parametrize("theirs", ["", "one two five", "four"])
def test_words_without_a_time_are_left_out(theirs: str) -> None:
    assert grow(timed("one two"), "one two three four", timed(theirs)) == timed("one two")


def test_words_of_a_script_without_spaces_are_found_by_their_characters() -> None:
    characters = tuple(Word(each, index, index + 1, 0.5) for index, each in enumerate("你好世界"))
    assert grow(characters[:2], "你好世界", characters) == characters
    assert without_text(characters, "你好世") == characters[3:]


@pytest.mark.parametrize(("text", "left"), [("", "one two three"), ("One two.", "three"), ("one two three four", "")])
def test_words_leave_with_the_text_that_became_final(text: str, left: str) -> None:
    """Letters and digits decide."""
    assert " ".join(word.word for word in without_text(timed("one two three"), text)) == left
