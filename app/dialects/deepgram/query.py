"""The query parameters of a URL, popped one by one, so that those without effect are known at the end."""

from collections.abc import Iterable
from typing import Any

from tutti_server.app.dialects.checks import BOOLEANS, INDEX, Check, integer_from, is_boolean, number_from, understood
from tutti_server.app.errors import BadStart

OFF = [each for each, is_on in BOOLEANS.items() if not is_on]
"""Values with which an unknown parameter asks for nothing, so that it is not reported."""
NUMBERED = ("track",)
"""Parameters of which 0 is a number, and "no" a language."""
MAX_IGNORED = 20
"""The answer names at most this many parameters without effect, whatever the client sends."""
MAX_IGNORED_CHARS = 40
"""The answer repeats at most this many characters of the name of a parameter without effect."""


class Query:
    """The parameters of a URL, popped one by one. The parameters that remain at the end had no effect.

    The name of one in a list may end in `[]` or an index.
    """

    def __init__(self, query: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in query:
            # Some clients send an empty value for an option that is not set.
            if value.strip():
                self._values.setdefault(INDEX.sub("", name), []).append(value)
        self._adjusted: list[str] = []

    def texts(self, name: str) -> list[str]:
        """All values of a parameter that are not empty."""
        return self._values.pop(name, [])

    def text(self, name: str) -> str | None:
        """The first value of a parameter; `None` if the client did not send the parameter."""
        values = self.texts(name)
        if len(set(values)) > 1:
            self.adjust(name, values[0])
        return values[0] if values else None

    def boolean(self, name: str) -> bool:
        """The value of a parameter as a boolean; false if the client did not send the parameter."""
        return bool(self._read(name, "true or false", is_boolean))

    def integer(self, name: str, low: int, high: int) -> int | None:
        """The value of a parameter as an integer from `low` to `high`; `None` if the client did not send it."""
        number: int | None = self._read(name, f"an integer from {low} to {high}", integer_from(low, high))
        return number

    def number(self, name: str, default: float, high: float) -> float:
        """The value of a parameter as a number from 0 to `high`; `default` if the client did not send it."""
        number = self._read(name, f"a number from 0 to {high:g}", number_from(0, high))
        return default if number is None else float(number)

    def _read(self, name: str, expected: str, is_valid: Check) -> Any:
        """The value that a parameter spells; `None` if the client did not send it."""
        value = self.text(name)
        read = understood(value, is_valid)
        if value is not None and not is_valid(read):
            raise BadStart(name, expected, value)
        return read

    def adjust(self, name: str, value: object) -> None:
        """Report that the server uses this value instead of the one that was sent."""
        self._adjusted.append(f"{name}={value}")

    @property
    def adjusted(self) -> tuple[str, ...]:
        """The reported replacements, as `name=value`."""
        return tuple(self._adjusted)

    def ignored(self) -> tuple[str, ...]:
        """Names of the parameters that remain, except for those that only say that something is off."""
        names = (
            name
            for name, values in self._values.items()
            if name in NUMBERED or any(value.lower() not in OFF for value in values)
        )
        return tuple(name[:MAX_IGNORED_CHARS] for name in sorted(names))[:MAX_IGNORED]
