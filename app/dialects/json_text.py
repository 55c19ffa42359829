"""JSON objects as text messages, for every dialect whose messages are JSON."""

import json
from typing import Any

from app.errors import BadMessage


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
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _has_surrogates(message: dict[str, Any]) -> bool:
    """Whether a text holds half a surrogate pair: JSON can escape one, UTF-8 cannot encode it."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
