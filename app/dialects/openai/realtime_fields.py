"""JSON objects in the session updates of OpenAI Realtime clients, popped key by key."""

from collections.abc import Callable
from typing import Any

from tutti_server.app.dialects.checks import understood
from tutti_server.app.dialects.limits import MAX_NAME_CHARS, MAX_NOTICES
from tutti_server.app.errors import BadMessage

Warnings = list[dict[str, str]]
"""Each has `param` and `message`: a setting that the client asked for and does not get."""

NO_EFFECT = "has no effect on this server"


class BadField(BadMessage):
    """A field has a value that the server cannot follow."""

    def __init__(self, param: str, expected: str, got: object) -> None:
        super().__init__("invalid_value", f"{expected} as {param}", got)
        self.param = param


class Fields:
    """A JSON object whose known keys are popped one by one. The keys that remain at the end cause warnings."""

    def __init__(self, values: object, path: str) -> None:
        """Begin with all keys of an object, which errors call `path`. Raises `BadField` if it is none."""
        if not isinstance(values, dict):
            raise BadField(path, "an object", values)
        self._values = dict(values)
        self._popped: set[str] = set()
        self._path = path
        self._nested: list[Fields] = []
        self._warnings: Warnings = []

    def has(self, key: str) -> bool:
        """Whether a key is present and was not popped."""
        return key in self._values

    def was_popped(self, key: str) -> bool:
        """Whether `pop` was called for a key."""
        return key in self._popped

    def pop_null(self, key: str) -> bool:
        """Whether a key is present and `null`; if so, it is removed."""
        if self._values.get(key, ...) is not None:
            return False
        self.discard(key)
        return True

    def discard(self, *keys: str) -> None:
        """Remove keys without a look at their values."""
        for key in keys:
            self._values.pop(key, None)

    def discard_empty(self, *keys: str) -> None:
        """Remove keys whose value is an empty text, as if they were not given."""
        self.discard(*(key for key in keys if self._values.get(key) == ""))

    def pop(self, key: str, expected: str, is_valid: Callable[[Any], bool], is_required: bool = False) -> Any:
        """Remove a key and return its value; `None` if it is absent or `null`, or an empty text that is not valid.

        Args:
            key: the name of the field.
            expected: describes valid values, for the error.
            is_valid: whether a value is valid; it decides about `null` only if the key is required. A text may spell a
                boolean or a number.
            is_required: the key must be present.

        Raises:
            BadField: the value is not valid.
        """
        value = understood(self._values.pop(key, None), is_valid)
        self._popped.add(key)
        if value == "" and not is_required and not is_valid(value):
            return None
        if (value is not None or is_required) and not is_valid(value):
            raise BadField(self.name(key), expected, value)
        return value

    def nested(self, key: str) -> "Fields":
        """Remove a key whose value is an object and return it; an empty one if it is absent, `null` or empty text."""
        value = self._values.pop(key, None)
        nested = Fields({} if value in (None, "") else value, self.name(key))
        self._nested.append(nested)
        return nested

    def warn(self, key: str, message: str) -> None:
        """Add a warning about a key."""
        self._warnings.append({"param": self.name(key), "message": message})

    def warnings(self) -> Warnings:
        """All warnings, here and in nested objects. A key that remains causes one, unless it is `null`."""
        unknown = [self.name(key[:MAX_NAME_CHARS]) for key, value in self._values.items() if value is not None]
        own = [*self._warnings, *({"param": name, "message": NO_EFFECT} for name in unknown)]
        return [*own, *(warning for nested in self._nested for warning in nested.warnings())][:MAX_NOTICES]

    def name(self, key: str) -> str:
        """The full name of a key, for errors and warnings."""
        return f"{self._path}.{key}"
