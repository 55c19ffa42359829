"""Announced calls: of several gateways that are asked at once, one announces a call and one takes it."""

import asyncio
import uuid

import pytest

from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import StoreAway
from tutti_server.plugins.carriers.audiosocket.announcements import Announcement, Announcements

CALL = uuid.UUID("40325ec2-5efd-4bd3-805f-53576e581d13")


class SlowStore(LocalStore):
    """A store whose answers cross, as those of a network do."""

    async def get(self, name: str) -> str | None:
        """Give the others a turn between the question and the answer."""
        value = await super().get(name)
        await asyncio.sleep(0)
        return value

    async def put_new(self, name: str, value: str, keep_s: float) -> bool:
        """Whether a value is new is known at once, as in Redis."""
        is_new = await LocalStore.get(self, name) is None
        if is_new:
            await self.put(name, value, keep_s)
        return is_new


async def test_a_call_is_announced_once() -> None:
    """Another client that knows its id neither takes it nor makes it unknown."""
    announcements = Announcements(SlowStore())
    offered = [Announcement(secret, {}) for secret in ("own", "foreign")]
    assert await asyncio.gather(*(announcements.add(CALL, each) for each in offered)) == [True, False]
    assert await announcements.use(CALL) == offered[0]
    assert not await announcements.add(CALL, offered[1])


@pytest.mark.parametrize("value", ["no JSON", "7", "{}", '{"secret": "own", "other": 1}'])
async def test_an_announcement_that_cannot_be_read_is_none(value: str) -> None:
    store = LocalStore()
    await store.put(f"audiosocket:{CALL}", value, 60)
    assert await Announcements(store).use(CALL) is None


async def test_an_announcement_is_good_for_one_call() -> None:
    """Also if several connections show its id in the same moment."""
    announcements = Announcements(SlowStore())
    announcement = Announcement("own", {"agent": "Ann"})
    await announcements.add(CALL, announcement)
    used = await asyncio.gather(*(announcements.use(CALL) for _ in range(3)))
    assert used == [announcement, None, None]


async def test_a_call_that_is_taken_is_served() -> None:
    """Though the store is away a moment later: no other gateway would serve it."""

    class FragileStore(LocalStore):
        async def put(self, name: str, value: str, keep_s: float) -> None:
            if name == f"audiosocket:{CALL}" and not value:
                raise StoreAway("away")
            await super().put(name, value, keep_s)

    announcements = Announcements(FragileStore())
    announcement = Announcement("own", {})
    await announcements.add(CALL, announcement)
    assert await announcements.use(CALL) == announcement
    assert await announcements.use(CALL) is None
