"""The rules of a session together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tutti_server.app.text_rules.edits import Found, cut_before, without_overlaps
from tutti_server.app.text_rules.numerals import Numerals
from tutti_server.app.text_rules.redaction import Before, Kind, Redaction
from tutti_server.app.text_rules.replacing import PROFANITIES, Masking, Replacing

Profanity = Literal["mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRuleOptions:
    """What a client wants to be done with the text."""

    numerals: bool = False
    """Whether numbers are written in digits; English only."""
    redact: tuple[Kind, ...] = ()
    """What must not be written down."""
    redact_names: tuple[str, ...] = ()
    """Words that must not be written down either."""
    replace: tuple[tuple[str, str], ...] = ()
    """Words, and what is written instead of them."""
    profanity: Profanity | None = None
    """`mask` writes asterisks instead of profane words; English only."""

    @property
    def redacts(self) -> bool:
        """Whether something must not be written down."""
        return bool(self.redact or self.redact_names)

    def with_redaction(self, kinds: Sequence[Kind]) -> "TextRuleOptions":
        """Options that redact these kinds as well."""
        return replace(self, redact=tuple(dict.fromkeys((*self.redact, *kinds))))

    def __bool__(self) -> bool:
        return self.redacts or self.numerals or bool(self.replace) or self.profanity is not None


class TextRules:
    """Finds what a session's rules change in a text. What must not be written down goes first."""

    def __init__(self, options: TextRuleOptions) -> None:
        self.options = options
        self._redaction = Redaction(options.redact, options.redact_names) if options.redacts else None
        masking = [Masking(PROFANITIES)] if options.profanity else []
        replacing = [Replacing(options.replace)] if options.replace else []
        numerals = [Numerals()] if options.numerals else []
        self._others: Sequence[Masking | Replacing | Numerals] = (*masking, *replacing, *numerals)
        """The rules that do not redact, in the order of their precedence where they overlap."""
        self._of_translations: Sequence[Masking | Replacing | Numerals] = masking

    def find(
        self, text: str, before: Before, changes_from: int | None = None, *, is_translation: bool = False
    ) -> Found:
        """The edits of a text that may go on.

        Args:
            changes_from: the index from which on the text may change; `None` if it does not.
            is_translation: whether it is a translation, or a text that is translated elsewhere: it is redacted, and of
                the other rules only masking is for it.
        """
        others = self._of_translations if is_translation else self._others
        found = [self._redaction.find(text, before, changes_from)] if self._redaction else []
        found += [rule.find(text, before.last) if isinstance(rule, Replacing) else rule.find(text) for rule in others]
        edits = without_overlaps([edit for each in found for edit in each.edits])
        whole = [*((edit.start, edit.end) for edit in edits), *(span for each in found for span in each.whole)]
        decided = min((each.decided for each in found), default=len(text))
        return Found(edits, cut_before(text, decided, whole), whole)

    def after(self, text: str, before: Before) -> Before:
        """What a text that is over tells about the text after it in its utterance."""
        after = self._redaction.after(text, before) if self._redaction else before
        return replace(after, last=text.rstrip()[-1:] or before.last)
