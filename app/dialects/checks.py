"""Checks of JSON values that clients send. Each check answers whether a value is acceptable."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tutti_server.app.numbers import read_number
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

Check = Callable[[Any], bool]

BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}
"""The spellings of booleans in texts, in lower case."""

INDEX = re.compile(r"\[\d*\]$")
"""The end of the name of a list's field, in forms and queries."""

HOTWORDS_EXPECTED = f"a list of at most {MAX_HOTWORDS} texts of 1 to {MAX_HOTWORD_BYTES} bytes"
"""Describes the values that pass `are_hotwords`, for error messages."""


def is_boolean(value: object) -> bool:
    """Whether a value is `true` or `false`."""
    return isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether a value is a string."""
    return isinstance(value, str)


def is_object(value: object) -> bool:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_integer(value: object) -> bool:
    """Whether a value is an integer; Python's `bool` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an integer or a float; Python's `bool` is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_up_to(max_chars: int) -> Check:
    """A check for strings of at most this many characters."""
    return lambda value: isinstance(value, str) and len(value) <= max_chars


def integer_from(low: int, high: int) -> Check:
    """A check for integers from `low` to `high`."""
    return lambda value: is_integer(value) and low <= value <= high


def number_from(low: float, high: float) -> Check:
    """A check for numbers from `low` to `high`."""
    return lambda value: is_number(value) and low <= value <= high


def are_texts(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def are_hotwords(value: object) -> bool:
    """Whether a value is a list of hotwords that the engine accepts."""
    return (
        isinstance(value, list)
        and len(value) <= MAX_HOTWORDS
        and all(isinstance(each, str) and 1 <= len(each.strip().encode()) <= MAX_HOTWORD_BYTES for each in value)
    )


def usable_hotwords(texts: Iterable[str]) -> tuple[str, ...]:
    """The first of these texts that the engine accepts as hotwords, up to its limit."""
    stripped = (text.strip() for text in texts)
    return tuple(text for text in stripped if 0 < len(text.encode()) <= MAX_HOTWORD_BYTES)[:MAX_HOTWORDS]


def understood(value: object, is_valid: Check) -> Any:
    """A value, or what it spells if only that is valid: a text a boolean or a number, and 2.0 the integer 2."""
    if is_valid(value):
        return value
    return next(filter(is_valid, _spelled(value)), value)


def _spelled(value: object) -> Iterator[bool | int | float]:
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text in BOOLEANS:
        yield BOOLEANS[text]
    number = read_number(text, -math.inf, math.inf) if isinstance(value, str) else None
    if number is not None and math.isfinite(number):
        yield from (int(number), number) if number == int(number) else (number,)
