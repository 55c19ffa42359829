"""Calls whose subscribers may be at any gateway: what is published goes through the shared store."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from secrets import token_hex

from tutti_server.app.background import in_background
from tutti_server.app.errors import CLOSE_OVERLOADED, RETRY_AFTER_S, LimitExceeded, SessionError
from tutti_server.app.publish.call_entries import (
    KEEP_OPENING_S,
    CallEntry,
    lease_name,
    log_name,
    newer_name,
    opening_name,
)
from tutti_server.app.publish.call_follower import CallFollower
from tutti_server.app.publish.call_subscribers import LEAVE_S, Calls, Receipt, call_is_on
from tutti_server.app.publish.outbox import CallId, CallMessage, Outbox
from tutti_server.app.sharing.emptied import EmptiedWatch
from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.store import LEASE_S, Lease, SharedStore, StoreAway
from tutti_server.app.sharing.waiting import wait_until_up

logger = logging.getLogger(__name__)

CLAIM_S = LEASE_S + 2.0
"""How long a stream waits until the stream before it has ended, in seconds: so long a dead gateway keeps its lease."""
CLAIM_EVERY_S = 0.2
"""The time between two attempts, in seconds."""
GIVE_WAY_EVERY_S = 1.0
"""How often a gateway asks whether its streams are waited for, in seconds."""


class SharedCalls(Calls):
    """The calls of a service with several gateways.

    Subscribers receive every call through the shared store, also one of their own gateway, so that all of them receive
    the same. While the store is away, events wait; of too many, the oldest are lost, and subscribers learn it.
    """

    def __init__(
        self, max_subscribers: int, store: SharedStore, on_unreadable: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare the calls; `on_unreadable` is called for each value of the store that cannot be read."""
        super().__init__(max_subscribers)
        self._store = store
        self._leases = Leases(store)
        self._watch = EmptiedWatch(store, "calls", self._write_again)
        self._follower = CallFollower(self, store, on_unreadable)
        self._published: set[SharedCall] = set()
        """The streams that come in here and have not ended."""
        self._publishing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See `Calls`."""
        background = in_background(self._follower.run(), self._look_for_newer())
        async with self._leases.running(), self._watch.running(), background:
            try:
                yield
            finally:
                for task in self._publishing:
                    task.cancel()
                await asyncio.gather(*self._publishing, return_exceptions=True)

    def begin(
        self, call_id: CallId, introduction: CallMessage, on_refusal: Callable[[SessionError], None]
    ) -> "SharedCall":
        """See `Calls`."""
        call = SharedCall(call_id, self._store, self._leases, on_refusal, self._published.discard)
        self._published.add(call)
        call.publish(introduction)
        publishing = asyncio.create_task(call.run(self._watch.settled))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        return call

    @asynccontextmanager
    async def subscribe(self, call_id: CallId, holder: str = "") -> AsyncIterator[Outbox[Receipt]]:
        """See `Calls`."""
        try:
            if not self._store.is_up:
                raise StoreAway
            async with super().subscribe(call_id, holder) as outbox, self._follower.following(call_id):
                yield outbox
        except StoreAway:
            message = f"calls cannot be followed while Redis cannot be reached; try again in {RETRY_AFTER_S} s"
            raise LimitExceeded("redis_away", message, CLOSE_OVERLOADED) from None

    def _ends_here(self, call_id: CallId) -> bool:
        return any(call.call_id == call_id for call in self._published)

    async def wait_until_unused(self) -> None:
        """See `Calls`. Subscribers at other gateways receive the ends of calls, too."""
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=LEAVE_S)
        await super().wait_until_unused()

    async def _write_again(self) -> None:
        """Give a store that was emptied the calls that come in here."""
        await self._leases.renew()
        for call in list(self._published):
            await call.write_opening()

    async def _look_for_newer(self) -> None:
        while True:
            await asyncio.sleep(GIVE_WAY_EVERY_S)
            calls = list(self._published)
            with suppress(StoreAway):
                newer = await self._store.holders([call.newer_name for call in calls]) if calls else []
                for call, streams in zip(calls, newer, strict=True):
                    if streams:
                        call.give_way()


class SharedCall:
    """A `PublishedCall` whose subscribers may be at any gateway. `run` writes its log."""

    def __init__(
        self,
        call_id: CallId,
        store: SharedStore,
        leases: Leases,
        on_refusal: Callable[[SessionError], None],
        on_end: Callable[["SharedCall"], object],
    ) -> None:
        """Prepare a call; `on_refusal` is as in `Calls.begin`, and `on_end` is called at the end, with the call."""
        self.call_id = call_id
        self._store = store
        self._leases = leases
        self._on_refusal = on_refusal
        self._on_end = on_end
        self._id = token_hex(8)
        self.newer_name = newer_name(self._id)
        """The name of the leases that newer streams of the call hold while they wait for this one."""
        self._has_given_way = False
        self._begun = 0
        self._outbox: Outbox[CallMessage] = Outbox()
        self._introduction: CallMessage | None = None
        self._kept: deque[CallMessage] = deque()
        """Parts of the opening that were the oldest of too many events: without them, no subscriber gets the others."""
        self._n_lost = 0
        """How many events were lost since one was written."""
        self._opening: list[CallEntry] = []
        self._next_number = 0
        self._has_ended = asyncio.Event()

    def publish(self, message: CallMessage) -> None:
        """See `PublishedCall`. The oldest event is lost if too many wait, unless it belongs to the opening."""
        self._introduction = self._introduction or message
        oldest = self._outbox.push_over(message)
        if oldest is None:
            return
        if oldest is self._introduction or oldest.is_opening:
            self._kept.append(oldest)
        else:
            self._n_lost += 1

    def end(self) -> None:
        """See `PublishedCall`."""
        if not self._has_ended.is_set():
            self._has_ended.set()
            self._on_end(self)
            self._outbox.close()

    def give_way(self) -> None:
        """End, and let a newer stream publish after it, for the same subscribers."""
        if not self._has_given_way:
            self._has_given_way = True
            self._on_refusal(call_is_on(self.call_id))

    async def run(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Write the log of the call until it has ended. `settled` waits for the leases of other streams."""
        lease = Lease(lease_name(self.call_id), self._id)
        try:
            if await self._claim(lease, settled):
                while (message := await self._outbox.pop()) is not None:
                    while self._kept:
                        await self._write(self._kept.popleft())
                    # The numbers that are left out tell the subscribers.
                    self._next_number, self._n_lost = self._next_number + self._n_lost, 0
                    await self._write(message)
                if not self._has_given_way:
                    await self._write(None)
            else:
                self._on_refusal(call_is_on(self.call_id))
        except TimeoutError:
            logger.warning("[%s] the last events of a call are not delivered: Redis cannot be reached", self.call_id)
        finally:
            self._leases.drop(lease)

    async def write_opening(self) -> None:
        """Put what subscribers receive first. Raises `StoreAway`."""
        if self._opening:
            opening = json.dumps([entry.text() for entry in self._opening], ensure_ascii=False)
            await self._store.put(opening_name(self.call_id), opening, KEEP_OPENING_S)

    async def _claim(self, lease: Lease, settled: Callable[[], Awaitable[None]]) -> bool:
        """Take the lease of the call, and the number of this stream. False if another one holds it after `CLAIM_S`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLAIM_S
        while True:
            try:
                await settled()
                if await self._leases.take(lease, 1):
                    self._begun = await self._store.next_number(lease.name)
                    return True
                if not self._has_ended.is_set():
                    (older,) = await self._store.holders([lease.name])
                    await self._store.renew([Lease(newer_name(each), self._id) for each in older])
            except StoreAway:
                await wait_until_up(self._store, self._has_ended)
                # Until now no answer could tell of another stream.
                deadline = loop.time() + CLAIM_S
                continue
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(CLAIM_EVERY_S)

    async def _write(self, message: CallMessage | None) -> None:
        """Append a message to the log, or the end of the call. Waits for a store that is away."""
        entry = CallEntry(call=self._id, begun=self._begun, number=self._next_number, message=message)
        self._next_number += 1
        needs_opening = message is not None and (not self._opening or message.is_opening)
        if needs_opening:
            self._opening.append(entry)
        while True:
            try:
                if needs_opening:
                    await self.write_opening()
                await self._store.append(log_name(self.call_id), entry.text())
                return
            except StoreAway:
                await wait_until_up(self._store, self._has_ended)
                # It may have lost what it had.
                needs_opening = True
