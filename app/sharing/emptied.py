"""Notices that a shared store has lost what it had, also if it could be reached all the time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from secrets import token_hex

from tutti_server.app.background import in_background
from tutti_server.app.sharing.store import SharedStore
from tutti_server.app.sharing.waiting import keep_following

logger = logging.getLogger(__name__)

WATCH_S = 0.4
"""The time between two looks at the store, in seconds."""
SETTLE_S = 1.0
"""After this time, in seconds, all gateways have noticed that the store was emptied, and have written again."""
KEEP_MARK_S = 172_800.0
"""The mark ends after this time without a gateway, in seconds. Gateways renew it in half of it."""


class EmptiedWatch:
    """Has everything written again when the store was emptied."""

    def __init__(self, store: SharedStore, what: str, write_again: Callable[[], Awaitable[None]]) -> None:
        """Prepare to watch a store.

        Args:
            what: names what is written, the same at all gateways.
            write_again: called when the store was emptied; and again if it fails.
        """
        self._store = store
        self._name = f"mark:{what}"
        """The value that is lost with all others. All gateways find the same one."""
        self._write_again = write_again
        self._mark: str | None = None
        self._renewed_at = float("-inf")
        """When this gateway has renewed the mark, by the clock of the event loop."""
        self._is_emptied = False
        """The store was emptied, and what it had is not being written again yet."""
        self._emptied_at = float("-inf")
        """When the store was found without a mark, or with another one, by the clock of the event loop."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context is open."""
        store, what = self._store, "what the shared store has lost"
        watching = keep_following(store, what, lambda: store.can_be_emptied, asyncio.Event(), self._watch, lambda: None)
        async with in_background(watching):
            yield

    async def settled(self) -> None:
        """Wait until what is missing in the store is missing at all gateways, and is only not written again.

        Raises:
            StoreAway: the store cannot be reached.
        """
        if self._store.can_be_emptied:
            await self._look()
            await asyncio.sleep(max(self._emptied_at + SETTLE_S - asyncio.get_running_loop().time(), 0.0))

    async def _watch(self) -> None:
        """Look at the store, write again what it has lost, and wait until the next look."""
        await self._look()
        if self._is_emptied:
            # Before it is written: the store may be emptied again meanwhile.
            self._is_emptied = False
            try:
                await self._write_again()
            except Exception:
                self._is_emptied = True
                raise
        await asyncio.sleep(WATCH_S)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        mark = await self._store.get(self._name)
        if mark is None:
            # Also at the first start of all: that this store was not emptied a moment ago is not known.
            self._emptied_at = now
            new = token_hex(8)
            if await self._store.put_new(self._name, new, KEEP_MARK_S) and self._mark is None:
                # The store may be emptied again before the mark is read.
                self._mark = new
            mark = await self._store.get(self._name)
        if self._mark not in (None, mark):
            logger.warning("the shared store has lost what it had; it gets again what this gateway knows")
            self._emptied_at = now
            self._is_emptied = True
        elif mark is not None and now - self._renewed_at >= KEEP_MARK_S / 2:
            self._renewed_at = now
            # Not `put`: if the store was emptied since, the old mark would hide it.
            await self._store.keep(self._name, KEEP_MARK_S)
        self._mark = mark
