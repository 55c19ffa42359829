"""Writes other words instead of some: replacements that the client names, and asterisks for profane words."""

import re
from collections.abc import Iterable, Sequence

from tutti_server.app.text_rules.edits import MARKS, Edit, Found, Phrases, before_space, is_mark

PROFANITIES = (
    "arsehole arseholes asshole assholes bastard bastards bitch bitches bollocks bullshit cock cocks cocksucker cunt "
    "cunts dickhead dickheads dipshit fuck fucked fucker fuckers fuckin fucking fucks goddamn horseshit jackass "
    "motherfucker motherfuckers motherfucking nigger niggers piss pissed prick pricks pussy shit shits shitty slut "
    "sluts twat twats wanker wankers whore whores"
).split()
"""English words that are masked."""


_MARK = re.compile(r"[\u0300-\u036f\u0900-\u0963\u0966-\u0dff]")
"""A part of a word that is no letter for `re`: an accent on its own, or a vowel sign of a script of India."""


class Replacing:
    """Replaces words as the client says, whole and in any case."""

    def __init__(self, replacements: Iterable[tuple[str, str]]) -> None:
        pairs = list(replacements)
        self._new = [new for _, new in pairs]
        self._phrases = Phrases([old for old, _ in pairs])

    def find(self, text: str, last: str = "") -> Found:
        """The edits of a text that may go on; `last` is the character before it, if there is any."""
        edits = []
        for match, index in self._phrases.find(text):
            if is_mark(text[match.end() : match.end() + 1] or " "):
                continue
            if match.start() and _MARK.match(text, match.start() - 1):
                continue
            new = self._new[index]
            start, end = match.span() if new else _left_out(text, last, *match.span())
            edits.append(Edit(start=start, end=end, text=new))
        return Found(edits, self._phrases.decided(text))


def _left_out(text: str, last: str, start: int, end: int) -> tuple[int, int]:
    """What is left out with some words: the space before them, and marks after them that no word would precede."""
    start = before_space(text, start)
    last = text[start - 1] if start else last
    if not last or last in MARKS:
        while end < len(text) and text[end] in MARKS:
            end += 1
    return start, end


class Masking:
    """Writes as many asterisks as profane words have letters."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = Phrases(words)

    def find(self, text: str) -> Found:
        """The edits of a text that may go on."""
        matches = [match for match, _ in self._words.find(text)]
        edits = [Edit(start=each.start(), end=each.end(), text="*" * len(each[0])) for each in matches]
        return Found(edits, len(text))
