"""Sequences of digits in a text, written ("4111 1111") or spoken ("four one double one").

A sequence is what somebody reads out: a number of a card, an account or a telephone. So spaces and punctuation do not
end it, nor do a few words such as "uh", "dash" and "sorry" between digits. Words are English; digits that are written
are found in any language, also in text without spaces between its words.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

UNITS = {
    word: str(value)
    for value, word in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
}
ZEROS = {"oh": "0", "o": "0", "nought": "0", "naught": "0"}
"""Names of zero that are other words elsewhere: they count between digits only, or beside one."""
TEENS = {
    word: str(value)
    for value, word in enumerate(
        ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"],
        start=10,
    )
}
TENS = {
    word: str(value)
    for value, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
}
SPOKEN = UNITS | TEENS | {word: tens + "0" for word, tens in TENS.items()} | {"hundred": "00", "thousand": "000"}
"""Words that are digits wherever they stand."""
HOMOPHONES = {"for": "4", "fore": "4", "to": "2", "too": "2", "won": "1", "ate": "8"}
"""Words that sound like digits. They count where digits stand on both sides."""
REPEATS = {"double": 2, "triple": 3, "treble": 3, "quadruple": 4}
"""Words before a digit that is said once for several."""
FILLERS = frozenset(
    (
        "uh um er erm ah eh hmm mm dash hyphen minus space dot point slash comma and then next okay ok so yes yeah yep "
        "no sorry right well wait again is it's that's the digit digits number"
    ).split()
)
"""Words that people say between the digits of one number."""
MAX_FILLERS = 3
"""The most words between two digits of a sequence."""

MIN_DIGITS_OF_IDENTIFIER = 3
"""The fewest digits of a word that has letters, too, and is read out as a number."""

_LATIN = r"a-zà-öø-ɏ\d⁰-₉①-⑨²³¹"
_WORD = re.compile(
    # A word of Latin letters, which may have digits: "one", "A1234567", "3pm", "it's".
    # Or letters of another script, many of which write no space before a number.
    rf"[{_LATIN}]+(?:['’][{_LATIN}]+)*|[^\W_{_LATIN}]+",
    re.IGNORECASE,
)
"""A word, as far as sequences of digits are concerned."""
_JOINED = re.compile(r"\s+|[\-‐‑]")
"""What stands between the two words of "twenty-five"."""
_BREAK = re.compile(r"[%$€£¥₹]")
"""What ends a sequence between two words, beside words: the signs of an amount."""
_OPENING = "(+#"
"""Signs before the first digit that belong to the number."""
_NO_DIGITS = re.compile(r"\d{1,3}(?:st|nd|rd|th|am|pm|s|k|m|g|x|kg|km|cm|mm|ml|mb|gb)|(?:1\d|20)\d0s", re.IGNORECASE)
"""Written numbers that are not read out as identifiers: "1st", "3pm", "1990s"."""


@dataclass(frozen=True, slots=True)
class DigitRun:
    """A sequence of digits among the words of a text."""

    start: int
    """The index of its first character in the text."""
    end: int
    """The index after the last character."""
    digits: str
    """The digits of the run. "forty one hundred" has 4100."""
    goes_on: bool = False
    """Whether nothing that ends it follows in the text."""


@dataclass(slots=True, kw_only=True)
class _Open:
    start: int
    end: int
    digits: str
    n_fillers: int = 0
    """Words since `end` that do not count unless a digit follows."""
    maybe: str = ""
    """The digits of the homophones among them."""
    after_ten: bool = False
    """Whether the last word was one of `TENS`, whose zero a unit replaces."""
    repeat: int = 1
    """How often the next digit counts."""


def digit_runs(text: str) -> Iterator[DigitRun]:
    """All sequences of digits, in order. Only the last one may go on."""
    run: _Open | None = None
    pending: tuple[int, int] | None = None
    """The index of a "double" before any digit, and what it repeats."""
    until = 0
    for token in _WORD.finditer(text):
        word = token[0].lower()
        if _BREAK.search(text, until, token.start()):
            if run:
                yield DigitRun(run.start, run.end, run.digits)
            run = pending = None
        is_joined = _JOINED.fullmatch(text, until, token.start()) is not None
        until = token.end()
        digits = _digits(word)
        if word in REPEATS:
            pending = (token.start(), REPEATS[word])
            if run:
                run.repeat = REPEATS[word]
            continue
        if word in ZEROS and ((run and run.repeat > 1) or (pending and pending[1] > 1)):
            # "double oh"
            digits = ZEROS[word]
        if digits is None and run is None:
            # "oh five", "o five"
            pending = (token.start(), 1) if word in ZEROS else None
            continue
        if digits is not None and run is None:
            run = _begin(token, word, digits, pending, text)
        elif digits is not None:
            assert run
            _go_on(run, token.end(), word, digits, is_joined)
        elif run and not _skip(run, word):
            yield DigitRun(run.start, run.end, run.digits)
            run = None
        pending = None
    goes_on = not _BREAK.search(text, until)
    if run:
        yield DigitRun(run.start, run.end, run.digits, goes_on)
    elif pending and goes_on:
        yield DigitRun(pending[0], len(text), "", goes_on=True)


def is_filled(text: str) -> bool:
    """Whether a text has nothing but words that may stand between the digits of one number."""
    words = {token[0].lower() for token in _WORD.finditer(text)}
    return words <= FILLERS | HOMOPHONES.keys() | ZEROS.keys() | REPEATS.keys() and not _BREAK.search(text)


def begins_with_zero(text: str) -> bool:
    """Whether the first word of a text is a name of zero that counts beside a digit only, and else as another word."""
    first = _WORD.search(text)
    return first is not None and first[0].lower() in ZEROS


def n_fillers(text: str) -> int:
    """How many words of such a text count as words between two digits."""
    return sum(token[0].lower() not in REPEATS for token in _WORD.finditer(text))


def _begin(token: re.Match[str], word: str, digits: str, pending: tuple[int, int] | None, text: str) -> _Open:
    start = token.start()
    while start and text[start - 1] in _OPENING:
        start -= 1
    if pending:
        start, repeat = pending
        before = "0" if text[start : start + 1].lower() in ("o", "n") else ""
        digits = before + digits * repeat
    return _Open(start=start, end=token.end(), digits=digits, after_ten=word in TENS)


def _go_on(run: _Open, end: int, word: str, digits: str, is_joined: bool) -> None:
    """Add the digits of a word to a sequence; `is_joined` if it may be the unit of the word before it."""
    is_unit = word in UNITS and digits != "0" and is_joined and run.repeat == 1
    if run.after_ten and is_unit and not run.n_fillers:
        run.digits = run.digits[:-1] + digits
    else:
        run.digits += run.maybe + digits * run.repeat
    run.end, run.n_fillers, run.maybe, run.repeat = end, 0, "", 1
    run.after_ten = word in TENS


def _skip(run: _Open, word: str) -> bool:
    """Count a word that may stand between digits. Returns whether the sequence may go on after it."""
    if word in HOMOPHONES or word in ZEROS:
        run.maybe += HOMOPHONES.get(word) or ZEROS[word]
    elif word not in FILLERS:
        return False
    run.n_fillers += 1
    run.after_ten = False
    return run.n_fillers <= MAX_FILLERS


def _digits(word: str) -> str | None:
    if word in SPOKEN:
        return SPOKEN[word]
    if _NO_DIGITS.fullmatch(word):
        return None
    found = "".join(str(unicodedata.digit(each)) for each in word if each.isdigit())
    # "B2B" is a word; "A1234567" is an identifier.
    is_identifier = len(found) >= MIN_DIGITS_OF_IDENTIFIER and len(found) * 2 >= len(word)
    return found if len(found) == len(word) or is_identifier else None
