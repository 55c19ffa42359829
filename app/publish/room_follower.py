"""Follows rooms: reads their logs for the readers and speakers of this gateway, and ends rooms without a speaker."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tutti_server.app.publish.room import Room
from tutti_server.app.publish.room_entries import Begun, Ended, read_entry, write_entry
from tutti_server.app.sharing.leases import RENEW_S
from tutti_server.app.sharing.store import SharedStore
from tutti_server.app.sharing.waiting import UNREADABLE, keep_following, read_unless, wait_until_read

logger = logging.getLogger(__name__)

LINGER_S = 30.0
"""A room is followed for this time after its last use, in seconds: players fetch every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomConfig:
    """How long rooms live, and how much they keep."""

    gone_s: float
    """A room ends when its speaker has been gone for this time, in seconds."""
    keep_s: float
    """The text of a room that has ended can be read for this time, in seconds."""
    max_chars: int
    """The most characters of text that a room keeps for readers who come late."""


@dataclass(slots=True, kw_only=True, eq=False)
class Followed:
    """A room that is followed at this gateway."""

    room: Room
    n_users: int = 0
    unused_since: float = 0.0
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the room has everything that was in its log."""
    position: str | None = None
    """The position up to which its log was read; `None` before it was looked up."""
    may_lack_text: bool = False
    """The store was away since its log was read: the log may have dropped entries meanwhile."""
    n_unsaved: int = 0
    """Entries that were read since the last snapshot."""
    saved_at: float = 0.0
    """When this gateway has made the last snapshot, in seconds of its monotonic clock."""
    unheld_since: float | None = None
    """The time since which its speaker has held no lease, in seconds since 1970."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the next change. Those who wait for the change after it wait for another one."""

    def wake(self) -> None:
        """Wake everyone who waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def snapshot(self) -> str:
        """The room, and where its log goes on, as JSON."""
        return json.dumps({"position": self.position, "room": self.room.snapshot()}, ensure_ascii=False)

    def restore(self, text: str | None) -> None:
        """Begin with a snapshot; without one, with the beginning of the log. Raises one of `UNREADABLE`."""
        snapshot: dict[str, Any] = json.loads(text) if text else {"position": "0"}
        # A log cannot be read from what is no position, and all logs are read together.
        _order(snapshot["position"])
        if text:
            self.room.restore(snapshot["room"])
        self.position = snapshot["position"]


class RoomFollower:
    """The rooms that are followed at this gateway."""

    def __init__(
        self,
        store: SharedStore,
        config: RoomConfig,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_unreadable: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._on_unreadable = on_unreadable
        self._config = config
        self._clock = clock
        self._now = now
        self._followed: dict[str, Followed] = {}
        """The rooms that are followed, by their ids."""
        self._has_changed = asyncio.Event()
        """Set when a room is new among the followed ones."""
        self._checked_at = 0.0
        self._was_away = False
        """The store could not be reached since speakers were checked last: none could come back to its room."""
        self._back_at = 0.0
        """When it was back the last time, in seconds since 1970."""

    @asynccontextmanager
    async def following(self, id_: str, name: str) -> AsyncIterator[Followed]:
        """Follow a room while the context is open, and a little longer.

        Raises:
            StoreAway: the store does not tell in time what the room has.
        """
        followed = self._followed.get(id_)
        if followed is None:
            followed = self._followed[id_] = Followed(room=self._empty(id_, name))
            self._has_changed.set()
        followed.n_users += 1
        try:
            await wait_until_read(followed.is_ready)
            yield followed
        finally:
            followed.n_users -= 1
            followed.unused_since = self._clock()

    def stream_of(self, id_: str) -> str:
        """The session that speaks in a room, or has spoken last; empty if this gateway does not know it."""
        followed = self._followed.get(id_)
        return followed.room.stream if followed is not None else ""

    async def wait_until_left(self) -> None:
        """Wait until the sessions have left that speak in rooms which are used here: their last texts have come."""
        for followed in list(self._followed.values()):
            while followed.n_users and followed.room.is_live and followed.room.left_at is None:
                await followed.changed.wait()

    def wake_all(self) -> None:
        """Wake everyone who waits for a change of any room."""
        for followed in self._followed.values():
            followed.wake()

    async def run(self) -> None:
        """Follow rooms until cancelled."""
        await keep_following(
            self._store, "rooms", lambda: bool(self._followed), self._has_changed, self._follow, self._note_away
        )

    async def _follow(self) -> None:
        """Look up what is new, read until something comes or changes, and check that speakers are alive."""
        for id_, followed in list(self._followed.items()):
            if not followed.is_ready.is_set():
                await self._look_up(id_, followed)
            elif followed.may_lack_text:
                await self._catch_up(id_, followed)
        await self._read()
        if self._clock() - self._checked_at >= RENEW_S:
            self._checked_at = self._clock()
            self._forget_unused()
            await self._check_speakers()

    def _note_away(self) -> None:
        self._was_away = True
        for followed in self._followed.values():
            followed.may_lack_text = True

    async def _look_up(self, id_: str, followed: Followed) -> None:
        text = await self._store.get(text_name(id_))
        # A log with nothing new would let `read` wait.
        last = await self._store.last(log_name(id_))
        followed.room = self._empty(id_, followed.room.name)
        try:
            followed.restore(text)
        except UNREADABLE:
            # Such as one that another version has written. Other rooms must not wait for this one.
            logger.exception("the snapshot of room %s cannot be read; its text begins with its log", id_)
            self._on_unreadable()
            followed.room = self._empty(id_, followed.room.name)
            followed.restore(None)
        if last is None or last.position == followed.position:
            followed.is_ready.set()

    def _empty(self, id_: str, name: str) -> Room:
        return Room(id_, name, self._config.max_chars)

    async def _catch_up(self, id_: str, followed: Followed) -> None:
        """Go on with a snapshot of another gateway, if it has read the log further than this one."""
        text = await self._store.get(text_name(id_))
        followed.may_lack_text = False
        if text is None:
            return
        newer = Followed(room=self._empty(id_, followed.room.name))
        try:
            newer.restore(text)
            assert newer.position and followed.position
            if _order(newer.position) <= _order(followed.position):
                return
        except UNREADABLE:
            logger.debug("the snapshot of room %s cannot be read", id_, exc_info=True)
            self._on_unreadable()
            return
        # Into the same room, which readers have.
        followed.restore(text)
        followed.unheld_since = None
        followed.wake()

    async def _read(self) -> None:
        """Fold the next entries of all rooms, and wake those who wait for them."""
        rooms = {log_name(id_): followed for id_, followed in self._followed.items()}
        positions = {log: followed.position for log, followed in rooms.items() if followed.position}
        if not positions:
            return
        changed: dict[str, Followed] = {}
        try:
            for log, entry in await read_unless(self._store, positions, self._has_changed):
                changed[log] = followed = rooms[log]
                followed.position = entry.position
                followed.n_unsaved += 1
                self._fold(followed, entry.value)
        finally:
            for followed in changed.values():
                followed.is_ready.set()
                followed.wake()

    def _fold(self, followed: Followed, text: str) -> None:
        """Fold an entry, unless another version or another program has written it: the room goes on without it."""
        try:
            entry = read_entry(text)
            followed.room.fold(entry)
            if isinstance(entry, Begun | Ended):
                # The lease of a session that begins, or goes on, may not be in the store yet.
                followed.unheld_since = None
        except UNREADABLE:
            logger.debug("an entry of room %s cannot be read", followed.room.name, exc_info=True)
            self._on_unreadable()

    def _forget_unused(self) -> None:
        until = self._clock() - LINGER_S
        self._followed = {
            id_: each for id_, each in self._followed.items() if each.n_users or each.unused_since > until
        }

    async def _check_speakers(self) -> None:
        if self._was_away:
            self._was_away, self._back_at = False, self._now()
        rooms = [(id_, each) for id_, each in self._followed.items() if each.room.is_live or each.n_unsaved]
        holders = await self._store.holders([lease_name(id_) for id_, _ in rooms])
        for (id_, followed), streams in zip(rooms, holders, strict=True):
            stream = followed.room.stream
            if stream in streams:
                followed.unheld_since = None
                continue
            if followed.n_unsaved:
                # Its speaker may have died without a snapshot, and the log ends before the room.
                await self._store.put(text_name(id_), followed.snapshot(), self._config.gone_s + self._config.keep_s)
                followed.n_unsaved = 0
            if not followed.room.is_live:
                continue
            since = followed.room.left_at or followed.unheld_since or self._now()
            followed.unheld_since = max(since, self._back_at)
            if self._now() - followed.unheld_since >= self._config.gone_s:
                # Another gateway may write the same. The second entry changes nothing.
                await self._store.append(log_name(id_), write_entry(Ended(stream=stream, at=self._now())))


def _order(position: str) -> list[int]:
    return [int(part) for part in position.split("-")]


def log_name(id_: str) -> str:
    """The log of a room."""
    return f"room:{id_}"


def text_name(id_: str) -> str:
    """The value that holds a snapshot of a room."""
    return f"room-text:{id_}"


def lease_name(id_: str) -> str:
    """The lease that the session holds that speaks in a room."""
    return f"room:{id_}"
