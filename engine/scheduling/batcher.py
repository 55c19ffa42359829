"""Decides which waiting windows the next encoder call gets. It only decides: plain Python, no clock, thread or torch.

The order of the windows:

- Finals come first, then speculative finals. Files and interims share the time that is left, half each.
- Within a priority, the sessions take turns.
- The windows of one session keep their order.

Interims and speculative finals leave some slots free, so that a final does not wait for one of them to end. Files do
so, too, while there are live sessions. Alone, files wait a moment until enough have slots to keep the device busy.
"""

import itertools
import math
from collections import deque
from dataclasses import dataclass

from tutti_server.engine.api import Priority
from tutti_server.engine.errors import EngineOverloaded

SLOTS_PER_RESERVED = 4
"""One of this many slots is kept for finals; where there are several slots, at least one is."""
RECENT_S = 1.5
"""A session that submitted a window less than this many seconds ago is expected to submit another."""
MAX_FINAL_LOAD = 0.4
"""Speculative finals give way while finals and they take this fraction of the time for encoding, or more."""
SHORT_STALL_SHARE = 0.5
"""The part of their stall that interims may cause until then: a speculative final has little time.

A client that flushes 150 ms after its speech leaves 70 ms. A busy device needs the larger batches of longer stalls.
"""
LOAD_MEMORY_S = 2.0
"""Over about this many seconds that fraction is averaged."""
LIVE_MEMORY_S = 10.0
"""Files leave slots free for this many seconds after the last window of a live session."""
RUNNING_TO_FILL = 32
"""The fewest running sequences beside which files wait for other files.

A step of fewer takes about as long as a step of one, so that a file which waits wins nothing.
"""
ENCODER_POLL_S = 0.001
"""How often the worker asks whether the device still encodes, in seconds: the device does not notify it."""


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode these windows now, in one encoder call. They have left the queue."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the queue changes, but not longer than this, and decide again."""

    for_s: float | None
    """Seconds; `None` for no limit."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Encode nothing now: the running sequences take their next step."""


Decision = Encode | Wait | Idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A window in the queue, as far as the batcher needs to know it."""

    id: int
    session: str
    channel: int = 0
    priority: Priority
    encode_work: float = 1.0
    """The work of encoding it, in full windows."""
    n_slots: int = 1
    """The number of slots that it needs, at most those of the engine: one for each beam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What the batcher keeps to; see the fields of the same names in `EngineConfig`."""

    max_waiting: int
    """The most interims and speculative finals in the queue. Finals always have room; see `Transcriber.submit`."""
    max_batch: int
    """The most windows in one encoder call."""
    max_wait_s: float
    max_decode_stall_s: float
    n_slots: int = 1
    n_filling: int = 1_000_000
    """The number of full windows that keep the device busy. When this many wait, none is held back for more."""
    max_interim_stall_s: float | None = None
    """The stall that interims may cause, in seconds: it is shorter, so that a final soon finds the device free.

    `None`: interims keep to `max_decode_stall_s` too.
    """
    max_fill_wait_s: float = 0.0
    """How long files wait, while others decode, until as many can be encoded as keep the device busy."""
    shortens_decoding: bool = False
    """Whether few running sequences get less decode time than their debt while more finals or files wait."""

    @property
    def n_reserved_slots(self) -> int:
        """The number of slots that only a final may have."""
        return max(1, self.n_slots // SLOTS_PER_RESERVED) if self.n_slots > 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the device is doing when the batcher decides."""

    n_free_slots: int
    n_running: int
    """The number of sequences that an encoder call would delay."""
    window_encode_s: float
    """Measured seconds of encoder time per full window."""
    debt_fraction: float = 0.0
    """The remaining decode-time debt of the running sequences, as a fraction of their debt after one encoder call."""
    begun_encode_s: float = 0.0
    """Seconds of encoder work begun since the last decode step. Another call may join while the sum is small enough."""
    sessions: frozenset[str] = frozenset()
    """The sessions of the running windows."""
    joins_until_s: float | None = None
    """While encoder calls are under way: the time until which windows may join them at no cost. `None` otherwise."""
    is_encoding: bool = False
    """Whether the device still works on the encoder calls that are under way."""

    def can_join_later(self, now_s: float) -> bool:
        """Return whether windows that arrive later can still join the encoder calls under way, at no cost to them."""
        return self.joins_until_s is not None and self.is_encoding and now_s < self.joins_until_s


class Batcher:
    """Decides which waiting windows are encoded now."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._queues = {priority: _FairQueue() for priority in Priority}
        self._by_id: dict[int, Waiting] = {}
        self._recent: dict[str, float] = {}
        """The time of each session's last window, the oldest first."""
        self._first_s: float | None = None
        """The time of the first window of all."""
        self._loads = {priority: _EncodeLoad() for priority in Priority}
        self._live_s = -math.inf
        """The time of the last window that was not a file's."""
        self._encoded_s = -math.inf
        """The time of the last encoder call."""

    def n_waiting(self, priority: Priority) -> int:
        """Return the number of windows of a priority that are in the queue."""
        return self._queues[priority].n_waiting

    def encode_work(self, priority: Priority) -> float:
        """Return the work of encoding all windows of a priority that are in the queue, in full windows."""
        return sum(each.encode_work for each in self._by_id.values() if each.priority is priority)

    def add(self, waiting: Waiting, now_s: float) -> Waiting | None:
        """Queue a window.

        Returns:
            The older window whose place it takes, if there is one: it has left the queue. An interim takes the place of
            an interim, and a speculative final that of a speculative final.

        Raises:
            EngineOverloaded: the queue has no room for another window that may be dropped, and this one takes no older
                one's place. Never raised for a final.
        """
        queue = self._queues[waiting.priority]
        older = queue.replace(waiting) if waiting.priority.may_be_dropped else None
        if older is not None:
            del self._by_id[older.id]
        else:
            if waiting.priority.may_be_dropped:
                self._require_room()
            queue.append(_Entry(waiting, now_s))
        self._by_id[waiting.id] = waiting
        if waiting.priority is not Priority.FILE:
            self._live_s = now_s
        self._recent.pop(waiting.session, None)
        self._recent[waiting.session] = now_s
        self._first_s = now_s if self._first_s is None else self._first_s
        return older

    def _require_room(self) -> None:
        """Raise `EngineOverloaded` if no more windows that may be dropped have room."""
        n_waiting = sum(self._queues[priority].n_waiting for priority in Priority if priority.may_be_dropped)
        if n_waiting >= self._limits.max_waiting:
            raise EngineOverloaded(n_waiting, self._limits.max_waiting)

    def remove(self, id: int) -> bool:
        """Remove a window from the queue. Returns false where it is not in the queue (any more)."""
        waiting = self._by_id.pop(id, None)
        if waiting is None:
            return False
        self._queues[waiting.priority].remove(waiting)
        return True

    def clear(self) -> list[int]:
        """Empty the queue and return the ids of the windows that were in it."""
        ids = list(self._by_id)
        for id in ids:
            self.remove(id)
        return ids

    def decide(self, now_s: float, load: Load) -> Decision:
        """Decide what to do now. The windows of an `Encode` leave the queue."""
        for encode_load in self._loads.values():
            encode_load.advance(now_s)
        while self._recent and next(iter(self._recent.values())) < now_s - RECENT_S:
            del self._recent[next(iter(self._recent))]
        can_join_later = load.can_join_later(now_s)
        if not can_join_later or self._fills_device(now_s, load):
            ids = self._pop_batch(now_s, load)
            if ids:
                self._encoded_s = now_s
                return Encode(tuple(ids))
        if can_join_later and load.n_running:
            return Wait(ENCODER_POLL_S)
        if load.joins_until_s is not None or load.n_running:
            return Idle()
        return Wait(self._held_back_s(now_s, load) if self._by_id else None)

    def _fills_device(self, now_s: float, load: Load) -> bool:
        """Return whether the windows that may be encoded keep the device busy: more in one call would not be faster."""
        allowed = [
            priority
            for priority in self._eligible(now_s, load)
            if load.begun_encode_s < self._max_encode_s(priority, load.n_running)
        ]
        work = [each.encode_work for each in self._by_id.values() if each.priority in allowed]
        return len(work) >= self._limits.max_batch or sum(work) >= self._limits.n_filling

    def _pop_batch(self, now_s: float, load: Load) -> list[int]:
        """Remove the windows to encode now from the queue and return their ids; none where waiting is better."""
        max_windows = 0 if self._has_decode_debt(now_s, load) else min(self._limits.max_batch, load.n_free_slots)
        if not self._by_id or max_windows == 0:
            return []
        n_eligible = sum(self.n_waiting(priority) for priority in self._eligible(now_s, load))
        is_full = n_eligible >= max_windows or self._fills_device(now_s, load)
        if (not is_full and self._held_back_s(now_s, load) > 0) or self._waits_for_files(now_s, load):
            return []
        batch, encode_s, n_free = list[int](), load.begun_encode_s, load.n_free_slots
        while len(batch) < max_windows and (queue := self._first_queue(now_s, load)):
            first = queue.first()
            n_left = n_free - first.n_slots
            if n_left < 0 or (n_left < self._n_kept_free(first, now_s) and n_free < self._limits.n_slots):
                break
            encode_s += first.encode_work * load.window_encode_s
            is_first_call = not batch and not load.begun_encode_s
            if not is_first_call and encode_s > self._max_encode_s(first.priority, load.n_running):
                break
            self._loads[first.priority].add(first.encode_work * load.window_encode_s)
            del self._by_id[queue.pop().id]
            batch.append(first.id)
            n_free = n_left
        return batch

    def _waits_for_files(self, now_s: float, load: Load) -> bool:
        """Return whether the files that have slots are too few to keep the device busy, and others may soon have some.

        Sequences of different lengths end one by one, and each that ends lets one file in.
        """
        is_over = now_s >= self._encoded_s + self._limits.max_fill_wait_s
        has_others = self.n_waiting(Priority.FILE) < len(self._by_id)
        if is_over or has_others or load.n_running < RUNNING_TO_FILL or load.begun_encode_s:
            return False
        with_slots = itertools.islice(self._by_id.values(), min(load.n_free_slots, self._limits.max_batch))
        return sum(each.encode_work for each in with_slots) < min(self._limits.n_filling, self._limits.max_batch)

    def _n_kept_free(self, waiting: Waiting, now_s: float) -> int:
        """Return how many slots a window leaves free. One that needs more may have all, where nothing else runs."""
        is_live_file = waiting.priority is Priority.FILE and self._is_live(now_s)
        return self._limits.n_reserved_slots if waiting.priority.may_be_dropped or is_live_file else 0

    def _is_live(self, now_s: float) -> bool:
        """Return whether there are live sessions, whose finals may come at any moment."""
        return now_s < self._live_s + LIVE_MEMORY_S

    def _held_back_s(self, now_s: float, load: Load) -> float:
        """Return for how many more seconds the oldest window is held back, so that others can join it.

        That is 0 where no others are expected: every recent session has a window in the queue or running. The batcher
        knows the recent sessions only after `RECENT_S`.
        """
        busy = {waiting.session for waiting in self._by_id.values()} | load.sessions
        knows_all = self._first_s is not None and now_s - self._first_s > RECENT_S
        if knows_all and busy.issuperset(self._recent):
            return 0.0
        queues = [self._queues[priority] for priority in self._eligible(now_s, load)]
        oldest_s = min((queue.oldest_s() for queue in queues if queue.n_waiting), default=now_s)
        return max(0.0, oldest_s + self._limits.max_wait_s - now_s)

    def _has_decode_debt(self, now_s: float, load: Load) -> bool:
        """Return whether the running sequences have a decode-time debt, so that no encoder call may begin.

        Where more windows wait than sequences run, the call begins before the debt is zero, in that proportion: a step
        of few sequences takes nearly as long as one of many.
        """
        if not load.n_running or load.begun_encode_s:
            return False
        n_waiting = sum(map(self.n_waiting, self._shortening(now_s)))
        due_fraction = min(1.0, load.n_running / n_waiting) if n_waiting else 1.0
        return load.debt_fraction > 1.0 - due_fraction

    def _shortening(self, now_s: float) -> list[Priority]:
        """Return the priorities whose windows may shorten decoding: finals, and files where no session is live."""
        if not self._limits.shortens_decoding:
            return []
        return [Priority.FINAL] if self._is_live(now_s) else [Priority.FINAL, Priority.FILE]

    def _max_encode_s(self, priority: Priority, n_running: int) -> float:
        """Return the most seconds of encoder work at a time, if a window of this priority is the last part of it."""
        limits = self._limits
        if priority is Priority.INTERIM and limits.max_interim_stall_s is not None:
            # Also where nothing is running: a final may arrive.
            return limits.max_interim_stall_s * (1.0 if self._has_many_finals else SHORT_STALL_SHARE)
        return limits.max_decode_stall_s if n_running else math.inf

    @property
    def _has_many_finals(self) -> bool:
        """Whether finals of live sessions take so much of the time for encoding that speculative finals give way."""
        return self._loads[Priority.FINAL].fraction + self._loads[Priority.SPECULATIVE].fraction >= MAX_FINAL_LOAD

    def _eligible(self, now_s: float, load: Load) -> list[Priority]:
        """Return the priorities whose windows may be encoded now, the first first."""
        if load.n_running and load.debt_fraction > 0 and (shortening := self._shortening(now_s)):
            return shortening
        order = [Priority.FINAL, Priority.SPECULATIVE]
        if self._has_many_finals and (load.n_running or self.n_waiting(Priority.INTERIM)):
            order.remove(Priority.SPECULATIVE)
        # Of files and interims, those that have had less of the time.
        return order + sorted((Priority.FILE, Priority.INTERIM), key=lambda each: self._loads[each].fraction)

    def _first_queue(self, now_s: float, load: Load) -> "_FairQueue | None":
        """Return the queue whose turn it is; `None` if no window may be encoded."""
        return next((self._queues[each] for each in self._eligible(now_s, load) if self._queues[each].n_waiting), None)


class _EncodeLoad:
    """How much of the time the windows of one priority take for encoding."""

    def __init__(self) -> None:
        self.fraction = 0.0
        """The fraction of the last seconds."""
        self._at_s: float | None = None

    def advance(self, now_s: float) -> None:
        if self._at_s is not None:
            self.fraction *= math.exp((self._at_s - now_s) / LOAD_MEMORY_S)
        self._at_s = now_s

    def add(self, encode_s: float) -> None:
        self.fraction += encode_s / LOAD_MEMORY_S


@dataclass(slots=True)
class _Entry:
    """A place in a queue; a newer interim takes over the place of the older one."""

    waiting: Waiting
    since_s: float
    """When the first window took this place."""


class _FairQueue:
    """The windows of one priority. Sessions take turns: a session that was served goes to the end."""

    def __init__(self) -> None:
        self._sessions: dict[str, deque[_Entry]] = {}
        self.n_waiting = 0

    def append(self, entry: _Entry) -> None:
        self._sessions.setdefault(entry.waiting.session, deque()).append(entry)
        self.n_waiting += 1

    def replace(self, newer: Waiting) -> Waiting | None:
        """Give `newer` the place of the window of its session and channel, and return that window; else `None`."""
        for entry in self._sessions.get(newer.session, ()):
            if entry.waiting.channel == newer.channel:
                older, entry.waiting = entry.waiting, newer
                return older
        return None

    def remove(self, waiting: Waiting) -> None:
        entries = self._sessions[waiting.session]
        entries.remove(next(entry for entry in entries if entry.waiting.id == waiting.id))
        self.n_waiting -= 1
        if not entries:
            del self._sessions[waiting.session]

    def first(self) -> Waiting:
        return next(iter(self._sessions.values()))[0].waiting

    def pop(self) -> Waiting:
        session = next(iter(self._sessions))
        entries = self._sessions.pop(session)
        entry = entries.popleft()
        self.n_waiting -= 1
        if entries:
            self._sessions[session] = entries
        return entry.waiting

    def oldest_s(self) -> float:
        """Return the time since which the oldest window waits; there must be one."""
        return min(entries[0].since_s for entries in self._sessions.values())
