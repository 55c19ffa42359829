"""API keys with names and limits, from the operator's file."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from app.errors import SettingsError

MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key, and how much its clients may use together. `None`: as much as they want."""

    name: str
    """Stands for the key in messages, in the log and in the shared store. It is no secret."""
    key: str = field(repr=False)
    """What clients send."""
    sessions: int | None = None
    """Live sessions at the same time."""
    minutes_per_day: float | None = None
    """Minutes of audio on one day, in UTC: of live sessions and files."""
    minutes_per_month: float | None = None
    """Minutes of audio in one calendar month, in UTC."""

    rooms: bool = True
    """Whether its clients may publish sessions in rooms."""

    @property
    def has_limits(self) -> bool:
        """Whether anything about it is limited."""
        return any(getattr(self, name) is not None for name in _LIMITS)


_LIMITS = tuple(each.name for each in fields(ApiKey) if each.name not in ("name", "key", "rooms"))


def read_api_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a TOML file, which has a table for each of them.

    Raises:
        SettingsError: the file cannot be read, or says something else.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"keys_file: expected a TOML file that can be read, got {path}: {error}") from error
    keys = tuple(_parsed(content))
    if not keys:
        raise SettingsError(f"keys_file: expected a table for each key, got none in {path}")
    if len({each.key for each in keys}) < len(keys):
        raise SettingsError("keys_file: expected another key in each table, got one key twice")
    return keys


def _parsed(content: dict[str, Any]) -> Iterator[ApiKey]:
    for name, values in content.items():
        if not isinstance(values, dict):
            raise SettingsError(f"keys_file: expected tables only, such as [{name}], got {name} = {values!r}")
        if len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise SettingsError(f"keys_file: expected names of up to {MAX_NAME_CHARS} characters, got {name!r}")
        unknown = values.keys() - {"key", "rooms", *_LIMITS}
        if unknown:
            expected = f"key, rooms, {', '.join(_LIMITS)}"
            raise SettingsError(f"keys_file: {name}: expected {expected}, got {', '.join(sorted(unknown))}")
        key = values.get("key")
        if not isinstance(key, str) or not key.strip() or key != key.strip() or "," in key:
            # The key itself is not shown: it may be almost right.
            raise SettingsError(f"keys_file: {name}.key: expected text without commas and without spaces around it")
        if not isinstance(values.get("rooms", True), bool):
            raise SettingsError(f"keys_file: {name}.rooms: expected true or false, got {values['rooms']!r}")
        for limit in _LIMITS:
            _check_limit(f"{name}.{limit}", values.get(limit), is_whole=limit == "sessions")
        yield ApiKey(name=name, **values)


def _check_limit(name: str, value: object, is_whole: bool) -> None:
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value < math.inf):  # type: ignore[operator]  # it is a number
        expected = "an integer" if is_whole else "a number"
        raise SettingsError(f"keys_file: {name}: expected {expected} from 0, got {value!r}")
