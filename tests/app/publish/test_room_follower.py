"""Follows rooms whose speakers may come back late, and whose state in the store may be that of another version."""

import asyncio

import pytest

from tutti_server.app.publish.room_config import RoomConfig
from tutti_server.app.publish.room_entries import Begun, Ended, Entry, Left, Passed, read_entry, write_entry
from tutti_server.app.publish.room_follower import RoomFollower, log_name, text_name
from tutti_server.app.sharing.local_store import LocalStore


@pytest.mark.parametrize(
    "snapshot",
    [
        "{}",
        "no JSON",
        '{"position": "0", "room": {}}',
        '{"position": "0", "room": 7}',
        "[" * 100_000,
    ],
)
async def test_a_room_with_a_snapshot_that_cannot_be_read_holds_up_no_other(snapshot: str) -> None:
    """Both rooms are ready at once; the text of the one begins with its log."""
    store = LocalStore()
    await store.put(text_name("old"), snapshot, 60.0)
    follower = RoomFollower(store, RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000))
    running = asyncio.create_task(follower.run())
    try:
        async with (
            asyncio.timeout(10),
            follower.following("old", "choir") as old,
            follower.following("new", "band") as new,
        ):
            assert (old.room.name, new.room.name) == ("choir", "band")
            assert old.position is not None and new.position is not None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_speaker_that_comes_back_in_the_last_moment_has_its_room() -> None:
    """Its lease is in the store a little later than its beginning is in the log."""
    now, store = 1000.0, LocalStore()
    config = RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000)
    follower = RoomFollower(store, config, clock=lambda: now, now=lambda: now)
    running = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(10), follower.following("abc", "choir") as followed:

            async def fold(entry: Entry, at: float) -> None:
                nonlocal now
                now, changed = at, followed.changed
                await store.append(log_name("abc"), write_entry(entry))
                await changed.wait()

            await fold(Begun(stream="a", at=1000.0), 1000.0)
            await fold(Left(stream="a", at=1000.0), 1010.0)
            await fold(Begun(stream="b", at=1058.0, resumed_from_s=[3.0]), 1058.0)
            await fold(Passed(stream="b", at=1061.0), 1061.0)
            last = await store.last(log_name("abc"))
            assert last and not isinstance(read_entry(last.value), Ended)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
