"""Text messages as JSON objects, for every dialect whose messages are that."""

import json
from typing import Any

from app.errors import BadMessage


def read_object(text: str) -> dict[str, Any]:
    """A text message as the JSON object that it should be.

    Raises:
        BadMessage: it is none, or holds what cannot be sent on, such as half a character.
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
    """A JSON object as a text message."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _has_surrogates(message: dict[str, Any]) -> bool:
    """JSON may spell half a character; no UTF-8 can."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
