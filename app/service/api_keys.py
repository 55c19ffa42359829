"""API keys with names, scopes and limits, and the operator's file of them."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.scopes import CLIENT_SCOPES, Scope, read_scopes

MAX_NAME_CHARS = 64
UNNAMED = "unnamed"
"""The keys of `TUTTI_API_KEYS` as usage counts them: together, as they have no names. No other key may be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key, and how much its clients may use together. `None`: as much as they want."""

    name: str
    """Stands for the key in messages, in the log and in the shared store. It is no secret."""
    key: str = field(default="", repr=False)
    """The key as clients send it. Empty for a key of the database, which has nothing but its hash."""
    id: str = ""
    """Tells a key of the database from others of its name, in counts and in usage. Empty: its name does."""
    scopes: frozenset[Scope] = CLIENT_SCOPES
    """What it may be used for."""
    sessions: int | None = None
    """Live sessions at the same time."""
    minutes_per_day: float | None = None
    """Minutes of audio on one day, in UTC: of live sessions, files and jobs."""
    minutes_per_month: float | None = None
    """Minutes of audio in one calendar month, in UTC."""
    jobs: int | None = None
    """Jobs that wait or run at the same time."""

    rooms: bool = True
    """Whether its clients may publish sessions in rooms, if `scopes` has that, too."""

    @property
    def account(self) -> str:
        """The name under which its sessions and its audio are counted."""
        return self.id or self.name

    @property
    def may_open_rooms(self) -> bool:
        """Whether its clients may publish sessions in rooms."""
        return self.rooms and "rooms" in self.scopes

    @property
    def has_limits(self) -> bool:
        """Whether its sessions or its audio are limited, which all gateways must count together."""
        return any(limit is not None for limit in (self.sessions, self.minutes_per_day, self.minutes_per_month))


_LIMITS = ("sessions", "minutes_per_day", "minutes_per_month", "jobs")
_WHOLE = ("sessions", "jobs")
"""Limits that are integers."""


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


def is_name(name: str) -> bool:
    """Whether a key may have this name."""
    return bool(name.strip()) and len(name) <= MAX_NAME_CHARS and name.isprintable() and name != UNNAMED


def is_sent(key: str) -> bool:
    """Whether every client can send a key: programs differ in how a header holds other characters."""
    return key.isascii() and key.isprintable()


def _parsed(content: dict[str, Any]) -> Iterator[ApiKey]:
    for name, values in content.items():
        if not isinstance(values, dict):
            raise SettingsError(f"keys_file: expected tables only, such as [{name}], got {name} = {values!r}")
        if not is_name(name):
            expected = f"names of 1 to {MAX_NAME_CHARS} characters, other than {UNNAMED}"
            raise SettingsError(f"keys_file: expected {expected}, got {name!r}")
        unknown = values.keys() - {"key", "rooms", "scopes", *_LIMITS}
        if unknown:
            expected = f"key, rooms, scopes, {', '.join(_LIMITS)}"
            raise SettingsError(f"keys_file: {name}: expected {expected}, got {', '.join(sorted(unknown))}")
        key = values.get("key")
        if not isinstance(key, str) or not key.strip() or key != key.strip() or "," in key or not is_sent(key):
            # The key itself is not shown: it may be almost right.
            expected = "text without commas and without spaces around it, of printable ASCII characters"
            raise SettingsError(f"keys_file: {name}.key: expected {expected}")
        if not isinstance(values.get("rooms", True), bool):
            raise SettingsError(f"keys_file: {name}.rooms: expected true or false, got {values['rooms']!r}")
        for limit in _LIMITS:
            _check_limit(f"{name}.{limit}", values.get(limit), is_whole=limit in _WHOLE)
        yield ApiKey(name=name, **(values | {"scopes": _scopes(name, values)}))


def _scopes(name: str, values: dict[str, Any]) -> frozenset[Scope]:
    given = values.get("scopes", sorted(CLIENT_SCOPES))
    try:
        if not isinstance(given, list):
            raise ValueError(f"expected a list of scopes, got {given!r}")
        return read_scopes(given)
    except ValueError as error:
        raise SettingsError(f"keys_file: {name}.scopes: {error}") from error


def _check_limit(name: str, value: object, is_whole: bool) -> None:
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value < math.inf):  # type: ignore[operator]  # it is a number
        expected = "an integer" if is_whole else "a number"
        raise SettingsError(f"keys_file: {name}: expected {expected} from 0, got {value!r}")
