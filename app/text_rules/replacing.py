"""Writes other words instead of some: replacements that the client names, and asterisks for profane words."""

from collections.abc import Iterable, Sequence

from app.text_rules.edits import Edit, Found, before_space, start_of_last_words, whole_words

PROFANITIES = (
    "arsehole arseholes asshole assholes bastard bastards bitch bitches bollocks bullshit cock cocks cocksucker cunt "
    "cunts dickhead dickheads dipshit fuck fucked fucker fuckers fuckin fucking fucks goddamn horseshit jackass "
    "motherfucker motherfuckers motherfucking nigger niggers piss pissed prick pricks pussy shit shits shitty slut "
    "sluts twat twats wanker wankers whore whores"
).split()
"""English words that are masked."""


class Replacing:
    """Replaces words as the client says, whole and in any case."""

    def __init__(self, replacements: Iterable[tuple[str, str]]) -> None:
        """Make the rule from words, and what is written instead; nothing for words that are left out."""
        self._new = {" ".join(old.lower().split()): new for old, new in replacements}
        self._pattern = whole_words(list(self._new))
        self._longest = max(len(old.split()) for old in self._new)

    def find(self, text: str) -> Found:
        """The edits of a text that may go on."""
        assert self._pattern
        edits = []
        for match in self._pattern.finditer(text):
            new = self._new[" ".join(match[0].lower().split())]
            # A word that is left out takes the space before it away.
            start = match.start() if new else before_space(text, match.start())
            edits.append(Edit(start=start, end=match.end(), text=new))
        return Found(edits, start_of_last_words(text, self._longest - 1))


class Masking:
    """Writes as many asterisks as profane words have letters."""

    def __init__(self, words: Sequence[str]) -> None:
        self._pattern = whole_words(words)

    def find(self, text: str) -> Found:
        """The edits of a text that may go on."""
        assert self._pattern
        matches = self._pattern.finditer(text)
        edits = [Edit(start=each.start(), end=each.end(), text="*" * len(each[0])) for each in matches]
        return Found(edits, len(text))
