"""Follows the calls of all gateways for the subscribers of this one."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tutti_server.app.publish.call_entries import (
    CallEntry,
    lease_name,
    log_name,
    opening_name,
)
from tutti_server.app.publish.call_subscribers import JOINED_LATE, CallFeed, Calls
from tutti_server.app.publish.outbox import CallId
from tutti_server.app.session.messages import events
from tutti_server.app.sharing.leases import RENEW_S
from tutti_server.app.sharing.store import Entry, SharedStore
from tutti_server.app.sharing.waiting import UNREADABLE, keep_following, read_unless, wait_until_read

logger = logging.getLogger(__name__)

UNHELD_S = 2 * RENEW_S
"""A stream that has had no lease for this time, in seconds, is lost: its gateway has died."""
RESUME_S = 60.0
"""How long subscribers wait for a lost call to go on in another stream, in seconds."""

LOST = events.Notice("call_lost", "the server of this call has gone; if the call goes on at another one, so does this")
OVER = events.Failure("call_lost", f"the call has not gone on within {RESUME_S:g} s", is_fatal=True)
PAUSED = events.Notice("delivery_paused", "the servers cannot reach each other; events wait until they can")
MISSED = events.Notice("events_missed", "events of the call were lost on their way here")


@dataclass(slots=True, kw_only=True)
class _Followed:
    n_subscribers: int = 0
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing that is published from now on is missed."""
    position: str | None = None
    """The position up to which its log was read; `None` if that must be looked up."""
    stream: str | None = None
    """The id of the stream that the call comes from; `None` while the call is not active."""
    begun: int = 0
    """The number of the newest stream; see `CallEntry`."""
    next_number: int = 0
    """The number of the message that comes next."""
    feed: CallFeed | None = None
    """Set while the call is active."""
    unheld_since: float | None = None
    """The time since which its stream has had no lease."""
    is_lost: bool = False


class CallFollower:
    """Reads the logs of calls with subscribers here, and passes their messages to the hub of this gateway."""

    def __init__(self, hub: Calls, store: SharedStore, on_unreadable: Callable[[], None]) -> None:
        """Prepare to follow calls; `on_unreadable` is called for each entry and opening that cannot be read."""
        self._hub = hub
        self._on_unreadable = on_unreadable
        self._store = store
        self._followed: dict[CallId, _Followed] = {}
        self._has_changed = asyncio.Event()
        """Set when a call id is new among the followed ones, or has gone."""
        self._checked_at = 0.0

    @asynccontextmanager
    async def following(self, call_id: CallId) -> AsyncIterator[None]:
        """Follow a call while the context is open.

        Raises:
            StoreAway: the store does not say in time whether the call is active.
        """
        followed = self._followed.setdefault(call_id, _Followed())
        followed.n_subscribers += 1
        self._has_changed.set()
        try:
            await wait_until_read(followed.is_ready)
            yield
        finally:
            followed.n_subscribers -= 1
            if not followed.n_subscribers:
                del self._followed[call_id]
                self._end(followed)

    async def run(self) -> None:
        """Follow calls until cancelled."""
        await keep_following(
            self._store, "calls", lambda: bool(self._followed), self._has_changed, self._follow, self._pause
        )

    async def _follow(self) -> None:
        """Look up what is new, read until something comes or changes, and check that streams are alive."""
        for call_id, followed in list(self._followed.items()):
            if followed.position is None:
                await self._look_up(call_id, followed)
        for call_id, entry in await self._read():
            if (reader := self._followed.get(call_id)) is not None and reader.position is not None:
                reader.position = entry.position
                if (read := self._parse(entry.value)) is not None:
                    self._receive(call_id, reader, read)
        if time.monotonic() - self._checked_at >= RENEW_S:
            self._checked_at = time.monotonic()
            await self._check_streams()

    async def _read(self) -> list[tuple[CallId, Entry]]:
        logs = {log_name(call_id): call_id for call_id in self._followed}
        positions = {log: at for log, call_id in logs.items() if (at := self._followed[call_id].position)}
        if not positions:
            return []
        return [(logs[log], entry) for log, entry in await read_unless(self._store, positions, self._has_changed)]

    async def _look_up(self, call_id: CallId, followed: _Followed) -> None:
        """Find out where to read from, and the opening of a call that is active already."""
        if followed.stream is not None:
            # The store was away, and its numbers may have changed. What was received before is skipped.
            followed.position = "0"
            return
        last = await self._store.last(log_name(call_id))
        opening = await self._store.get(opening_name(call_id))
        (streams,) = await self._store.holders([lease_name(call_id)])
        if self._followed.get(call_id) is not followed:
            # Its last subscriber has left meanwhile.
            return
        followed.position = last.position if last else "0"
        followed.is_ready.set()
        entries = self._parse_opening(opening) if opening else []
        newest = self._parse(last.value) if last else None
        if not entries or entries[0].call not in streams or (newest is not None and newest.message is None):
            # No call is active. The lease of the last one may outlive it for a moment.
            return
        for entry in entries:
            followed.next_number = entry.number
            self._receive(call_id, followed, entry)
        if newest is not None and newest.call == followed.stream and newest.number >= followed.next_number:
            followed.next_number = newest.number + 1
        if followed.feed is not None and followed.next_number > len(entries):
            followed.feed.notify(JOINED_LATE)

    def _parse(self, text: str) -> CallEntry | None:
        """Read an entry; `None` if another version or another program has written it: the call goes on without it."""
        try:
            return CallEntry.parse(text)
        except UNREADABLE:
            logger.debug("an entry of a call cannot be read", exc_info=True)
            self._on_unreadable()
            return None

    def _parse_opening(self, text: str) -> list[CallEntry]:
        """Read an opening; empty if another version or another program has written it."""
        try:
            return [CallEntry.parse(each) for each in json.loads(text)]
        except UNREADABLE:
            logger.debug("the opening of a call cannot be read", exc_info=True)
            self._on_unreadable()
            return []

    def _receive(self, call_id: CallId, followed: _Followed, entry: CallEntry) -> None:
        """Pass an entry on, unless it was received before."""
        if entry.call != followed.stream and not self._begin(call_id, followed, entry):
            return
        if entry.number < followed.next_number or followed.feed is None:
            return
        if entry.number > followed.next_number:
            followed.feed.notify(MISSED)
        followed.next_number = entry.number + 1
        if entry.message is not None:
            followed.feed.publish(entry.message)
        else:
            self._end(followed)

    def _begin(self, call_id: CallId, followed: _Followed, entry: CallEntry) -> bool:
        """Begin with another stream of the call. False if this entry is none of a new stream's first ones."""
        if entry.begun <= followed.begun or entry.message is None:
            return False
        if entry.number != followed.next_number and entry.number:
            # The beginning was missed: the opening has it.
            followed.position = followed.stream = None
            return False
        if followed.feed is None:
            followed.feed = self._hub.feed(call_id)
        else:
            followed.feed.reopen()
        followed.stream, followed.begun, followed.next_number = entry.call, entry.begun, entry.number
        followed.unheld_since, followed.is_lost = None, False
        return True

    async def _check_streams(self) -> None:
        """Say so where the gateway of a stream has died, and end calls that have not gone on since."""
        active = [(call_id, followed) for call_id, followed in self._followed.items() if followed.feed is not None]
        holders = await self._store.holders([lease_name(call_id) for call_id, _ in active])
        now = time.monotonic()
        for (_, followed), streams in zip(active, holders, strict=True):
            if followed.stream in streams or followed.feed is None:
                # Also after it was lost: its gateway has only been away for a while.
                followed.unheld_since, followed.is_lost = None, False
                continue
            if followed.unheld_since is None:
                followed.unheld_since = now
            unheld_s = now - followed.unheld_since
            if unheld_s >= UNHELD_S and not followed.is_lost:
                followed.is_lost = True
                followed.feed.notify(LOST)
            if unheld_s >= UNHELD_S + RESUME_S:
                followed.feed.notify(OVER)
                self._end(followed)

    def _pause(self) -> None:
        for followed in self._followed.values():
            followed.position = followed.unheld_since = None
            if followed.feed is not None:
                followed.feed.notify(PAUSED)

    @staticmethod
    def _end(followed: _Followed) -> None:
        if followed.feed is not None:
            followed.feed.end()
        followed.feed = followed.stream = None
