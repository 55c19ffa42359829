"""The text fields of a form, popped one by one. The fields that remain at the end had no effect."""

import json
from collections.abc import Iterable
from typing import TypeVar

from tutti_server.app.dialects.checks import BOOLEANS, INDEX, integer_from, number_from, understood
from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.errors import BadMessage, RequestError, shorten

MAX_NAME_CHARS = 100
"""The longest name of a client's field that an error repeats, in characters."""

_Number = TypeVar("_Number", int, float)


class Form:
    """The fields of a form by name.

    A list is a repeated field, whose name may end in `[]` or an index; an object is `name[key]`.

    An empty field is not given: forms have all their fields, and clients send one for an option that is not set.
    Each method that returns a field removes it, and raises `RequestError` for a value of the wrong kind.
    """

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in items:
            if value.strip():
                self._values.setdefault(INDEX.sub("", name), []).append(value)
        self._ignored: set[str] = set()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the fields that had no effect: those that remain, and those passed to `ignore`."""
        return tuple(sorted({*self._ignored, *self._values}))

    def ignore(self, name: str) -> None:
        """Report a field as ignored, although it was popped."""
        self._ignored.add(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """All values of a field."""
        return tuple(self._values.pop(name, ()))

    def text(self, name: str) -> str | None:
        """The one value of a field; `None` if the field is missing."""
        values = self.texts(name)
        if len(values) > 1:
            raise RequestError(400, f"{name}: expected one value, got {len(values)}", name)
        return values[0] if values else None

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """The one value of a field, which must be among the choices."""
        value = self.text(name) or default
        if value not in choices:
            raise bad_value(name, f"one of {', '.join(choices)}", value)
        return value

    def choices(self, name: str, choices: tuple[str, ...]) -> frozenset[str]:
        """All values of a field, each of which must be among the choices."""
        values = self.texts(name)
        for value in values:
            if value not in choices:
                raise bad_value(name, " or ".join(choices), value)
        return frozenset(values)

    def boolean(self, name: str, default: bool = False) -> bool:
        """The one value of a field as a boolean."""
        value = self.text(name)
        if value is None:
            return default
        is_on = BOOLEANS.get(value.strip().lower())
        if is_on is None:
            raise bad_value(name, "true or false", value)
        return is_on

    def number(self, name: str, default: _Number, low: float, high: float) -> _Number:
        """The one value of a field as a number from `low` to `high`, of the same type as the default."""
        value = self.text(name)
        if value is None:
            return default
        is_whole = isinstance(default, int)
        is_valid = integer_from(round(low), round(high)) if is_whole else number_from(low, high)
        number = understood(value, is_valid)
        if not is_valid(number):
            raise bad_value(name, f"a {'whole number' if is_whole else 'number'} from {low:g} to {high:g}", value)
        return type(default)(number)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The names of the fields `name[key]` that are not popped yet."""
        return tuple(each for each in self._values if each.startswith(f"{name}[") and each.endswith("]"))

    def nested(self, name: str) -> "Form | str | None":
        """An object, from fields `name[key]` or from JSON; if the field holds other text, the text."""
        if keys := self.keys_of(name):
            return Form((key, value) for key in keys for value in self._values.pop(key))
        value = self.text(name)
        if value is None or not value.lstrip().startswith("{"):
            return value
        try:
            parsed = read_object(value)
        except BadMessage:
            raise bad_value(name, "a JSON object", value) from None
        return Form(
            (f"{name}[{key}]", each if isinstance(each, str) else json.dumps(each))
            for key, each in parsed.items()
            if each is not None
        )


def text_fields(items: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """The fields of a form without its `file`. Any other field that is a file is refused, as its value is not read."""
    texts: list[tuple[str, str]] = []
    for name, value in items:
        if name == "file":
            continue
        if not isinstance(value, str):
            raise RequestError(400, f"{name[:MAX_NAME_CHARS]}: expected text, got a file", name[:MAX_NAME_CHARS])
        texts.append((name, value))
    return texts


def bad_value(name: str, expected: str, got: str) -> RequestError:
    """The refusal of a field's value."""
    return RequestError(400, f"{name}: expected {expected}, got {shorten(got)}", name)
