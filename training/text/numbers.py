"""Numbers, dates, times and codes in words, as they are spoken and as this project writes them."""

import random
import re

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = ["", "", *"twenty thirty forty fifty sixty seventy eighty ninety".split()]
IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def cardinal(n: int, use_and: bool = False) -> str:
    """A number in words: 205 is "two hundred five", or "two hundred and five" with `use_and`."""
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if n >= size:
            rest = n % size
            joint = " and " if use_and and 0 < rest < 100 else " "
            return f"{cardinal(n // size, use_and)} {name}" + (joint + cardinal(rest, use_and) if rest else "")
    if n >= 100:
        rest = n % 100
        return ONES[n // 100] + " hundred" + ((" and " if use_and else " ") + cardinal(rest) if rest else "")
    if n >= 20:
        return TENS[n // 10] + (" " + ONES[n % 10] if n % 10 else "")
    return ONES[n]


def ordinal(n: int) -> str:
    """An ordinal number in words."""
    *head, last = cardinal(n).split()
    ending = IRREGULAR_ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join([*head, ending])


def year(n: int, r: random.Random) -> str:
    """A year in words, in one of the usual ways."""
    if 2000 <= n < 2010:
        return cardinal(n, use_and=r.random() < 0.5)
    if 2010 <= n < 2100 and r.random() < 0.35:
        return cardinal(n, use_and=r.random() < 0.5)
    century, rest = divmod(n, 100)
    if rest == 0:
        return cardinal(century) + " hundred"
    return cardinal(century) + " " + ("oh " + ONES[rest] if rest < 10 else cardinal(rest))


def clock(r: random.Random) -> str:
    """A random time of day in words."""
    hour, minute = r.randint(1, 12), r.choice([0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, r.randint(1, 59)])
    style = r.random()
    if style < 0.15:
        return (
            r.choice(["half past", "a quarter past", "a quarter to", "ten past", "five to", "twenty to"])
            + " "
            + ONES[hour]
        )
    if minute == 0:
        spoken = ONES[hour] + (" o'clock" if r.random() < 0.6 else "")
    else:
        spoken = ONES[hour] + (" oh " + ONES[minute] if minute < 10 else " " + cardinal(minute))
    if "o'clock" not in spoken and r.random() < 0.5:
        spoken += r.choice([" a m", " p m", " p m", " in the morning", " in the evening", " in the afternoon"])
    return spoken


def date(r: random.Random) -> str:
    """A random date in words."""
    month, day = r.choice(MONTHS), ordinal(r.randint(1, 31))
    spoken = f"{month} {day}" if r.random() < 0.6 else f"the {day} of {month}"
    if r.random() < 0.35:
        spoken += r.choice([" ", ", "]) + year(r.randint(1850, 2040), r)
    return spoken


def digits(r: random.Random, count: int) -> str:
    """Random digits in words, sometimes with "oh" for zero and a comma between groups."""
    spoken = [ONES[r.randint(0, 9)] for _ in range(count)]
    if r.random() < 0.15:
        spoken = ["oh" if word == "zero" else word for word in spoken]
    if count >= 6 and r.random() < 0.4:
        spoken[2] += ","
        if count >= 7:
            spoken[5] += ","
    return " ".join(spoken)


def spelled(word: str) -> str:
    """A word spelled in capitals with spaces, such as "K O W A L S K I"."""
    return " ".join(letter.upper() for letter in word if letter.isalpha())


def code(r: random.Random) -> str:
    """A random code of letters and digits, such as "Q 7 7 dash 3 0 2". Digits in a code stay digits."""
    parts = [r.choice(LETTERS) if r.random() < 0.45 else str(r.randint(0, 9)) for _ in range(r.randint(3, 7))]
    parts[0] = r.choice(LETTERS)
    if len(parts) > 4 and r.random() < 0.4:
        parts[r.randint(2, len(parts) - 2)] = "dash"
    return " ".join(parts)


def in_words(written: str) -> str | None:
    """A number from another source in words, or `None` if there are several ways to speak it."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+|\d+", written):
        return _integer(written)
    if match := re.fullmatch(r"(\d+)\.(\d{1,3})", written):
        return cardinal(int(match[1])) + " point " + " ".join(ONES[int(figure)] for figure in match[2])
    if match := re.fullmatch(r"\$(\d+)", written):
        return cardinal(int(match[1])) + " dollars"
    match = re.fullmatch(r"(\d+)(st|nd|rd|th|%)", written)
    if match is None or int(match[1]) >= 1000:
        return None
    return cardinal(int(match[1])) + " percent" if match[2] == "%" else ordinal(int(match[1]))


def _integer(written: str) -> str | None:
    n = int(written.replace(",", ""))
    if (len(written) > 1 and written[0] == "0") or n >= 10**9:
        return None
    is_year = len(written) == 4 and 1100 <= n <= 2099
    return year(n, random.Random(n)) if is_year else cardinal(n)
