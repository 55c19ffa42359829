"""What the readers of a room receive: server-sent events, written once for all of them."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tutti_server.app.numbers import read_integer

FRAME_COST = 64
"""Every kept event counts as this many characters more than its text, so that events without text are bounded, too."""
MAX_ANSWERS = 8
"""The most answers of a room that are kept: each may be as long as all of its text, and readers ask for any place."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event, with its place among all of its room."""

    number: int
    data: bytes
    utterance: int | None = None
    """The utterance that it belongs to; `None` for news of the room."""
    n_chars: int = 0
    """How many characters of final text it has."""


@dataclass(slots=True, kw_only=True)
class Frames:
    """The events of one room: final ones, up to a number of characters, and the newest interim of each open utterance.

    A reader needs no queue of its own. It remembers the number of the newest event that it has, and asks for what
    follows: so a slow reader misses interims and no final text, and costs no memory.
    """

    room: str
    """Begins the id of every event, so that ids of another room are not mistaken for one of this."""
    max_chars: int
    newest: int = 0
    """The number of the newest event."""
    n_chars: int = 0
    """The characters of all final events that are kept."""
    finals: list[Frame] = field(default_factory=list)
    interims: dict[int, Frame] = field(default_factory=dict)
    """The newest interim of each open utterance."""
    _joined: dict[int, bytes] = field(default_factory=dict)
    """What follows an event, by its number: most readers have the same event, and share the answer.

    With more than `MAX_ANSWERS` the older ones are forgotten.
    """

    def add(self, message: Mapping[str, Any], utterance: int | None = None, n_chars: int = 0) -> None:
        """Add an event that stays."""
        frame = self._frame(message, utterance, n_chars)
        self.finals.append(frame)
        self.n_chars += n_chars + FRAME_COST

    def show(self, message: Mapping[str, Any], utterance: int) -> None:
        """Show an interim in place of the older one of its utterance."""
        self.interims[utterance] = self._frame(message, utterance)

    def hide(self, utterance: int) -> None:
        """Forget the interim of an utterance."""
        if self.interims.pop(utterance, None) is not None:
            self._joined.clear()

    def messages(self, utterance: int) -> list[dict[str, Any]]:
        """The final events of an utterance as messages."""
        return [_message(frame) for frame in self.finals if frame.utterance == utterance]

    def interim(self, utterance: int) -> dict[str, Any]:
        """The newest interim of an utterance; empty if there is none."""
        frame = self.interims.get(utterance)
        return _message(frame) if frame is not None else {}

    def remove(self, utterance: int) -> None:
        """Forget all events of an utterance."""
        self.hide(utterance)
        self.n_chars -= sum(frame.n_chars + FRAME_COST for frame in self.finals if frame.utterance == utterance)
        self.finals = [frame for frame in self.finals if frame.utterance != utterance]
        self._joined.clear()

    def drop_excess(self) -> list[int]:
        """Forget the oldest utterances while there is more text than may be kept. Returns their numbers."""
        dropped = []
        # What comes now is kept in any case.
        while self.n_chars > self.max_chars and self.finals[0].utterance != self.finals[-1].utterance:
            oldest = self.finals[0]
            if oldest.utterance is None:
                del self.finals[0]
                self.n_chars -= oldest.n_chars + FRAME_COST
            else:
                self.remove(oldest.utterance)
                dropped.append(oldest.utterance)
        self._joined.clear()
        return dropped

    def after(self, number: int) -> bytes:
        """All events after that of this number, in order; empty if there is none."""
        if number >= self.newest:
            return b""
        joined = self._joined.get(number)
        if joined is None:
            first = bisect_right(self.finals, number, key=lambda frame: frame.number)
            newer = self.finals[first:]
            newer += [frame for frame in self.interims.values() if frame.number > number]
            newer.sort(key=lambda frame: frame.number)
            joined = newer[0].data if len(newer) == 1 else b"".join(frame.data for frame in newer)
            if len(self._joined) >= MAX_ANSWERS:
                self._joined.clear()
            self._joined[number] = joined
        return joined

    def number_of(self, event_id: str) -> int:
        """The number of the event with this id; 0 if it is none of this room."""
        room, _, number = event_id.rpartition("-")
        return (read_integer(number, 0, self.newest) or 0) if room == self.room else 0

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""

        def plain(frame: Frame) -> list[Any]:
            return [frame.number, frame.data.decode(), frame.utterance, frame.n_chars]

        return {
            "newest": self.newest,
            "finals": [plain(frame) for frame in self.finals],
            "interims": [plain(frame) for frame in self.interims.values()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what the snapshot was made of."""

        def frame(number: int, data: str, utterance: int | None, n_chars: int) -> Frame:
            return Frame(number, data.encode(), utterance, n_chars)

        self.newest = snapshot["newest"]
        self.finals = [frame(*each) for each in snapshot["finals"]]
        self.interims = {each[2]: frame(*each) for each in snapshot["interims"]}
        self.n_chars = sum(each.n_chars + FRAME_COST for each in self.finals)
        self._joined.clear()

    def _frame(self, message: Mapping[str, Any], utterance: int | None, n_chars: int = 0) -> Frame:
        self.newest += 1
        self._joined.clear()
        return Frame(self.newest, sent_event(message, f"{self.room}-{self.newest}"), utterance, n_chars)


def _message(frame: Frame) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(frame.data.partition(b"data: ")[2])
    return message


def sent_event(message: Mapping[str, Any], event_id: str | None = None) -> bytes:
    """A message as a server-sent event. JSON has no line breaks, so that one line of data holds it."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}data: {text}\n\n".encode()
