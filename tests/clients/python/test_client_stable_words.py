"""The words of stable text that goes on in another connection. The golden cases of resumed sessions have the others."""

import pytest

from tutti.messages import Word
from tutti.stable_words import grow, without_text


def timed(text: str) -> tuple[Word, ...]:
    """The words of a text, half a second each."""
    return tuple(Word(word, index / 2, (index + 1) / 2, 0.9) for index, word in enumerate(text.split()))


@pytest.mark.parametrize("theirs", ["", "one two five", "four"])
def test_words_without_a_time_are_left_out(theirs: str) -> None:
    assert grow(timed("one two"), "one two three four", timed(theirs)) == timed("one two")


@pytest.mark.parametrize(("text", "left"), [("", "one two three"), ("One two.", "three"), ("one two three four", "")])
def test_words_leave_with_the_text_that_became_final(text: str, left: str) -> None:
    """Letters and digits decide."""
    assert " ".join(word.word for word in without_text(timed("one two three"), text)) == left
