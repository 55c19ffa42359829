"""JSON objects as text messages, for every dialect whose messages are JSON."""

import json
from collections.abc import Iterable
from typing import Any

from tutti_server.app.errors import BadMessage

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""`json.dumps` would make such an encoder for each message."""
ITEMS_PER_PIECE = 64
"""How many items of a list `write_large` writes at once: with their own fields, far less than a millisecond's work."""


def read_object(text: str) -> dict[str, Any]:
    """Parse a text message that must be a JSON object.

    Raises:
        BadMessage: the text is not a JSON object, or contains half a surrogate pair, which no UTF-8 answer can repeat.
    """
    try:
        message = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        raise BadMessage("bad_json", "a JSON object", text) from None
    except RecursionError:
        raise BadMessage("bad_json", "a JSON object of reasonable depth", text) from None
    if not isinstance(message, dict):
        raise BadMessage("bad_json", "a JSON object", text)
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


def _has_surrogates(message: dict[str, Any]) -> bool:
    """Whether a text holds half a surrogate pair: JSON can escape one, UTF-8 cannot encode it."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
