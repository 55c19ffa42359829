"""The text fields of a form, taken one by one; what nobody took is known to be without effect."""

import json
import math
from collections.abc import Iterable
from typing import TypeVar

from app.errors import shorten
from app.service.http_errors import RequestError

_Number = TypeVar("_Number", int, float)


class Form:
    """Fields by name. Lists are repeated fields, with `[]` behind their name or without; objects are `name[key]`.

    Every method raises `RequestError` for a value that is not what it asks for.
    """

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in items:
            self._values.setdefault(name.removesuffix("[]"), []).append(value)
        self._ignored: set[str] = set()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the fields that had no effect: those that were not taken, and those that were told to `ignore`."""
        return tuple(sorted({*self._ignored, *self._values}))

    def ignore(self, name: str) -> None:
        self._ignored.add(name)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._values.pop(name, ()))

    def text(self, name: str) -> str | None:
        """`None` if the field is missing."""
        values = self.texts(name)
        if len(values) > 1:
            raise RequestError(400, f"{name}: expected one value, got {len(values)}", name)
        return values[0] if values else None

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name) or default
        if value not in choices:
            raise bad_value(name, f"one of {', '.join(choices)}", value)
        return value

    def choices(self, name: str, choices: tuple[str, ...]) -> frozenset[str]:
        values = self.texts(name)
        for value in values:
            if value not in choices:
                raise bad_value(name, " or ".join(choices), value)
        return frozenset(values)

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "1", "false", "0"):
            raise bad_value(name, "true or false", value)
        return value.lower() in ("true", "1")

    def number(self, name: str, default: _Number, least: float, most: float) -> _Number:
        """A number of the kind that `default` is."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = type(default)(value)
        except ValueError:
            number = math.nan  # type: ignore[assignment]  # in no range, whatever the kind
        if not least <= number <= most:
            kind = "whole number" if isinstance(default, int) else "number"
            raise bad_value(name, f"a {kind} from {least:g} to {most:g}", value)
        return number

    def nested(self, name: str) -> "Form | str | None":
        """An object, spelled as fields `name[key]` or as JSON; or the text that stands in its place."""
        prefix = f"{name}["
        keys = [each for each in self._values if each.startswith(prefix) and each.endswith("]")]
        if keys:
            return Form((key, value) for key in keys for value in self._values.pop(key))
        value = self.text(name)
        if value is None or not value.lstrip().startswith("{"):
            return value
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            raise bad_value(name, "a JSON object", value) from None
        return Form(
            (f"{name}[{key}]", each if isinstance(each, str) else json.dumps(each)) for key, each in parsed.items()
        )


def bad_value(name: str, expected: str, got: str) -> RequestError:
    return RequestError(400, f"{name}: expected {expected}, got {shorten(got)}", name)
