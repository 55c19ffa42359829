"""Writes English numbers that are spoken in words as digits: "twenty five" as 25, "four one five" as 415.

Also dates ("March 14"), money ("$23.50"), percentages and times of day. Numbers below ten stay words where nothing says
that they count something ("one of them"). Text that has digits already is left as it is.
"""

import re
from dataclasses import dataclass

from tutti_server.app.text_rules.digit_runs import REPEATS, TEENS, TENS, UNITS
from tutti_server.app.text_rules.edits import TOKEN, Edit, Found

SMALL = {word: int(value) for word, value in {**UNITS, **TEENS}.items()}
DECADES = {word: 10 * int(value) for word, value in TENS.items()}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
ORDINALS = {
    word: value
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
        "fifteenth sixteenth seventeenth eighteenth nineteenth".split(),
        start=1,
    )
} | {word[:-1] + "ieth": value for word, value in DECADES.items()}
PLURAL_DECADES = {word[:-1] + "ies": value for word, value in DECADES.items()}
MONTHS = frozenset("january february march april May june july august september october november december".split())
"""The names of months in small letters, but for May, which is another word in them."""
CURRENCIES = {"dollar": "$", "dollars": "$", "euro": "€", "euros": "€"}
HALF_DAYS = {"am": 1, "pm": 1, "a": 2, "p": 2}
"""The words of "am" and "p m", by the first."""
BEFORE_TIMES = frozenset("at until till by around before after".split())
"""Words before a time that is said as two numbers: "at ten thirty"."""
IDIOMS = {("fifty", "fifty"): "50/50", ("twenty", "four", "seven"): "24/7"}
LEAST_ALONE = 10
"""The least number that is written in digits where nothing says what it counts."""
LEAST_WITH_COMMAS = 10_000
MIN_DIGITS = 3
"""The fewest digits said one by one that are a number: "one two" may be anything."""
WORDS = frozenset(
    (
        *(*SMALL, *DECADES, *PLURAL_DECADES, *SCALES, *ORDINALS, *MONTHS, *CURRENCIES, *REPEATS, *HALF_DAYS),
        *BEFORE_TIMES,
        *"hundred and point oh o percent per cent cents quarter half past to of m i".split(),
    )
)
"""All words that a number may consist of."""
_JOINED = re.compile(r"[\s\-‐‑]*")
"""What may stand between two words of a number."""
_OF_HALF_DAY = re.compile(r"\.?\s*")
"""What may stand between the letters of "p.m."."""


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Parsed:
    next: int
    """The index of the word after it."""
    text: str
    """How it is written in digits."""
    value: int = 0
    counts: bool = True
    """Whether it is written in digits by itself."""


class Numerals:
    """Writes numbers that were spoken as figures."""

    def find(self, text: str) -> Found:
        """The edits of a text that may go on."""
        edits: list[Edit] = []
        decided = len(text)
        chains = _chains(text)
        for chain in chains:
            edits += _edits(chain)
        if chains and _between(chains[-1][-1]).fullmatch(text, chains[-1][-1].end):
            decided = chains[-1][0].start
        return Found(edits, decided, [(chain[0].start, chain[-1].end) for chain in chains])


def _chains(text: str) -> list[list[_Word]]:
    """The longest sequences of words that a number may consist of."""
    chains: list[list[_Word]] = []
    until = -1
    for token in TOKEN.finditer(text):
        word = _Word(token[0] if token[0] == "May" else token[0].lower(), token.start(), token.end())
        is_joined = until >= 0 and _between(chains[-1][-1]).fullmatch(text, until, word.start)
        until = -1
        if word.text in WORDS:
            if not is_joined:
                chains.append([])
            chains[-1].append(word)
            until = word.end
    return chains


def _between(word: _Word) -> re.Pattern[str]:
    """What may stand after a word of a number and before the next one."""
    return _OF_HALF_DAY if word.text in ("a", "p") else _JOINED


def _edits(chain: list[_Word]) -> list[Edit]:
    edits = []
    words = _Words([each.text for each in chain])
    at = 0
    while at < len(chain):
        parsed = words.phrase(at)
        if parsed is None or not parsed.counts:
            at = parsed.next if parsed else at + 1
            continue
        edits.append(Edit(start=chain[at].start, end=chain[parsed.next - 1].end, text=parsed.text))
        at = parsed.next
    return edits


class _Words:
    """A chain of words, and how numbers are read from it."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def _at(self, index: int) -> str:
        return self._words[index] if 0 <= index < len(self._words) else ""

    def phrase(self, at: int) -> _Parsed | None:
        """The longest number, date, amount or time that begins here."""
        number = self._decimal(at)
        return (
            self._idiom(at)
            or self._clock(at)
            or self._time(at)
            or self._ordinal(at)
            or self._decade(at)
            or (number and (self._money(number) or self._percent(number) or self._range(number)))
            or self._digits(at)
            or number
        )

    def _idiom(self, at: int) -> _Parsed | None:
        found = (words for words in IDIOMS if tuple(self._words[at : at + len(words)]) == words)
        return next((_Parsed(at + len(words), IDIOMS[words]) for words in found), None)

    def _range(self, number: _Parsed) -> _Parsed | None:
        """A number below ten before one that is written in digits, as in "five to ten"."""
        joins = ("to",) if number.value == 1 else ("to", "and")
        if number.counts or self._at(number.next) not in joins:
            return None
        other = self._cardinal(number.next + 1)
        return _Parsed(number.next, number.text) if other and other.counts else None

    def _decade(self, at: int) -> _Parsed | None:
        """Years of a century: "nineteen nineties"."""
        century = self._small(at)
        if century is None or century.value < LEAST_ALONE or self._at(century.next) not in PLURAL_DECADES:
            return None
        return _Parsed(century.next + 1, f"{century.text}{PLURAL_DECADES[self._at(century.next)]}s")

    # Numbers.

    def _small(self, at: int) -> _Parsed | None:
        word, unit = self._at(at), SMALL.get(self._at(at + 1), 10)
        if word in DECADES:
            has_unit = 0 < unit < LEAST_ALONE
            value = DECADES[word] + (unit if has_unit else 0)
            return _Parsed(at + 1 + has_unit, str(value), value)
        if word in SMALL:
            return _Parsed(at + 1, str(SMALL[word]), SMALL[word], SMALL[word] >= LEAST_ALONE)
        return None

    def _unit(self, at: int) -> int | None:
        """A digit; `None` if the word is none."""
        value = SMALL.get("zero" if self._at(at) in ("oh", "o") else self._at(at), LEAST_ALONE)
        return value if value < LEAST_ALONE else None

    def _hundreds(self, at: int) -> _Parsed | None:
        # "a hundred", "a thousand"
        is_one = self._at(at) == "a" and self._at(at + 1) in ("hundred", *SCALES)
        small = _Parsed(at + 1, "1", 1) if is_one else self._small(at)
        if small is None or self._at(small.next) != "hundred" or not small.value:
            return small
        value, after = small.value * 100, small.next + 1
        rest = self._small(after + (self._at(after) == "and"))
        if rest and self._at(rest.next) != "hundred":
            value, after = value + rest.value, rest.next
        return _Parsed(after, str(value), value)

    def _cardinal(self, at: int) -> _Parsed | None:
        """A whole number in words that say its size."""
        total, limit, after = 0, 10**15, at
        while part := self._hundreds(after + (after > at and self._at(after) == "and")):
            scale = SCALES.get(self._at(part.next), 1)
            if scale >= limit or (limit < 10**15 and part.value >= limit) or (scale == 1 and limit == 10**15 and total):
                break
            total, limit = total + part.value * scale, scale
            after = part.next + (scale > 1)
            if scale == 1:
                break
        if after == at:
            return None
        is_large = total >= LEAST_WITH_COMMAS
        # "a hundred" counts nothing exactly; "a hundred and ten" does.
        counts = total >= LEAST_ALONE and not (self._at(at) == "a" and after == at + 2)
        return _Parsed(after, f"{total:,}" if is_large else str(total), total, counts)

    def _decimal(self, at: int) -> _Parsed | None:
        whole = self._cardinal(at)
        if whole is None or self._at(whole.next) != "point":
            return whole
        digits, after = "", whole.next + 1
        while (unit := self._unit(after)) is not None:
            digits, after = digits + str(unit), after + 1
        if not digits:
            return whole
        scale = self._at(after)
        text = f"{whole.text}.{digits}"
        return _Parsed(after + 1, f"{text} {scale}") if scale in SCALES else _Parsed(after, text, whole.value)

    def _digits(self, at: int) -> _Parsed | None:
        """Digits said one by one, or in pairs: "four one five", "double two", "sixty two fourteen"."""
        digits, after, n_parts = "", at, 0
        while True:
            repeat = REPEATS.get(self._at(after), 1)
            begin = after + (repeat > 1)
            if self._at(begin) in ("oh", "o"):
                part = _Parsed(begin + 1, "0") if self._is_zero(at, begin, digits) else None
            else:
                part = self._small(begin)
            if part is None or self._at(part.next) in ("hundred", *SCALES) or (repeat > 1 and len(part.text) > 1):
                break
            digits, after, n_parts = digits + part.text * repeat, part.next, n_parts + 1
        is_number = len(digits) >= MIN_DIGITS and n_parts > 1
        return _Parsed(after, digits) if is_number or (n_parts == 1 and REPEATS.get(self._at(at))) else None

    def _is_zero(self, first: int, at: int, digits: str) -> bool:
        """Whether "oh" is a digit: among others, or before several; after them only if all were said one by one."""
        follows = self._at(at + 1) in SMALL or self._at(at + 1) in REPEATS or self._at(at + 1) in DECADES
        if at == first:
            return all(self._unit(at + each) is not None for each in range(1, MIN_DIGITS + 1))
        are_single = len(digits) >= MIN_DIGITS - 1 and len(digits) == at - first
        return follows or are_single or self._at(at - 1) in REPEATS

    # What numbers count.

    def _money(self, number: _Parsed) -> _Parsed | None:
        sign = CURRENCIES.get(self._at(number.next))
        if sign is None:
            is_cents = self._at(number.next) == "cents"
            return _Parsed(number.next, number.text) if is_cents else None
        after = number.next + 1
        cents = self._small(after + (self._at(after) == "and"))
        if cents and self._at(cents.next) in ("cent", "cents") and "." not in number.text:
            return _Parsed(cents.next + 1, f"{sign}{number.text}.{cents.value:02}")
        return _Parsed(after, sign + number.text)

    def _percent(self, number: _Parsed) -> _Parsed | None:
        after = number.next
        if self._at(after) == "percent":
            return _Parsed(after + 1, f"{number.text}%")
        if (self._at(after), self._at(after + 1)) == ("per", "cent"):
            return _Parsed(after + 2, f"{number.text}%")
        return None

    def _ordinal(self, at: int) -> _Parsed | None:
        """A place in an order, or the day of a month."""
        first = at
        value = 0
        hundreds = self._small(at)
        if hundreds and self._at(hundreds.next) == "hundred":
            value, at = 100 * hundreds.value, hundreds.next + 1
            at += self._at(at) == "and"
        if self._at(at) in DECADES and self._at(at) != "twenty" and self._at(at + 1) == "second":
            # "thirty second" is mostly a time.
            return None
        if self._at(at) in DECADES and 0 < ORDINALS.get(self._at(at + 1), 10) < LEAST_ALONE:
            value, at = value + DECADES[self._at(at)], at + 1
        if self._at(at) not in ORDINALS:
            return None
        value += ORDINALS[self._at(at)]
        if self._at(first - 1) in MONTHS:
            return _Parsed(at + 1, str(value))
        is_day = self._at(at + 1) == "of" and self._at(at + 2) in MONTHS
        return _Parsed(at + 1, f"{value}{_suffix(value)}", counts=is_day or value >= LEAST_ALONE)

    def _time(self, at: int) -> _Parsed | None:
        hour = self._small(at)
        if hour is None or not 1 <= hour.value <= 12:
            return None
        if self._is_half_day(hour.next):
            return _Parsed(hour.next, hour.text)
        begin = hour.next + (self._at(hour.next) in ("oh", "o"))
        minute = self._small(begin)
        if minute is None or not (self._is_half_day(minute.next) or self._is_round_time(at, minute)):
            return None
        is_minute = 10 <= minute.value < 60 if begin == hour.next else minute.value < LEAST_ALONE
        return _Parsed(minute.next, f"{hour.text}:{minute.value:02}") if is_minute else None

    def _is_round_time(self, at: int, minute: _Parsed) -> bool:
        """Whether two numbers are a time without "am": after a word such as "at", if the minutes are round ones."""
        return self._at(at - 1) in BEFORE_TIMES and minute.value % 5 == 0 and self._digits(minute.next - 1) is None

    def _is_half_day(self, at: int) -> bool:
        n_words = HALF_DAYS.get(self._at(at), 0)
        # "it is one am I right"
        return (n_words == 1 and self._at(at + 1) != "i") or (n_words == 2 and self._at(at + 1) == "m")

    def _clock(self, at: int) -> _Parsed | None:
        """A quarter or half past or to an hour, or minutes past it."""
        begin = at + (self._at(at) == "a")
        small = self._small(at)
        if small and small.value in (5, 10, 20, 25) and self._at(small.next) == "past":
            hour = self._small(small.next + 1)
            is_hour = hour is not None and 1 <= hour.value <= 12
            return _Parsed(hour.next, f"{hour.text}:{small.value:02}") if hour and is_hour else None
        minutes = {("quarter", "past"): 15, ("quarter", "to"): -15, ("half", "past"): 30}.get(
            (self._at(begin), self._at(begin + 1))
        )
        hour = self._small(begin + 2) if minutes else None
        if hour is None or minutes is None or not 1 <= hour.value <= 12:
            return None
        past = (hour.value * 60 + minutes) % 720
        return _Parsed(hour.next, f"{past // 60 or 12}:{past % 60:02}")


def _suffix(value: int) -> str:
    return "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
