"""Finds what must not be written down: numbers of cards, accounts and telephones, e-mail addresses, given names.

What is found is replaced by its kind in brackets. Where a number may go on in the next utterance, or goes on from the
last one, it is replaced although its kind is not known yet: too much is better than a number of a card in two halves.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tutti_server.app.text_rules.addresses import addresses, start_of_partial_address
from tutti_server.app.text_rules.digit_runs import (
    MAX_FILLERS,
    DigitRun,
    begins_with_zero,
    digit_runs,
    is_filled,
    n_fillers,
)
from tutti_server.app.text_rules.edits import Edit, Found, Phrases, without_overlaps

Kind = Literal["card", "ssn", "account", "phone", "email", "number"]
KINDS: tuple[Kind, ...] = ("card", "ssn", "account", "phone", "email", "number")
"""What can be redacted, beside names."""
LABELS = {
    "card": "[CARD_NUMBER]",
    "ssn": "[SSN]",
    "account": "[ACCOUNT_NUMBER]",
    "phone": "[PHONE_NUMBER]",
    "email": "[EMAIL]",
    "number": "[NUMBER]",
    "name": "[NAME]",
}
"""What stands in the text instead."""

MIN_CARD = 12
"""The digits of the shortest number of a card, which is Maestro's."""
SSN_DIGITS = 9
MIN_PHONE, MAX_PHONE = 7, 15
"""The digits of a telephone number. Source: ITU-T E.164 for the most; the fewest are those of a local number."""
MIN_ACCOUNT = 5
MIN_NUMBER = 3
"""The digits of a sequence that `number` redacts. Source: Deepgram's documentation of `redact=numbers`."""
MIN_DIGITS: dict[Kind, int] = {
    "ssn": SSN_DIGITS,
    "phone": MIN_PHONE,
    "card": MIN_CARD,
    "account": MIN_ACCOUNT,
    "number": MIN_NUMBER,
}
"""The digits from which on a sequence is redacted. There is no upper limit, as another number may follow at once, such
as the expiry after a card's number.
"""
MIN_PART = 4
"""The digits from which on a part of a number is redacted where the rest may be in another utterance."""
SECURITY_DIGITS = (3, 4)
"""The digits of a card's security code, and of its expiry."""
SECURITY_DISTANCE = 8
"""How many words after a word of `_SECURITY` such a number may come."""
_SECURITY = re.compile(
    r"\b(?:c\W{0,2}v\W{0,2}[vc]2?|cid|csc|pin|security|verification|expir\w*|valid|thru)\b", re.IGNORECASE
)


@dataclass(slots=True)
class Before:
    """What a channel's text before a text tells about it."""

    digits: int = 0
    """The digits of the number at the end of the text before; 0 if it does not end with one."""
    words_since_card: int = 1 << 20
    """The words since the last number of a card, or the last word that announces its security code."""
    fillers: int = 0
    """The words after that number, which may stand between its digits."""
    last: str = ""
    """The last character of the utterance's text before; empty at its beginning."""


class Redaction:
    """Finds secrets of some kinds."""

    def __init__(self, kinds: Sequence[Kind], names: Sequence[str] = ()) -> None:
        """Make the rule for these kinds, and for names as whole words in any case."""
        self._kinds = frozenset(kinds)
        self._names = Phrases(names)

    def find(self, text: str, before: Before, changes_from: int | None = None) -> Found:
        """What must not be written down of a text, which may go on.

        Args:
            changes_from: the index from which on the text may change, so that any number there may turn out to be
                longer; `None` if none does.
        """
        runs = [
            replace(run, goes_on=True) if changes_from is not None and run.start >= changes_from else run
            for run in (digit_runs(text) if self._kinds - {"email"} else ())
        ]
        edits = self._numbers(text, runs, before)
        decided = runs[-1].start if runs and runs[-1].goes_on else len(text)
        if "email" in self._kinds:
            edits += [_edit(start, end, "email") for start, end in addresses(text)]
            decided = min(decided, start_of_partial_address(text))
        edits += [_edit(match.start(), match.end(), "name") for match, _ in self._names.find(text)]
        decided = min(decided, self._names.decided(text))
        return Found(without_overlaps(edits), decided, [(run.start, run.end) for run in runs])

    def after(self, text: str, before: Before) -> Before:
        """What this text, which is over, tells about the text after it."""
        runs = list(digit_runs(text))
        n_words = len(text.split())
        last = runs[-1] if runs else DigitRun(len(text), len(text), "", goes_on=is_filled(text))
        digits = len(last.digits) + self._digits_before(text, last, before) if last.goes_on else 0
        fillers = n_fillers(text[last.end :]) if last.digits else before.fillers + n_fillers(text)
        ends = self._announced(text, runs)
        since = len(text[ends[-1] :].split()) if ends else before.words_since_card + n_words
        return Before(digits, since, fillers)

    def _numbers(self, text: str, runs: Sequence[DigitRun], before: Before) -> list[Edit]:
        edits = []
        announced = self._announced(text, runs)
        for run in runs:
            is_code = len(run.digits) in SECURITY_DIGITS and _is_near(text, run, announced, before)
            kind = self._kind(run, is_code) or ("number" if self._is_part(text, run, before) else None)
            if kind:
                edits.append(_edit(run.start, run.end, kind))
        return edits

    def _announced(self, text: str, runs: Sequence[DigitRun]) -> list[int]:
        """Return where the numbers of cards end, and the words that announce a security code."""
        ends = [each.end for each in runs if len(each.digits) >= MIN_CARD]
        return sorted(ends + [each.end() for each in _SECURITY.finditer(text)])

    def _is_part(self, text: str, run: DigitRun, before: Before) -> bool:
        """Whether a sequence may be a part of a number, the rest of which is in another utterance."""
        n_before = self._digits_before(text, run, before)
        is_long = n_before + len(run.digits) >= (MIN_NUMBER if "number" in self._kinds else MIN_PART)
        return is_long and bool(run.goes_on or n_before)

    def _digits_before(self, text: str, run: DigitRun, before: Before) -> int:
        """The digits in the text before that this sequence goes on with."""
        between = text[: run.start]
        n_between = before.fillers + n_fillers(between) + begins_with_zero(text[run.start :])
        return before.digits if is_filled(between) and n_between <= MAX_FILLERS else 0

    def _kind(self, run: DigitRun, is_code: bool) -> Kind | None:
        """What a sequence is if nothing comes before and after it: the kind that fits best, of those that are wanted.

        The check digit does not decide whether a number is redacted: one digit that was heard wrongly makes it wrong.
        """
        n_digits = len(run.digits)
        if is_code and "card" in self._kinds:
            return "card"
        fits: dict[Kind, bool] = {
            "card": n_digits >= MIN_CARD and has_right_check_digit(run.digits),
            "ssn": n_digits == SSN_DIGITS,
            "phone": MIN_PHONE <= n_digits <= MAX_PHONE,
        }
        best = [kind for kind, is_fitting in fits.items() if is_fitting and kind in self._kinds]
        may_be = [kind for kind, fewest in MIN_DIGITS.items() if n_digits >= fewest and kind in self._kinds]
        return next(iter((*best, *may_be)), None)


def _is_near(text: str, run: DigitRun, announced: Sequence[int], before: Before) -> bool:
    """Whether one of the indices at which something is announced is a few words before a sequence of digits."""
    last = bisect_right(announced, run.start) - 1
    if last >= 0:
        return len(text[announced[last] : run.start].split()) <= SECURITY_DISTANCE
    return before.words_since_card + len(text[: run.start].split()) <= SECURITY_DISTANCE


def has_right_check_digit(digits: str) -> bool:
    """Whether the last digit checks the others. Source: ISO/IEC 7812-1, annex B."""
    doubled = (int(each) * (1 + index % 2) for index, each in enumerate(reversed(digits)))
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _edit(start: int, end: int, kind: str) -> Edit:
    return Edit(start=start, end=end, text=LABELS[kind], kind=kind)
