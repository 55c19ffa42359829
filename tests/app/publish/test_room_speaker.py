"""A session that speaks in a room."""

import asyncio
import json

from tutti_server.app.publish.outbox import MAX_WAITING
from tutti_server.app.publish.room_config import RoomConfig
from tutti_server.app.publish.room_hub import Rooms
from tutti_server.app.sharing.local_store import LocalStore

CONFIG = RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=100_000)


def segment(number: int) -> str:
    times = {"start_s": float(number), "end_s": number + 1.0}
    text = {"text": f"Text {number}.", "confidence": 0.9, "language": "en"}
    return json.dumps({"type": "segment", "utterance": number, "channel": 0, **times, **text})


async def test_a_room_has_begun_though_more_events_wait_for_the_store_than_may() -> None:
    """Readers learn that some text is lost, and get the rest."""
    rooms = Rooms(LocalStore(), CONFIG)
    async with asyncio.timeout(10), rooms.running():
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
