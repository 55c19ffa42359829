"""What becomes of leases that are given back, beside a store that answers slowly."""

import asyncio
from collections.abc import Collection

from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import Lease

LEASE = Lease("sessions:a", "holder")


class SlowStore(LocalStore):
    """Does not answer the first release."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def release(self, leases: Collection[Lease]) -> None:
        if not self.is_asked.is_set():
            self.is_asked.set()
            await asyncio.Event().wait()
        await super().release(leases)


async def test_a_lease_whose_release_is_cut_off_is_given_back_again() -> None:
    """Here when the service ends, otherwise with the next renewal. Its place is free at once, not when it expires."""
    store = SlowStore()
    leases = Leases(store)
    async with leases.running():
        assert await leases.take(LEASE, 1)
        leases.drop(LEASE)
        await store.is_asked.wait()
    assert await store.holders([LEASE.name]) == [frozenset()]


class LateStore(LocalStore):
    """Is slow to renew leases while `is_late` is set, and quick to release them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.renews, self.may_renew = asyncio.Event(), asyncio.Event()

    async def renew(self, leases: Collection[Lease]) -> None:
        if self.is_late:
            self.renews.set()
            await self.may_renew.wait()
        await super().renew(leases)


async def test_a_renewal_does_not_take_back_what_was_given_back_meanwhile() -> None:
    """A gateway renews beside the usual renewals when the store was emptied."""
    store = LateStore()
    leases = Leases(store)
    async with leases.running():
        assert await leases.take(LEASE, 1)
        store.is_late = True
        renewing = asyncio.create_task(leases.renew())
        await store.renews.wait()
        leases.drop(LEASE)
        for _ in range(10):
            await asyncio.sleep(0)
        store.may_renew.set()
        await renewing
    assert await store.holders([LEASE.name]) == [frozenset()]
