"""Finds what must not be written down: numbers of cards, accounts and telephones, e-mail addresses, given names.

What is found is replaced by its kind in brackets. Where a number may go on in the next utterance, or goes on from the
last one, it is replaced although its kind is not known yet: too much is better than a number of a card in two halves.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.text_rules.digit_runs import DigitRun, digit_runs
from app.text_rules.edits import Edit, Found, start_of_last_words, whole_words, without_overlaps

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

MIN_CARD, MAX_CARD = 12, 19
"""The digits of a card's number. Source: ISO/IEC 7812-1, as for the check digit (Luhn); Maestro has the fewest."""
SSN_DIGITS = 9
MIN_PHONE, MAX_PHONE = 7, 15
"""The digits of a telephone number. Source: ITU-T E.164 for the most; the fewest are those of a local number."""
MIN_ACCOUNT = 5
MIN_NUMBER = 3
"""The digits of a sequence that `number` redacts. Source: Deepgram's documentation of `redact=numbers`."""
MIN_PART = 4
"""The digits from which on a part of a number is redacted where the rest may be in another utterance."""
SECURITY_DIGITS = (3, 4)
"""The digits of a card's security code, and of its expiry."""
SECURITY_DISTANCE = 8
"""How many words after a word of `_SECURITY` such a number may come."""
_SECURITY = re.compile(r"\b(?:cvv2?|cvc2?|cid|csc|security|verification|expir\w*|valid|thru)\b", re.IGNORECASE)

_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*")
_DOMAINS = "com|org|net|edu|gov|mil|info|biz|io|co|ai|app|dev|me|tv|uk|us|de|fr|es|it|nl|eu|ca|au|nz|in|ch|at|be|se|pl"
_JOIN = r"(?:\s+(?:dot|underscore|dash|hyphen|minus|plus|point)\s+|[._+-])"
_NAME = r"[^\W_]+"
_SPOKEN_EMAIL = re.compile(
    rf"\b{_NAME}(?:{_JOIN}{_NAME})*\s+at\s+{_NAME}(?:{_JOIN}{_NAME})*?{_JOIN}(?:{_DOMAINS})\b(?:{_JOIN}(?:{_DOMAINS})\b)*",
    re.IGNORECASE,
)
_PARTIAL_EMAIL = re.compile(
    rf"\b{_NAME}(?:{_JOIN}{_NAME})*(?:\s+(?:dot|underscore|dash|hyphen|minus|plus|point)"
    rf"|\s+at(?:\s+{_NAME}(?:{_JOIN}{_NAME})*(?:\s+(?:dot|dash|hyphen|point))?)?)?[^\w@]*$|\S+@\S*\s*$",
    re.IGNORECASE,
)
"""The end of a text that more text could make an address."""


@dataclass(slots=True)
class Before:
    """What a channel's text before a text tells about it."""

    digits: int = 0
    """The digits of the number at the end of the text before; 0 if it does not end with one."""
    words_since_card: int = 1 << 20
    """The words since the last number of a card, or the last word that announces its security code."""


class Redaction:
    """Finds secrets of some kinds."""

    def __init__(self, kinds: Sequence[Kind], names: Sequence[str] = ()) -> None:
        """Make the rule.

        Args:
            kinds: what is redacted.
            names: words that are, too, as whole words and in any case.
        """
        self._kinds = frozenset(kinds)
        self._names = whole_words(names)
        self._longest_name = max((len(each.split()) for each in names), default=0)

    def find(self, text: str, before: Before, changes_from: int | None = None) -> Found:
        """What must not be written down of a text, which may go on.

        Args:
            text: any text.
            before: what is known of the text before it.
            changes_from: the index from which on the text may change, so that any number there may turn out to be
                longer; `None` if none does.
        """
        runs = [
            replace(run, goes_on=True) if changes_from is not None and run.start >= changes_from else run
            for run in digit_runs(text)
        ]
        edits = [edit for run in runs if (edit := self._of_number(text, run, before))]
        decided = runs[-1].start if runs and runs[-1].goes_on and self._has_numbers else len(text)
        if "email" in self._kinds:
            edits += _matches(_EMAIL, text, "email")
            edits += _matches(_SPOKEN_EMAIL, text, "email")
            if partial := _PARTIAL_EMAIL.search(text):
                decided = min(decided, partial.start())
        if self._names:
            edits += _matches(self._names, text, "name")
            decided = min(decided, start_of_last_words(text, self._longest_name - 1))
        return Found(without_overlaps(edits), decided, [(run.start, run.end) for run in runs])

    def after(self, text: str, before: Before) -> Before:
        """What this text, which is over, tells about the text after it."""
        runs = list(digit_runs(text))
        n_words = len(text.split())
        if not n_words:
            return before
        digits = 0
        if runs and runs[-1].goes_on:
            is_all = runs[-1].start <= len(text) - len(text.lstrip())
            digits = len(runs[-1].digits) + (before.digits if is_all else 0)
        ends = [each.end for each in runs if self._is_card(each)] + [each.end() for each in _SECURITY.finditer(text)]
        since = len(text[max(ends) :].split()) if ends else before.words_since_card + n_words
        return Before(digits, since)

    @property
    def _has_numbers(self) -> bool:
        return bool(self._kinds - {"email"})

    def _of_number(self, text: str, run: DigitRun, before: Before) -> Edit | None:
        """The edit of a sequence of digits, if it must not be written down."""
        if not self._has_numbers:
            return None
        kind = self._kind(text, run, before) or ("number" if self._is_part(text, run, before) else None)
        return Edit(start=run.start, end=run.end, text=LABELS[kind], kind=kind) if kind else None

    def _is_part(self, text: str, run: DigitRun, before: Before) -> bool:
        """Whether a sequence may be a part of a number, the rest of which is in another utterance."""
        n_before = before.digits if not text[: run.start].strip(" \t\n.,;-–") else 0
        is_long = n_before + len(run.digits) >= (MIN_NUMBER if "number" in self._kinds else MIN_PART)
        return is_long and bool(run.goes_on or n_before)

    def _kind(self, text: str, run: DigitRun, before: Before) -> Kind | None:
        """What a sequence is if nothing comes before and after it."""
        n_digits, kinds = len(run.digits), self._kinds
        if "card" in kinds and (self._is_card(run) or self._is_security_code(text, run, before)):
            return "card"
        if "ssn" in kinds and n_digits == SSN_DIGITS:
            return "ssn"
        if "phone" in kinds and MIN_PHONE <= n_digits <= MAX_PHONE:
            return "phone"
        if "account" in kinds and n_digits >= MIN_ACCOUNT:
            return "account"
        if "number" in kinds and n_digits >= MIN_NUMBER:
            return "number"
        return None

    def _is_card(self, run: DigitRun) -> bool:
        """Whether a sequence has the length of a card's number, or one is inside it.

        A wrong check digit does not help: one digit that was heard wrongly makes it wrong.
        """
        n_digits = len(run.digits)
        return MIN_CARD <= n_digits <= MAX_CARD or (n_digits > MAX_CARD and has_card(run.digits))

    def _is_security_code(self, text: str, run: DigitRun, before: Before) -> bool:
        if len(run.digits) not in SECURITY_DIGITS:
            return False
        announced = [each.end() for each in _SECURITY.finditer(text, 0, run.start)]
        announced += [each.end for each in digit_runs(text[: run.start]) if self._is_card(each)]
        if announced:
            return len(text[max(announced) : run.start].split()) <= SECURITY_DISTANCE
        return before.words_since_card + len(text[: run.start].split()) <= SECURITY_DISTANCE


def has_card(digits: str) -> bool:
    """Whether a number of a card with a right check digit is among these digits, or they are too many to be another."""
    return len(digits) > 2 * MAX_CARD or any(
        has_right_check_digit(digits[start : start + length])
        for length in range(MIN_CARD, MAX_CARD + 1)
        for start in range(len(digits) - length + 1)
    )


def has_right_check_digit(digits: str) -> bool:
    """Whether the last digit checks the others. Source: ISO/IEC 7812-1, annex B."""
    doubled = (int(each) * (1 + index % 2) for index, each in enumerate(reversed(digits)))
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _matches(pattern: re.Pattern[str], text: str, kind: str) -> list[Edit]:
    return [Edit(start=each.start(), end=each.end(), text=LABELS[kind], kind=kind) for each in pattern.finditer(text)]
