"""How input is damaged: edits of bytes, and of the values in a JSON message."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
"""Values in which fields of headers often break their readers."""


@dataclass(frozen=True)
class Edit:
    """One change of bytes."""

    kind: str
    """`set` a byte, `number` of four bytes in either order, `cut` out, `repeat`, `insert` zeros, or `end` there."""
    at: int
    """Where, in bytes; beyond the end it is counted round."""
    n_bytes: int
    value: int

    def apply(self, data: bytes) -> bytes:
        """The bytes after the change."""
        at = self.at % max(len(data), 1)
        before, part, after = data[:at], data[at : at + self.n_bytes], data[at + self.n_bytes :]
        match self.kind:
            case "set":
                return before + bytes([self.value & 0xFF]) + data[at + 1 :]
            case "number":
                order = "big" if self.n_bytes % 2 else "little"
                return before + (self.value & 0xFFFF_FFFF).to_bytes(4, order) + data[at + 4 :]  # type: ignore[arg-type]  # one of the two
            case "cut":
                return before + after
            case "repeat":
                return before + part + part + after
            case "insert":
                return before + bytes(self.n_bytes) + data[at:]
            case _:
                return before


EDITS = st.lists(
    st.builds(
        Edit,
        kind=st.sampled_from(["set", "set", "number", "number", "cut", "repeat", "insert", "end"]),
        # Headers are at the beginning, and matter most.
        at=st.integers(0, 100) | st.integers(0, 1_000) | st.integers(0, 1 << 20),
        n_bytes=st.integers(1, 8) | st.integers(1, 2_000),
        value=st.sampled_from(NUMBERS) | st.integers(0, 0xFFFF_FFFF),
    ),
    min_size=1,
    max_size=6,
)
"""A few changes."""


def damaged(data: bytes, edits: list[Edit]) -> bytes:
    """The bytes after all changes, in order."""
    for edit in edits:
        data = edit.apply(data)
    return data


TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    ["\ud800", "\x00", "é" * 3_000, "-1", "1e999", "٣", "<|endoftext|>", "../../x", "en", "pcm16"]
)
"""Strings, also those that UTF-8 cannot encode."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -1, 2**31, 2**63, 1e308, float("nan"), float("inf"), 0.1])
    | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=6,
)
"""JSON values of any kind. NaN and infinity are written as Python does."""


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The places of all values inside a JSON value, itself included."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found += paths(child, (*path, key))
    return found


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A copy of a JSON value with another value in one place; `...` removes the key or item."""
    if not path:
        return None if new is ... else new
    copy = value.copy()
    key = path[0]
    if new is ... and len(path) == 1:
        del copy[key]
    else:
        copy[key] = replaced(value[key], path[1:], new)
    return copy


@st.composite
def damaged_messages(draw: st.DrawFn, examples: tuple[Any, ...]) -> str | bytes:
    """A message that real clients send, with other values in some places; sometimes its text is damaged too."""
    message = draw(st.sampled_from(examples))
    if isinstance(message, bytes):
        return damaged(message, draw(EDITS)) if draw(st.booleans()) else message
    if isinstance(message, str):
        text_or_bytes: str | bytes = message.encode() if draw(st.booleans()) else message * draw(st.integers(1, 2))
        return text_or_bytes
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(paths(message)))
        message = replaced(message, place, draw(VALUES | st.just(...)))
        if not isinstance(message, dict | list):
            break
    text = json.dumps(message)
    return damaged(text.encode(), draw(EDITS)) if draw(st.integers(0, 4)) == 0 else text
