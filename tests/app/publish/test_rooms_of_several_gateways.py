"""Rooms over two gateways with one Redis, as speakers and readers see them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.app.conftest import Serve, until
from tests.app.publish.serving_rooms import eventually, listener, say, speaker
from tests.fakes import pcm, said, speech
from tests.redis_server import RedisServer
from tutti_server.app.service.shared_state import SharedState
from tutti_server.app.sharing.redis_store import RedisStore


async def test_readers_at_any_gateway_see_a_speaker_move_to_another_one(serve: Serve, redis: RedisServer) -> None:
    """All readers have the same text, also one that comes later to a gateway that began in the middle."""
    shared = SharedState(n_gateways=2)
    one, other = [await serve(redis_url=redis.url, shared=shared) for _ in range(2)]
    async with speaker(one, {"name": "moving"}, resumes=True) as (first, started):
        room = {"name": "moving", "token": started["room"]["token"]}
        async with listener(one, "moving") as here, listener(other, "moving") as there:
            ended = await say(first, [1])
            await first.send(pcm(speech([2, 3])))
            for each in (here, there):
                await each.until("utterance")
                await each.until("interim")
            async with speaker(other, {"name": "moving"}) as (_, refused):
                assert refused["code"] == "room_taken"
            first.transport.abort()
            resume = {"from_s": ended["resume_from_s"]}
            async with speaker(other, room, resume=resume, resumes=True) as (second, _):
                await say(second, [2, 3])
                for each in (here, there):
                    await each.until("utterance")
                late = await serve(redis_url=redis.url, shared=shared)
                async with listener(late, "moving") as newcomer:
                    await second.send('{"type":"stop"}')
                    await until(second, "stopped")
                    for each in (here, there, newcomer):
                        await each.rest()
                        assert each.reader.text(0) == said([1]) + said([2, 3])
    assert here.reader.last_id == there.reader.last_id == newcomer.reader.last_id
    assert said([2, 3]) in (await late.get("/captions/moving.vtt")).text


async def test_a_room_outlives_the_gateways_that_it_was_at(serve: Serve, redis: RedisServer) -> None:
    """Its text comes from the snapshot that the speaker's gateway has left."""
    one = await serve(redis_url=redis.url)
    async with speaker(one, {"name": "kept"}) as (socket, _):
        await say(socket, [1])
        await socket.send('{"type":"stop"}')
        await until(socket, "stopped")
    one.server.stop()
    await one.task
    other = await serve(redis_url=redis.url)
    async with listener(other, "kept") as reader:
        assert (await reader.until("room"))["live"] is False
        assert await reader.rest() == ["segment", "utterance", "ended"]


async def test_text_waits_for_a_redis_that_is_away(serve: Serve, redis: RedisServer) -> None:
    """The session goes on, and readers of before get everything."""
    one = await serve(redis_url=redis.url)
    async with speaker(one, {"name": "patient"}) as (socket, _), listener(one, "patient") as reader:
        await say(socket, [1])
        await reader.until("utterance")
        redis.kill()
        await say(socket, [2])
        await eventually(one, "/captions/patient.vtt", 503)
        redis.start()
        await reader.until("utterance")
        assert reader.reader.text(0) == said([1]) + said([2])
        async with listener(one, "patient") as late:
            await late.until("utterance")
            await late.until("utterance")
            assert late.reader.text(0) == reader.reader.text(0)
        await socket.send('{"type":"stop"}')
        await reader.until("ended")


@asynccontextmanager
async def operator(redis: RedisServer) -> AsyncIterator[RedisStore]:
    """Someone who writes to Redis beside the gateways."""
    store = RedisStore(redis.url)
    async with store.running():
        yield store


async def test_a_room_is_back_when_redis_was_emptied(
    serve: Serve, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its speaker is silent and all connections stay; and its name stays its owner's."""
    # Longer than on a quiet machine: others must not come first because this one is busy.
    monkeypatch.setattr("tutti_server.app.sharing.emptied.SETTLE_S", 4.0)
    one, other = [await serve(redis_url=redis.url) for _ in range(2)]
    async with speaker(one, {"name": "kept-name"}) as (socket, started), operator(redis) as eraser:
        await say(socket, [1])
        await eventually(other, "/captions/kept-name.vtt", 200)
        await eraser._call("FLUSHALL")
        async with speaker(other, {"name": "kept-name"}) as (_, refused):
            assert refused["code"] == "room_taken"
        late = await serve(redis_url=redis.url)
        track = await eventually(late, "/captions/kept-name.vtt", 200)
        assert said([1]) in track.text
        async with listener(other, "kept-name") as reader:
            await reader.until("utterance")
        await socket.send('{"type":"stop"}')
        await until(socket, "stopped")
        async with speaker(other, {"name": "kept-name", "token": started["room"]["token"]}) as (_, again):
            assert again["type"] == "started"


@pytest.mark.parametrize(
    "write",
    [
        ("SET", "tutti:value:room-name:broken", "no JSON"),
        ("SET", "tutti:value:room-name:broken", "7"),
        ("SET", "tutti:value:room-name:broken", '{"id": 7}'),
        ("SET", "tutti:value:room-name:broken", b"\xff\xfe"),
        ("LPUSH", "tutti:value:room-name:broken", "1"),
    ],
)
async def test_a_room_that_cannot_be_read_is_unknown(serve: Serve, redis: RedisServer, write: tuple[str, ...]) -> None:
    """It is counted, other rooms go on, and no one takes a name whose owner is not known."""
    server = await serve(redis_url=redis.url)
    async with operator(redis) as store, speaker(server) as (socket, whole):
        await store._call("DEL", "tutti:value:room-name:broken")
        await store._call(*write)
        for path in ("", "/events", ".vtt", ".m3u8", "/0.vtt"):
            assert (await server.get(f"/captions/broken{path}")).status_code == 404
        assert server.metric("tutti_redis_unreadable_total") == 5
        async with speaker(server, {"name": "broken"}) as (_, refused):
            assert refused["code"] == "room_taken"
        await say(socket, [1])
        await eventually(server, f"{whole['room']['path']}.vtt", 200)
    assert server.service.store.is_up


async def test_entries_that_cannot_be_read_are_left_out(serve: Serve, redis: RedisServer) -> None:
    """They are counted, and what follows arrives at once."""
    entries: list[tuple[Any, Any]] = [
        *(("value", text) for text in ("no JSON", "7", '{"kind":"none"}', '{"kind":"begun","stream":7}', b"\xff\xfe")),
        ("other", "field"),
    ]
    server = await serve(redis_url=redis.url)
    async with speaker(server) as (socket, started), operator(redis) as store:
        name = started["room"]["name"]
        async with listener(server, name) as reader:
            await say(socket, [1])
            await reader.until("utterance")
            room = json.loads(await store.get(f"room-name:{name}") or "")["id"]
            for entry in entries:
                await store._call("XADD", f"tutti:log:room:{room}", "*", *entry)
            await say(socket, [2])
            await reader.until("utterance")
        assert reader.reader.text(0) == said([1]) + said([2])
    assert server.metric("tutti_redis_unreadable_total") == len(entries)
    assert server.metric("tutti_redis_losses_total") == 0
