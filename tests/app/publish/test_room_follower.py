"""Follows rooms whose state in the shared store may be that of another version."""

import asyncio

import pytest

from tutti_server.app.publish.room_config import RoomConfig
from tutti_server.app.publish.room_follower import RoomFollower, text_name
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
