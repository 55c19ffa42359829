"""Live rooms of one gateway, when the shared store has lost them."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.dialects.native.room_endpoint import Publication
from tutti_server.app.publish.room_follower import RoomConfig, text_name
from tutti_server.app.publish.room_hub import Rooms
from tutti_server.app.publish.room_speaker import Speaker, name_key
from tutti_server.app.service.auth import Client
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.session.messages import commands
from tutti_server.app.sharing import emptied
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import StoreAway

N_ROOMS = 30


class FragileStore(LocalStore):
    """A store that may be emptied, and may fail to take a value once. It notes what is set."""

    can_be_emptied = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.fails_once = ""
        self.has_changed = asyncio.Event()
        self.may_take_texts = asyncio.Event()
        self.may_take_texts.set()

    def empty(self, **new: str) -> None:
        """Forget everything, and have these values of someone else at the same moment."""
        for kept in (self._values, self._logs, self._leases):
            kept.clear()
        self.names.clear()
        self._values.update({name: (value, float("inf")) for name, value in new.items()})

    async def put(self, name: str, value: str, keep_s: float) -> None:
        await asyncio.sleep(0)
        if name.startswith(text_name("")):
            await self.may_take_texts.wait()
        if name == self.fails_once:
            self.fails_once = ""
            raise StoreAway("away")
        self.names.append(name)
        await super().put(name, value, keep_s)
        self.has_changed.set()

    async def until_there(self, *names: str) -> None:
        while any(name not in self._values for name in names):
            self.has_changed.clear()
            await self.has_changed.wait()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emptied, "WATCH_S", 0.001)
    monkeypatch.setattr(emptied, "SETTLE_S", 0.05)


@pytest.fixture
async def store() -> FragileStore:
    return FragileStore()


@pytest.fixture
async def rooms(store: FragileStore) -> AsyncIterator[Rooms]:
    rooms = Rooms(store, RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000))
    async with rooms.running():
        yield rooms


async def speak(rooms: Rooms, store: FragileStore, n_rooms: int) -> list[Speaker]:
    """Sessions that speak, each in a room of its own, and are silent now."""
    speakers = []
    for number in range(n_rooms):
        speaker = rooms.speak(await rooms.claim("own", f"room-{number}", None))
        speaker.begin("", None)
        async with rooms.follow(speaker.claim.name):
            speakers.append(speaker)
    return speakers


def leave(speakers: list[Speaker]) -> None:
    for speaker in speakers:
        speaker.leave(is_over=True)


async def test_names_come_before_texts(rooms: Rooms, store: FragileStore) -> None:
    """Whoever asks meanwhile finds the names taken."""
    speakers = await speak(rooms, store, N_ROOMS)
    names = [name_key(each.claim.name) for each in speakers]
    texts = [text_name(each.claim.id) for each in speakers]
    store.empty()
    await store.until_there(*names, *texts)
    written = [name for name in store.names if name in {*names, *texts}]
    assert set(written[:N_ROOMS]) == set(names)
    leave(speakers)


async def test_readers_wait_for_the_text_of_a_name(
    rooms: Rooms, store: FragileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At another gateway, which would begin without what was said otherwise."""
    monkeypatch.setattr(emptied, "SETTLE_S", 1.0)
    (speaker,) = await speak(rooms, store, 1)
    other = Rooms(store, RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000))

    async def read() -> str:
        async with other.follow(speaker.claim.name) as followed:
            return followed.room.stream

    async with other.running():
        await other._watch.settled()
        store.may_take_texts.clear()
        store.empty()
        await store.until_there(name_key(speaker.claim.name))
        reading = asyncio.create_task(read())
        for _ in range(100):
            await asyncio.sleep(0)
        store.may_take_texts.set()
        assert await reading == speaker.stream
    leave([speaker])


@pytest.mark.parametrize("kind", ["name", "text"])
async def test_a_room_that_fails_holds_up_no_other(rooms: Rooms, store: FragileStore, kind: str) -> None:
    """It is written again by itself, and the others only once."""
    speakers = await speak(rooms, store, 3)
    names = [name_key(each.claim.name) for each in speakers]
    texts = [text_name(each.claim.id) for each in speakers]
    store.empty()
    store.fails_once = names[-1] if kind == "name" else texts[-1]
    await store.until_there(*names, *texts)
    assert [store.names.count(text) for text in texts[:-1]] == [1, 1]
    leave(speakers)


async def test_a_name_that_someone_else_has_taken_stays_theirs(rooms: Rooms, store: FragileStore) -> None:
    """The speaker learns that new readers do not find it; and has the name again when the other room has gone."""
    (speaker,) = await speak(rooms, store, 1)
    key, theirs = name_key(speaker.claim.name), json.dumps({"id": "theirs", "owner": "", "account": "other"})
    assert rooms.speaks(speaker)
    store.empty(**{key: theirs})
    await store.until_there(text_name(speaker.claim.id))
    assert await store.get(key) == theirs
    assert rooms.speaks(speaker) is False
    store.empty()
    await store.until_there(key)
    assert await store.get(key) == speaker.claim.record
    assert rooms.speaks(speaker)
    leave([speaker])


async def test_a_speaker_learns_that_its_name_was_lost_before_it_spoke(rooms: Rooms, store: FragileStore) -> None:
    """Its claim had ended while the store could not be reached."""
    metrics, settings = Metrics(FakeTranscriber()), SimpleNamespace(max_room_readers=1)
    service: Any = SimpleNamespace(rooms=rooms, settings=settings, metrics=metrics, is_known_everywhere=True)
    publication = Publication(service, Client(account="own"))
    await publication.open(commands.Start(room=commands.RoomRequest(name="choir")))
    key, theirs = name_key("choir"), json.dumps({"id": "theirs", "owner": "", "account": "other"})
    store.empty(**{key: theirs})
    publication.begin()
    claim = publication._claim
    assert claim
    async with rooms._follower.following(claim.id, "choir") as followed:
        while not followed.room.stream:
            await followed.changed.wait()
    assert [each.code for each in publication.notices()] == ["room_taken_over"]
    assert not publication.notices()
    publication.leave()
