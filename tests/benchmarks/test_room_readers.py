"""The load of a room: readers of a stand-in server, what is computed of them, and the cost of the gateway."""

import asyncio
import os

import click
import numpy as np
import pytest

from benchmarks.recordings import Recording
from benchmarks.room_readers import Cost, ProcessState, gateway_cost, measure, processes, summarise, table
from benchmarks.rooms.reader import EventStream, ParsedEvents, Reader, ReaderError
from benchmarks.rooms.speaker import Speaker, SpeakerLog, final_text
from benchmarks.server import RunningServer
from engine.api import SAMPLE_RATE
from tests.benchmarks.stand_in_rooms import StandInRooms, final, interim, serve

BODY = b': comment\n\nid: 7\ndata: {"a":\ndata:  1}\n\nretry: 5\n\ndata: {}\r\n\r\n'
EVENTS = [(b"7", b'{"a":\n 1}'), (b"", b"{}")]
COST = Cost(gateway_pids=[1], without_readers=0.1, with_readers=0.4)


def recording(seconds: float) -> Recording:
    return Recording("test", np.zeros(round(seconds * SAMPLE_RATE), np.float32), "")


@pytest.mark.parametrize("is_chunked", [True, False])
def test_events_are_cut_wherever_the_bytes_are(is_chunked: bool) -> None:
    """Comments and fields of other names are no events."""
    raw = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:])) if is_chunked else BODY
    for size in (1, 3, len(raw)):
        stream = EventStream(is_chunked=is_chunked)
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert [event for piece in pieces for event in stream.feed(piece)] == EVENTS


async def test_every_reader_gets_the_speaker_s_text() -> None:
    """Also those who come late, and those whom the server drops: they go on after their last event."""
    async with asyncio.timeout(30), serve(StandInRooms(drops_after=2)) as rooms:
        server = RunningServer(rooms.url, os.getpid())
        before = processes(os.getpid())
        log, readers, cost = await measure(server, recording(0.1), recording(1.5), 20)
    result = summarise(log, readers, cost, 1.5)
    assert (result["readers"], result["same_text"], result["words"]) == (20, 20, 6)
    assert result["speaker_events"] == 9 and result["reader_events"] == 20 * 9
    assert result["reconnects"] == len(rooms.last_ids) == 20 and set(rooms.last_ids) == {"1"}
    assert 0 < result["delay_s"]["n"] <= 20 * 9 and result["delay_s"]["max"] < 10
    assert cost.gateway_pids == [os.getpid()] and os.getpid() in before
    assert table(result).rows[0][:4] == ("20", "20", "6", "180")


async def test_a_server_without_rooms_is_reported() -> None:
    async with asyncio.timeout(30), serve(StandInRooms(has_rooms=False)) as rooms:
        with pytest.raises(click.ClickException, match="expected a `started` with a room"):
            async with Speaker(rooms.url):
                pass


async def test_a_reader_who_is_refused_says_so() -> None:
    async with asyncio.timeout(30), serve(StandInRooms()) as rooms:
        with pytest.raises(ReaderError, match=r"expected status 200 .* 404"):
            await Reader(rooms.url, "/captions/other", ParsedEvents()).read()


def test_a_lost_word_is_another_text() -> None:
    """The reader is named with both texts; a text that was taken away and came again counts once."""
    log = SpeakerLog([(1.0, event) for number in (0, 1) for event in [interim(number), *final(number)]])
    whole, short = (Reader("http://127.0.0.1:1", "/captions/room", ParsedEvents()) for _ in range(2))
    whole.events = [(1.25, event) for _, event in [*log.events[:3], (0.0, {"type": "retract", "utterance": 0})]]
    whole.events += [(1.25, event) for _, event in log.events]
    short.events = [(1.5, event) for _, event in log.events[:3]]
    result = summarise(log, [whole, short], COST, 10.0)
    assert (result["same_text"], result["words"]) == (1, 4)
    assert result["differences"] == ["reader 1: 'Text 0.' instead of 'Text 0.\\nText 1.'"]
    assert result["delay_s"]["p50"] == 0.25 and result["delay_s"]["max"] == 0.5
    assert result["cpu_ms_per_reader_and_event"] == pytest.approx(1000 * 0.3 * 10 / 13, abs=1e-4)


def test_the_final_text_has_a_line_for_each_utterance() -> None:
    assert final_text([*final(0), interim(1)]) == "Text 0."


def test_the_gateway_is_the_process_with_the_readers_connections() -> None:
    """The engine's CPU time does not count."""
    alone = [{1: ProcessState(1.0, 10), 2: ProcessState(5.0, 10)}, {1: ProcessState(2.0, 10), 2: ProcessState(9.0, 10)}]
    together = [
        {1: ProcessState(2.0, 310), 2: ProcessState(9.0, 12)},
        {1: ProcessState(8.0, 310), 2: ProcessState(60.0, 12)},
    ]
    cost = gateway_cost(alone, together, 300, 10.0, 20.0)
    assert cost == Cost(gateway_pids=[1], without_readers=0.1, with_readers=0.3)
    with pytest.raises(click.ClickException, match="found none"):
        gateway_cost(alone, alone, 300, 10.0, 20.0)
