"""The leases of this gateway: renewed while they are held, and given back afterwards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tutti_server.app.background import in_background
from tutti_server.app.sharing.store import LEASE_S, Lease, SharedStore, StoreAway

RENEW_S = LEASE_S / 4
"""How often leases are renewed, in seconds: two renewals may fail before a lease ends."""


class Leases:
    """Holds leases in the shared store while `running` is open. A store that is away gets them when it is back."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._held: set[Lease] = set()
        self._dropped: set[Lease] = set()
        self._has_dropped = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        """A renewal that arrives after a release would take back what was given back."""

    async def take(self, lease: Lease, limit: int) -> bool:
        """Take a lease and hold it until `drop`. False if `limit` others hold one of this name.

        Raises:
            StoreAway: the store cannot be reached. The lease is not held.
        """
        if not await self._store.take(lease, limit):
            return False
        self.hold(lease)
        return True

    def hold(self, lease: Lease) -> None:
        """Hold a lease until `drop`, whatever its limit is; the store gets it with the next renewal."""
        self._held.add(lease)

    def drop(self, lease: Lease) -> None:
        """Give a lease back. It ends by itself if the store cannot be reached."""
        self._held.discard(lease)
        self._dropped.add(lease)
        self._has_dropped.set()

    async def renew(self) -> None:
        """Renew all leases that are held now, as a store that was emptied has none of them. Raises like `take`."""
        async with self._one_at_a_time:
            await self._store.renew(tuple(self._held))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Renew and give back leases while the context is open, and give back the last ones at its end."""
        try:
            async with in_background(self._keep_renewing()):
                yield
        finally:
            with suppress(StoreAway):
                await self._release()

    async def _keep_renewing(self) -> None:
        while True:
            with suppress(StoreAway):
                await self.renew()
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S):
                    await self._keep_releasing()

    async def _keep_releasing(self) -> None:
        while True:
            await self._has_dropped.wait()
            self._has_dropped.clear()
            # Those that the store does not get end by themselves.
            with suppress(StoreAway):
                await self._release()

    async def _release(self) -> None:
        dropped, self._dropped = self._dropped, set()
        try:
            async with self._one_at_a_time:
                await self._store.release(dropped)
        except asyncio.CancelledError:
            # It is time for the next renewal, or for the end: they are given back after it.
            self._dropped |= dropped
            self._has_dropped.set()
            raise
