"""The words of the stable text of an utterance that goes on in another connection. This module does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tutti.messages import Word


def grow(shown: tuple[Word, ...], stable: str, theirs: Sequence[Word]) -> tuple[Word, ...]:
    """The words of `stable`: those that were shown for its beginning, and those of the connection for the rest.

    Args:
        shown: the words of the stable text before, which is the beginning of `stable`.
        stable: the stable text that is delivered.
        theirs: the words of the connection's stable text, which ends as `stable` does.

    Returns:
        The words, whose times never go back. As many as are known: fewer if the text has grown by other words.
    """
    missing = "".join(stable.split()).removeprefix(_characters(shown))
    new: list[Word] = []
    for word in reversed(theirs):
        characters = _characters([word])
        if not missing or not (missing.endswith(characters) or characters.endswith(missing)):
            break
        if len(characters) > len(missing) and shown:
            # Punctuation that has joined the last word.
            shown = (*shown[:-1], replace(shown[-1], word=shown[-1].word + missing))
        else:
            new.insert(0, word)
        missing = missing[: max(len(missing) - len(characters), 0)]
    if missing:
        return shown
    since_s = shown[-1].end_s if shown else 0.0
    return (*shown, *(_not_before(word, since_s) for word in new))


def without_text(shown: tuple[Word, ...], text: str) -> tuple[Word, ...]:
    """The words that are left after `text`, which they begin with but for its punctuation, has become final."""
    n_letters = _count_letters(text)
    for index, word in enumerate(shown):
        if n_letters <= 0:
            return shown[index:]
        n_letters -= _count_letters(word.word)
    return ()


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _characters(words: Sequence[Word]) -> str:
    return "".join("".join(word.word.split()) for word in words)


def _not_before(word: Word, since_s: float) -> Word:
    return replace(word, start_s=max(word.start_s, since_s), end_s=max(word.end_s, since_s))
