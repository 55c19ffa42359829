"""JSON objects as text messages, for every dialect whose messages are JSON."""

import json
import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

from tutti_server.app.errors import BadMessage

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""`json.dumps` would make such an encoder for each message."""
MAX_DEPTH = 100
"""How many objects and lists may stand within each other: far more than in any message that a client needs, and far
fewer than those at which Python's recursion ends."""
ITEMS_PER_PIECE = 64
"""How many items of a list `write_large` writes at once: with their own fields, far less than a millisecond's work."""


def read_object(text: str) -> dict[str, Any]:
    """Parse a text message that must be a JSON object.

    Raises:
        BadMessage: the text is not a JSON object, is nested too deeply, or contains what no answer can repeat: half a
            surrogate pair, or a number that is too large for a float.
    """
    too_deep = f"a JSON object of at most {MAX_DEPTH} levels"
    try:
        message = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError:
        raise BadMessage("bad_json", "a JSON object", text) from None
    except RecursionError:
        raise BadMessage("bad_json", too_deep, text) from None
    if not isinstance(message, dict):
        raise BadMessage("bad_json", "a JSON object", text)
    if _is_too_deep(message):
        raise BadMessage("bad_json", too_deep, text)
    if "\\u" in text and _has_surrogates(message):
        raise BadMessage("bad_json", "text of whole characters, not half a surrogate pair", text)
    return message


def write_object(message: dict[str, Any]) -> str:
    """Write a JSON object as a text message."""
    return _text(message)


def write_large(value: dict[str, Any]) -> str:
    """Write an object whose lists may have 100,000 items, in a thread that is not the event loop's.

    `json` lets no other thread run while it writes, which takes a second for the words of a day. This writes in pieces.
    """
    return "".join(_pieces(value))


def _pieces(value: object) -> Iterable[str]:
    match value:
        case dict():
            separator = "{"
            for name, each in value.items():
                yield f"{separator}{_text(name)}:"
                yield from _pieces(each)
                separator = ","
            yield "}" if value else "{}"
        case list() if len(value) > ITEMS_PER_PIECE:
            for start in range(0, len(value), ITEMS_PER_PIECE):
                yield "," if start else "["
                yield _text(value[start : start + ITEMS_PER_PIECE])[1:-1]
            yield "]"
        case list() if any(isinstance(each, dict) for each in value):
            for index, each in enumerate(value):
                yield "," if index else "["
                yield from _pieces(each)
            yield "]"
        case _:
            yield _text(value)


def _is_too_deep(message: dict[str, Any]) -> bool:
    """Whether more than `MAX_DEPTH` objects and lists stand within each other. Most messages have one or two levels."""
    level: list[dict[str, Any] | list[Any]] = [message]
    for _ in range(MAX_DEPTH):
        values = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [each for each in values if isinstance(each, (dict, list))]
        if not level:
            return False
    return True


def _has_surrogates(message: dict[str, Any]) -> bool:
    """Whether a text holds half a surrogate pair: JSON can escape one, UTF-8 cannot encode it."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
