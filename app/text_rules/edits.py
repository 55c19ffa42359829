"""What a rule changes in a text."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
"""A word, without punctuation."""
MARKS = ",.;:!?…、。，．；：！？،؛؟۔।"
"""Marks that belong to the word before them."""
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    r"\U00020000-\U0003ffff]"
)
"""A letter of a script without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Put another text where a part of a text stands."""

    start: int
    """The index of the first character that is replaced."""
    end: int
    """The index after the last one."""
    text: str
    """What stands there instead."""
    kind: str = ""
    """What was redacted; empty for an edit that keeps no secret."""


@dataclass(frozen=True, slots=True)
class Found:
    """The edits of a text that may go on.

    What is found in a text, and in the same text with more after it, agrees before `decided` of the first.
    """

    edits: Sequence[Edit]
    """The edits in order; none overlaps another. Those at or after `decided` hold if the text ends here."""
    decided: int
    """The index before which no text that follows can change anything."""
    whole: Sequence[tuple[int, int]] = ()
    """Starts and ends of what must not be cut in two, because its halves would be taken for something else."""


def cut_before(text: str, index: int, whole: Sequence[tuple[int, int]]) -> int:
    """The last index before this one where the text can be cut: after a word, and through nothing that is whole."""
    while True:
        starts = [start for start, end in whole if start < index < end]
        start = min([index, *starts])
        while not _is_between_words(text, start):
            start -= 1
        if start == index:
            return before_space(text, index)
        index = start


def start_of_last_word(text: str) -> int:
    """The index at which the last word of a text begins, with its punctuation."""
    start = max(len(text) - 1, 0)
    while not _is_between_words(text, start):
        start -= 1
    return start


def _is_between_words(text: str, index: int) -> bool:
    """Whether no word has a part before this index and a part after it."""
    if not 0 < index < len(text):
        return True
    if is_mark(text[index]) or text[index] in MARKS:
        return False
    return any(each.isspace() or _UNSPACED.match(each) for each in text[index - 1 : index + 1])


def is_mark(character: str) -> bool:
    """Whether a character is a part of the letter before it: an accent on its own, or a sign for a vowel or a tone."""
    return unicodedata.category(character).startswith("M")


def before_space(text: str, index: int) -> int:
    """The index, moved to the left over spaces."""
    while index and text[index - 1].isspace():
        index -= 1
    return index


class Phrases:
    """Finds words and phrases, whole and in any case; in scripts that have no spaces between words, everywhere."""

    def __init__(self, phrases: Sequence[str]) -> None:
        written = [_ways(each) for each in phrases]
        by_letter: dict[str, list[tuple[str, str]]] = {}
        # The longest of those that begin at the same place.
        for at, each in sorted(enumerate(written), key=lambda phrase: _length(phrase[1]), reverse=True):
            for n, way in enumerate(each):
                first = _literal(way.lstrip()[0])
                # Letters that differ in their case alone are one: "k" and the sign of Kelvin, both kinds of "ß".
                those = by_letter.setdefault(first.lower().upper()[0], [])
                those.append((first, f"(?P<_{at}_{n}>{_pattern(way)})"))
        # At most places of a text only the first letters are compared: 200 phrases take a 40th of the time.
        groups = (map("|".join, zip(*each, strict=True)) for each in by_letter.values())
        pattern = "|".join(f"(?={firsts})(?:{patterns})" for firsts, patterns in groups)
        self._pattern = re.compile(pattern or r"(?!)", re.IGNORECASE)
        ways = list(chain.from_iterable(written))
        self._n_tokens = max(map(_n_tokens, ways), default=1)
        self._n_chars = max((len(each) for each in ways if _UNSPACED.search(each)), default=1)

    def find(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """The matches, each with the index of its phrase."""
        for match in self._pattern.finditer(text):
            yield match, int((match.lastgroup or "_0").split("_")[1])

    def decided(self, text: str) -> int:
        """The index before which no text that follows can make a phrase."""
        by_words = len(text)
        if self._n_tokens > 1:
            starts = [each.start() for each in TOKEN.finditer(text)]
            by_words = starts[1 - self._n_tokens] if len(starts) >= self._n_tokens else 0
        return min(by_words, max(len(text) - self._n_chars + 1, 0))


def _ways(phrase: str) -> list[str]:
    """The ways in which a phrase may be written: with letters that have accents, and with accents on their own."""
    return list(dict.fromkeys(unicodedata.normalize(form, phrase) for form in ("NFC", "NFD")))


def _n_tokens(phrase: str) -> int:
    """How many tokens a phrase has, at least one for each word; 1 for a single word, which is never cut."""
    words = phrase.split()
    # "Anne-Sophie" has two tokens, "&" has none.
    return sum(len(TOKEN.findall(each)) or 1 for each in words) if len(words) > 1 else 1


def _pattern(phrase: str) -> str:
    words = phrase.split()
    pattern = r"\s+".join(map(_literal, words))
    begin = "" if _UNSPACED.match(words[0]) else r"(?<!\w)"
    end = "" if _UNSPACED.match(words[-1][-1]) else r"(?!\w)"
    return f"{begin}{pattern}{end}"


def _length(ways: Sequence[str]) -> int:
    """How many characters a phrase has in the first of its ways, with one space between its words."""
    return len(" ".join(ways[0].split()))


def _literal(text: str) -> str:
    """The pattern of a text, with either apostrophe."""
    return re.sub("['’]", "['’]", re.escape(text))


def without_overlaps(edits: Sequence[Edit]) -> list[Edit]:
    """The edits in order. Of those that overlap the first in the list is kept, and grows over the secrets in others."""
    kept: list[Edit] = []
    for edit in edits:
        overlapping = [each for each in kept if each.start < edit.end and edit.start < each.end]
        if not overlapping:
            kept.append(edit)
        elif edit.kind:
            for each in overlapping:
                kept.remove(each)
            first = next((each for each in overlapping if each.kind), edit)
            start = min(edit.start, *(each.start for each in overlapping))
            end = max(edit.end, *(each.end for each in overlapping))
            kept.append(Edit(start=start, end=end, text=first.text, kind=first.kind))
    return sorted(kept, key=lambda each: each.start)


def apply(text: str, edits: Sequence[Edit], start: int = 0, end: int | None = None) -> str:
    """The text between two indices with its edits. One that is not wholly between them hides its part nevertheless."""
    end = len(text) if end is None else end
    parts = []
    for edit in edits:
        if start < edit.end and edit.start < end:
            parts += [text[start : edit.start], edit.text]
            start = edit.end
    return "".join([*parts, text[start:end]])
