"""A session that speaks in a room."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from tutti_server.app.publish.outbox import MAX_WAITING
from tutti_server.app.publish.room_follower import RoomConfig, RoomFollower
from tutti_server.app.publish.room_hub import Rooms
from tutti_server.app.publish.room_speaker import Claim, Speaker
from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.local_store import LocalStore

CONFIG = RoomConfig(gone_s=86_400.0, keep_s=60.0, max_chars=100_000)


def segment(number: int) -> str:
    times = {"start_s": float(number), "end_s": number + 1.0}
    text = {"text": f"Text {number}.", "confidence": 0.9, "language": "en"}
    return json.dumps({"type": "segment", "utterance": number, "channel": 0, **times, **text})


async def test_a_room_has_begun_though_more_events_wait_for_the_store_than_may() -> None:
    """Readers learn that some text is lost, and get the rest."""
    rooms = Rooms(LocalStore(), CONFIG)
    async with rooms.running():
        speaker = rooms.speak(await rooms.claim("own", "choir", None))
        speaker.begin("Sunday", None)
        for number in range(MAX_WAITING + 20):
            speaker.publish(segment(number))
        async with rooms.follow("choir") as followed:
            room = followed.room
            while f"Text {MAX_WAITING + 19}.".encode() not in room.frames.after(0):
                await followed.changed.wait()
        assert (room.title, room.is_live, room.stream) == ("Sunday", True, speaker.stream)
        assert room.frames.after(0).count(b"events_missed") == 1
        assert room.frames.after(0).count(b"Text ") == MAX_WAITING
        speaker.leave(is_over=True)


class ForgetfulStore(LocalStore):
    """A store that loses the end of a session, as a Redis whose replica takes over a moment too early."""

    async def append(self, log: str, value: str) -> None:
        if '"kind":"left"' not in value:
            await super().append(log, value)


async def test_a_session_whose_end_the_store_has_lost_leaves_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease would show a speaker for ever."""
    monkeypatch.setattr("tutti_server.app.publish.room_speaker.FOLD_S", 0.001)
    monkeypatch.setattr("tutti_server.app.publish.room_speaker.LAST_WORDS_S", 0.05)
    rooms = Rooms(ForgetfulStore(), CONFIG)
    async with rooms.running():
        speaker = rooms.speak(await rooms.claim("own", "choir", None))
        speaker.begin("Sunday", None)
        async with rooms.follow("choir"):
            speaker.leave(is_over=False)
        _, speaking = await asyncio.wait(rooms._speaking, timeout=1)
        assert not speaking


async def test_a_room_that_has_ended_stays_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is time to say that time passes in it."""
    monkeypatch.setattr("tutti_server.app.publish.room_speaker.SEGMENT_S", 0.0)
    rooms = Rooms(LocalStore(), CONFIG)
    async with rooms.running():
        speaker = rooms.speak(await rooms.claim("own", "choir", None))
        speaker.begin("Sunday", None)
        async with rooms.follow("choir") as followed:
            speaker.leave(is_over=True)
            await asyncio.wait(rooms._speaking)
            assert not followed.room.is_live


@dataclass
class Clocks:
    """The clocks of a machine."""

    passed_s: float = 0.0
    step_s: float = 0.0
    """By how much the time of day was set."""

    def now(self) -> float:
        return 1_000_000.0 + self.passed_s + self.step_s

    def monotonic(self) -> float:
        return 50.0 + self.passed_s


@pytest.mark.parametrize("step_s", [-3600.0, -60.0, 3600.0])
async def test_a_room_lasts_as_long_as_it_does_though_the_time_of_day_is_set(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """A segment is made every 6 s. Others compare the time of day with that at which the speaker has left."""
    monkeypatch.setattr("tutti_server.app.publish.room_speaker.SEGMENT_S", 0.001)
    clocks, store = Clocks(), LocalStore()
    follower = RoomFollower(store, CONFIG, now=clocks.now)
    claim = Claim(id="abc", name="choir", token="t", owner="o", account="a")
    speaker = Speaker(claim, store, Leases(store), follower, CONFIG, now=clocks.now, clock=clocks.monotonic)
    speaker.begin("", None)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follower.run())
        tasks.create_task(speaker.run())
        async with follower.following("abc", "choir") as followed:
            room = followed.room
            for n_segments in range(1, 21):
                clocks.passed_s = 6.0 * n_segments + 2
                while room.lines.n_segments < n_segments:
                    await followed.changed.wait()
                assert room.lines.n_segments == n_segments
                if n_segments == 5:
                    clocks.step_s = step_s
            speaker.leave(is_over=False)
            while room.left_at is None:
                await followed.changed.wait()
            assert room.left_at == clocks.now()
        following.cancel()


async def test_readers_of_stopping_gateways_are_sent_away_when_they_have_the_last_text() -> None:
    """Its session has ended at another gateway, which has not written it yet."""
    store = LocalStore()
    one, other = Rooms(store, CONFIG), Rooms(store, CONFIG)
    async with one.running(), other.running():
        speaker = one.speak(await one.claim("own", "choir", None))
        speaker.begin("Sunday", None)
        async with other.follow("choir") as followed:
            draining = asyncio.create_task(other.drain(others_stop=True))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not other.is_draining
            speaker.publish(segment(1))
            speaker.leave(is_over=False)
            while not other.is_draining:
                await followed.changed.wait()
            assert b"Text 1." in followed.room.frames.after(0)
        await draining
