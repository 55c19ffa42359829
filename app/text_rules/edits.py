"""What a rule changes in a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
"""A word, without punctuation."""


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
    """In order; none overlaps another. Those at or after `decided` hold if the text ends here."""
    decided: int
    """The index before which no text that follows can change anything."""
    whole: Sequence[tuple[int, int]] = ()
    """Starts and ends of what must not be cut in two, because its halves would be taken for something else."""


def cut_before(text: str, index: int, whole: Sequence[tuple[int, int]]) -> int:
    """The last index before this one where the text can be cut: after a word, and through nothing that is whole."""
    while True:
        starts = [start for start, end in whole if start < index < end]
        start = min([index, *starts])
        while 0 < start < len(text) and not text[start - 1].isspace() and not text[start].isspace():
            start -= 1
        if start == index:
            return before_space(text, index)
        index = start


def before_space(text: str, index: int) -> int:
    """The index, moved to the left over spaces."""
    while index and text[index - 1].isspace():
        index -= 1
    return index


def start_of_last_words(text: str, n_words: int) -> int:
    """The index at which the last words of a text begin."""
    starts = [each.start() for each in TOKEN.finditer(text)]
    return starts[max(len(starts) - n_words, 0)] if n_words and starts else len(text)


def whole_words(phrases: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern of these phrases as whole words in any case, the longest first; `None` if there are none."""
    if not phrases:
        return None
    longest_first = sorted({each.strip() for each in phrases}, key=len, reverse=True)
    choices = "|".join(r"\s+".join(map(re.escape, each.split())) for each in longest_first)
    return re.compile(rf"(?<!\w)(?:{choices})(?!\w)", re.IGNORECASE)


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
    """The text between two indices with its edits; an edit lies inside or outside of them."""
    end = len(text) if end is None else end
    parts = []
    for edit in edits:
        if start <= edit.start and edit.end <= end:
            parts += [text[start : edit.start], edit.text]
            start = edit.end
    return "".join([*parts, text[start:end]])
