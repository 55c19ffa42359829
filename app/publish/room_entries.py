"""The entries of a room's log, which speakers write and every gateway with readers folds into the same room."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A session speaks in the room from now on, in place of the one before."""

    stream: str
    """A name for the session. It is not the id that its client knows."""
    at: float
    """The time of the entry, in seconds since 1970."""
    title: str = ""
    resumed_from_s: Sequence[float] | None = None
    """When the session begins to decode again, for each channel or for all; `None` if it continues no lost one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An event of the session, as its own client receives it."""

    stream: str
    message: Mapping[str, Any]
    number: int | None = None
    """The number of the event among those of its session that are not interims: one that is missing was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Time has passed: text up to some time before is complete."""

    stream: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The session is over. Its client may come back, unless `Ended` follows."""

    stream: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The room has ended, if its newest session is still this one."""

    stream: str
    at: float


Entry = Begun | Spoken | Passed | Left | Ended
_KINDS: dict[str, type[Entry]] = {each.__name__.lower(): each for each in (Begun, Spoken, Passed, Left, Ended)}


def write_entry(entry: Entry) -> str:
    """Write the entry as JSON."""
    fields = {"kind": type(entry).__name__.lower(), **asdict(entry)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def read_entry(text: str) -> Entry:
    """Read an entry from JSON."""
    fields = json.loads(text)
    return _KINDS[fields.pop("kind")](**fields)
