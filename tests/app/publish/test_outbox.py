"""The queue of events for one client."""

import asyncio

import pytest

from tutti_server.app.publish.outbox import Outbox, Outgoing
from tutti_server.app.session.messages import events


def interim(number: int, channel: int = 0) -> events.Interim:
    return events.Interim(utterance=0, channel=channel, start_s=0.0, end_s=1.0, stable="", tail=str(number))


async def popped(outbox: Outbox[Outgoing]) -> list[Outgoing]:
    """All events of a closed outbox."""
    all_events: list[Outgoing] = []
    while (event := await outbox.pop()) is not None:
        all_events.append(event)
    return all_events


async def test_a_newer_interim_replaces_an_older_one_of_its_channel() -> None:
    outbox: Outbox[Outgoing] = Outbox()
    for event in (interim(1), interim(2, channel=1), events.Flushed(1), interim(3)):
        outbox.push(event)
    outbox.close()
    assert await popped(outbox) == [interim(2, channel=1), events.Flushed(1), interim(3)]


async def test_a_cancelled_reader_loses_no_event() -> None:
    outbox: Outbox[Outgoing] = Outbox()
    reading = asyncio.create_task(outbox.pop())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    outbox.push(events.Flushed(1))
    assert await outbox.pop() == events.Flushed(1)
