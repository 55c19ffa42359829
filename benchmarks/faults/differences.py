"""Compares the words of a disturbed session with those of an undisturbed one."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

Kind = Literal["lost", "repeated", "added", "changed"]
KINDS: tuple[Kind, ...] = ("lost", "repeated", "added", "changed")


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word and the time at which it was spoken, about, in seconds."""

    word: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place at which two transcripts differ."""

    kind: Kind
    """`lost`: words are missing. `repeated`: words that are also directly before or after. `added`: other words that
    the undisturbed text does not have. `changed`: other words in the place of some.
    """
    at_s: float
    """The time in the audio, in seconds."""
    expected: tuple[str, ...]
    received: tuple[str, ...]

    @property
    def n_words(self) -> int:
        return max(len(self.expected), len(self.received))


def timed_words(text: str, start_s: float, end_s: float) -> list[TimedWord]:
    """The words of an utterance, with times that are spread evenly over it. Punctuation and case count as they are."""
    words = text.split()
    return [TimedWord(word, start_s + (end_s - start_s) * i / len(words)) for i, word in enumerate(words)]


def differences(expected: Sequence[TimedWord], received: Sequence[TimedWord]) -> list[Difference]:
    """The differences between an undisturbed transcript and a disturbed one, in order."""
    before, after = [each.word for each in expected], [each.word for each in received]
    found = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        kind: Kind = "changed"
        if tag == "delete":
            kind = "lost"
        elif tag == "insert":
            n, inserted = m - k, after[k:m]
            kind = "repeated" if inserted in (after[max(k - n, 0) : k], after[m : m + n]) else "added"
        at_s = received[k].at_s if k < len(received) else expected[i].at_s
        found.append(Difference(kind=kind, at_s=at_s, expected=tuple(before[i:j]), received=tuple(after[k:m])))
    return found
