"""Follows rooms whose speakers may come back late, and whose state in the store may be that of another version."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.app.publish.made_up import Reader, entries
from tests.app.publish.test_room import segment
from tutti_server.app.background import in_background
from tutti_server.app.publish.room import Room
from tutti_server.app.publish.room_entries import Begun, Ended, Entry, Left, Passed, read_entry, write_entry
from tutti_server.app.publish.room_follower import Followed, RoomConfig, RoomFollower, log_name, text_name
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import Entry as LogEntry
from tutti_server.app.sharing.store import StoreAway

CONFIG = RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000)


@pytest.mark.parametrize(
    "snapshot",
    [
        "{}",
        "no JSON",
        '{"position": "0", "room": {}}',
        '{"position": "0", "room": 7}',
        Followed(room=Room("old", "choir", 1000)).snapshot(),
        Followed(room=Room("old", "choir", 1000), position="the end").snapshot(),
        "[" * 100_000,
    ],
)
async def test_a_room_with_a_snapshot_that_cannot_be_read_holds_up_no_other(snapshot: str) -> None:
    """Both rooms are ready at once; the text of the one begins with its log."""
    store = LocalStore()
    await store.put(text_name("old"), snapshot, 60.0)
    follower = RoomFollower(store, CONFIG)
    async with (
        in_background(follower.run()),
        follower.following("old", "choir") as old,
        follower.following("new", "band") as new,
    ):
        assert (old.room.name, new.room.name) == ("choir", "band")
        assert old.position is not None and new.position is not None
        changed = new.changed
        await store.append(log_name("new"), write_entry(Begun(stream="a", at=1000.0)))
        await changed.wait()


class LosesFirstLook(LocalStore):
    """A store that is away when it is asked for the end of a log for the first time."""

    is_lost = True

    async def last(self, log: str) -> LogEntry | None:
        is_lost, self.is_lost = self.is_lost, False
        if is_lost:
            raise StoreAway
        return await super().last(log)


async def test_a_room_is_ready_although_the_store_was_away_while_it_was_looked_up() -> None:
    """Its speaker writes nothing before that."""
    follower = RoomFollower(LosesFirstLook(), CONFIG)
    async with in_background(follower.run()), follower.following("abc", "choir") as followed:
        assert followed.position == "0"


class SavedMeanwhile(LocalStore):
    """A store that is away for its first reader. Another gateway, which has read the room's log, saves the room."""

    async def read(self, positions: Mapping[str, str]) -> list[tuple[str, LogEntry]]:
        if await self.get(text_name("abc")) is None:
            last = await self.last(log_name("abc"))
            saved = Followed(room=Room("abc", "choir", 1000), position=last and last.position)
            await self.put(text_name("abc"), saved.snapshot(), 60.0)
            raise StoreAway
        return await super().read(positions)


async def test_a_room_is_ready_that_was_saved_while_the_store_was_away() -> None:
    """Nothing follows the snapshot in its log."""
    store = SavedMeanwhile()
    await store.append(log_name("abc"), write_entry(Begun(stream="a", at=1000.0)))
    follower = RoomFollower(store, CONFIG)
    async with in_background(follower.run()), follower.following("abc", "choir") as followed:
        assert followed.position == "1"


class AwayStore(LocalStore):
    """A store that may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there = asyncio.Event()
        self.is_there.set()
        self.is_missed = asyncio.Event()

    async def wait_until_up(self) -> None:
        self.is_missed.set()
        await self.is_there.wait()

    async def read(self, positions: Mapping[str, str]) -> list[tuple[str, LogEntry]]:
        entries = await super().read(positions)
        if not self.is_there.is_set():
            raise StoreAway
        return entries


@dataclass
class Gateway:
    """Follows a room of which a speaker has no more than a minute to come back."""

    store: AwayStore = field(default_factory=AwayStore)
    now: float = 1000.0

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        follower = RoomFollower(self.store, CONFIG, clock=lambda: self.now, now=lambda: self.now)
        async with in_background(follower.run()), follower.following("abc", "choir") as followed:
            self.followed = followed
            yield

    async def fold(self, entry: Entry, now: float) -> None:
        """Let the gateway read an entry at this time, and look for speakers."""
        changed, self.now = self.followed.changed, now
        await self.store.append(log_name("abc"), write_entry(entry))
        await changed.wait()

    async def has_ended(self) -> bool:
        last = await self.store.last(log_name("abc"))
        return last is not None and isinstance(read_entry(last.value), Ended)


async def test_a_speaker_that_comes_back_in_the_last_moment_has_its_room() -> None:
    """Its lease is in the store a little later than its beginning is in the log."""
    gateway = Gateway()
    async with gateway.following():
        await gateway.fold(Begun(stream="a", at=1000.0), 1000.0)
        await gateway.fold(Left(stream="a", at=1000.0), 1010.0)
        await gateway.fold(Begun(stream="b", at=1058.0, resumed_from_s=[3.0]), 1058.0)
        await gateway.fold(Passed(stream="b", at=1061.0), 1061.0)
        assert not await gateway.has_ended()


async def test_a_speaker_whose_room_was_ended_too_early_has_its_time_again() -> None:
    """Its gateway could not reach the store; its lease is there a little later than its next entry."""
    gateway = Gateway()
    async with gateway.following():
        await gateway.fold(Begun(stream="a", at=1000.0), 1000.0)
        for now in (1010.0, 1080.0):
            await gateway.fold(Passed(stream="a", at=now), now)
        while gateway.followed.room.is_live:
            await gateway.followed.changed.wait()
        for now in (1090.0, 1100.0):
            await gateway.fold(Passed(stream="a", at=now), now)
        assert gateway.followed.room.is_live
        assert not await gateway.has_ended()


async def test_text_that_the_log_has_dropped_while_the_store_was_away_comes_from_the_snapshot() -> None:
    """Of a session that has begun meanwhile, too. A snapshot that is older than the room changes nothing."""
    gateway, other = Gateway(), Room("abc", "choir", 1000)
    log = log_name("abc")
    async with gateway.following():
        await gateway.fold(begun := Begun(stream="a", at=1000.0), 1000.0)
        reader = Reader()
        reader.catch_up(gateway.followed.room)
        gateway.store.is_there.clear()
        missed = [Begun(stream="b", at=1010.0), *entries("b", [segment(0, 1.0, "Missed.")])]
        for entry in missed:
            await gateway.store.append(log, write_entry(entry))
        await gateway.store.is_missed.wait()
        last = await gateway.store.last(log)
        assert last
        for entry in (begun, *missed):
            other.fold(entry)
        snapshot = Followed(room=other, position=last.position).snapshot()
        await gateway.store.put(text_name("abc"), snapshot, 60.0)
        gateway.store._logs[log].entries.clear()
        gateway.store.is_there.set()
        for n, text in enumerate(("One.", "Two."), 1):
            (entry,) = entries("b", [segment(n, 2.0 * n, text)], n)
            await gateway.store.append(log, write_entry(entry))
            other.fold(entry)
            while text.encode() not in gateway.followed.room.frames.after(0):
                await gateway.followed.changed.wait()
            reader.catch_up(gateway.followed.room)
            gateway.followed.may_lack_text = True
        assert reader.text(0) == "Missed.One.Two."
        assert reader.types == ["segment"] * 3
        assert gateway.followed.room.snapshot() == other.snapshot()


async def test_the_text_of_a_speaker_whose_gateway_has_died_outlives_the_log() -> None:
    """The next reader finds it as it was, and the room as ended."""
    gateway = Gateway()
    async with gateway.following():
        await gateway.fold(Begun(stream="a", at=1000.0), 1000.0)
        for entry in entries("a", [segment(0, 1.0, "Last words.")]):
            await gateway.fold(entry, 1010.0)
        await gateway.fold(Passed(stream="a", at=1011.0), 1080.0)
        while gateway.followed.room.is_live:
            await gateway.followed.changed.wait()
        ended = gateway.followed.room.snapshot()
        # Of no session that it knows.
        await gateway.fold(Passed(stream="b", at=1090.0), 1090.0)
    gateway.store._logs.clear()
    async with gateway.following():
        assert gateway.followed.room.snapshot() == ended


async def test_a_speaker_that_could_not_come_back_has_as_much_time_afterwards() -> None:
    """While the store is away, no session begins in a room."""
    gateway = Gateway()
    async with gateway.following():
        await gateway.fold(Begun(stream="a", at=1000.0), 1000.0)
        await gateway.fold(Left(stream="a", at=1000.0), 1010.0)
        gateway.store.is_there.clear()
        await gateway.store.append(log_name("abc"), write_entry(Passed(stream="a", at=1020.0)))
        await gateway.store.is_missed.wait()
        gateway.now = 1100.0
        gateway.store.is_there.set()
        for now, has_ended in ((1100.0, False), (1155.0, False), (1161.0, True)):
            await gateway.fold(Passed(stream="a", at=now), now)
            assert await gateway.has_ended() == has_ended
