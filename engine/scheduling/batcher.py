"""Decides which waiting windows are encoded now. Decides only: plain Python, no clock, no thread, no torch.

Order: finals before interims; within each, sessions take turns, and a session's windows keep their order. Interims
leave some slots free, so that a final need not wait for one of them to end.
"""

import math
from collections import deque
from dataclasses import dataclass

from engine.api import Priority
from engine.errors import EngineOverloaded

# One in so many slots, and one at least where there are several, is never given to an interim.
SLOTS_PER_RESERVED = 4
RECENT_S = 1.5
"""A session that gave a window so short a time ago is expected to give another."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A window in the queue, as far as deciding needs to know it."""

    id: int
    session: str
    channel: int
    priority: Priority
    encode_share: float = 1.0
    """Encoder work, in full windows."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What the batcher keeps to; see the fields of the same names in `EngineConfig`."""

    max_waiting: int
    max_batch: int
    max_wait_s: float
    max_decode_stall_s: float
    n_slots: int = 1
    n_filling: int = 1_000_000
    """Full windows that keep the device busy: none is held back for more to join them."""
    max_interim_stall_s: float | None = None
    """`max_decode_stall_s` for what interims add, so that a final finds the device soon; `None` for the same."""

    @property
    def n_reserved_slots(self) -> int:
        """Slots that an interim must leave free."""
        return max(1, self.n_slots // SLOTS_PER_RESERVED) if self.n_slots > 1 else 0


@dataclass(frozen=True, slots=True)
class Load:
    """What the device is doing when a decision is asked for."""

    n_free_slots: int
    n_running: int
    """Sequences that an encoder call would hold up."""
    window_encode_s: float
    """Measured seconds of encoder time per full window."""
    owed_s: float = 0.0
    """Time that running sequences still have coming since the last encoder call."""
    held_up_s: float = 0.0
    """Encoder work begun since their last step: another call joins it while all of it stays below the limit."""
    sessions: frozenset[str] = frozenset()
    """Whose windows are running."""


@dataclass(slots=True)
class _Place:
    """A place in line; a newer interim takes over that of the older one."""

    waiting: Waiting
    since_s: float


class Batcher:
    """The queue of windows."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._lines = {priority: _Line() for priority in Priority}
        self._by_id: dict[int, Waiting] = {}
        self._recent: dict[str, float] = {}
        """When each session last gave a window, in that order."""
        self._first_s: float | None = None
        """When the first window came."""

    def n_waiting(self, priority: Priority) -> int:
        return self._lines[priority].n_waiting

    def add(self, waiting: Waiting, now_s: float) -> Waiting | None:
        """Queue a window. Returns the older interim whose place it takes, if any: that one has left the queue.

        Raises:
            EngineOverloaded: the queue is full and no place could be taken over.
        """
        line = self._lines[waiting.priority]
        older = line.replace(waiting) if waiting.priority is Priority.INTERIM else None
        if older is not None:
            del self._by_id[older.id]
        elif len(self._by_id) >= self._limits.max_waiting:
            raise EngineOverloaded(len(self._by_id), self._limits.max_waiting)
        else:
            line.append(_Place(waiting, now_s))
        self._by_id[waiting.id] = waiting
        self._recent.pop(waiting.session, None)
        self._recent[waiting.session] = now_s
        self._first_s = now_s if self._first_s is None else self._first_s
        return older

    def remove(self, id: int) -> bool:
        """Take a window out of the queue; false where it is not in it (any more)."""
        waiting = self._by_id.pop(id, None)
        if waiting is None:
            return False
        self._lines[waiting.priority].remove(waiting)
        return True

    def clear(self) -> list[int]:
        """Empty the queue and return the ids of what was in it."""
        ids = list(self._by_id)
        for id in ids:
            self.remove(id)
        return ids

    def fills_device(self, load: Load) -> bool:
        """Whether what may be taken keeps it busy, so that more in the same call would not be encoded any faster."""
        may_be_taken = [priority for priority in Priority if load.held_up_s < self._most_s(priority, load.n_running)]
        shares = [each.encode_share for each in self._by_id.values() if each.priority in may_be_taken]
        return len(shares) >= self._limits.max_batch or sum(shares) >= self._limits.n_filling

    def take(self, now_s: float, load: Load) -> list[int]:
        """The ids of the windows to encode now, which leave the queue; none where waiting is better."""
        room = self._room(load)
        if not self._by_id or room == 0:
            return []
        if len(self._by_id) < room and not self.fills_device(load) and self._held_back_s(now_s, load.sessions) > 0:
            return []
        batch, took_s = list[int](), load.held_up_s
        while self._by_id and len(batch) < room:
            first = self._first()
            n_free = load.n_free_slots - len(batch)
            if first.priority is Priority.INTERIM and n_free <= self._limits.n_reserved_slots:
                break
            took_s += first.encode_share * load.window_encode_s
            if (batch or load.held_up_s) and took_s > self._most_s(first.priority, load.n_running):
                break
            batch.append(self._pop())
        return batch

    def ready_in_s(self, now_s: float) -> float | None:
        """Seconds until an idle engine should ask again if nothing else happens; `None` with an empty queue."""
        if not self._by_id:
            return None
        return self._held_back_s(now_s, frozenset())

    def _held_back_s(self, now_s: float, running: frozenset[str]) -> float:
        """How much longer the oldest window is kept for others to join it.

        Not at all where none are expected: every session that was heard of lately has a window here or running. It
        takes a while to know.
        """
        while self._recent and next(iter(self._recent.values())) < now_s - RECENT_S:
            del self._recent[next(iter(self._recent))]
        busy = {waiting.session for waiting in self._by_id.values()} | running
        knows_all = self._first_s is not None and now_s - self._first_s > RECENT_S
        if knows_all and busy.issuperset(self._recent):
            return 0.0
        return max(0.0, self._oldest_s() + self._limits.max_wait_s - now_s)

    def _room(self, load: Load) -> int:
        """How many windows the next encoder call may have."""
        room = min(self._limits.max_batch, load.n_free_slots)
        if load.n_running == 0:
            return room
        return 0 if load.owed_s > 0 and not load.held_up_s else room

    def _most_s(self, priority: Priority, n_running: int) -> float:
        """Most encoder work at a time, if a window of this priority is the last of it."""
        limits = self._limits
        if priority is Priority.INTERIM and limits.max_interim_stall_s is not None:
            # Whether or not anything runs: a final may come.
            return limits.max_interim_stall_s
        return limits.max_decode_stall_s if n_running else math.inf

    def _oldest_s(self) -> float:
        return min(line.oldest_s() for line in self._lines.values() if line.n_waiting)

    def _line(self) -> "_Line":
        return next(self._lines[priority] for priority in Priority if self._lines[priority].n_waiting)

    def _first(self) -> Waiting:
        return self._line().first()

    def _pop(self) -> int:
        waiting = self._line().pop()
        del self._by_id[waiting.id]
        return waiting.id


class _Line:
    """Windows of one priority. Sessions take turns: whoever was served goes to the end."""

    def __init__(self) -> None:
        self._sessions: dict[str, deque[_Place]] = {}
        self.n_waiting = 0

    def append(self, place: _Place) -> None:
        self._sessions.setdefault(place.waiting.session, deque()).append(place)
        self.n_waiting += 1

    def replace(self, newer: Waiting) -> Waiting | None:
        """Give `newer` the place of the window of its session and channel, and return that one; else `None`."""
        for place in self._sessions.get(newer.session, ()):
            if place.waiting.channel == newer.channel:
                older, place.waiting = place.waiting, newer
                return older
        return None

    def remove(self, waiting: Waiting) -> None:
        places = self._sessions[waiting.session]
        places.remove(next(place for place in places if place.waiting.id == waiting.id))
        self.n_waiting -= 1
        if not places:
            del self._sessions[waiting.session]

    def first(self) -> Waiting:
        return next(iter(self._sessions.values()))[0].waiting

    def pop(self) -> Waiting:
        session = next(iter(self._sessions))
        places = self._sessions.pop(session)
        place = places.popleft()
        self.n_waiting -= 1
        if places:
            self._sessions[session] = places
        return place.waiting

    def oldest_s(self) -> float:
        return min(places[0].since_s for places in self._sessions.values())
