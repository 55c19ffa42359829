"""Reads the numbers that others write as text: in paths, queries, forms and headers.

Python reads more than is meant by a number there: `int` and `float` take spaces, underscores and digits of all scripts,
and `int` raises another error than usual for thousands of digits.
"""

import math
import re

MAX_CHARS = 64
"""The longest text that is read, in characters; no number of ours needs a third of them."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def read_integer(text: str, low: int = 0, high: float = math.inf) -> int | None:
    """The integer that these decimal digits stand for, if it is from `low`, at least 0, to `high`; else `None`."""
    if len(text) > MAX_CHARS or not text.isascii() or not text.isdecimal():
        return None
    number = int(text)
    return number if low <= number <= high else None


def read_number(text: str, low: float, high: float) -> float | None:
    """The number that this text stands for, which may have a fraction, if it is from `low` to `high`; else `None`."""
    if len(text) > MAX_CHARS or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if low <= number <= high else None
