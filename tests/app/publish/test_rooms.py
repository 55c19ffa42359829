"""Rooms as speakers and readers see them: over a real server."""

import asyncio
import json
import re
import socket as sockets
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Running, Serve, until
from tests.app.publish.made_up import parse_events
from tests.app.publish.serving_rooms import eventually, listener, metric_becomes, say, speaker
from tests.fakes import MODEL, FakeTranscriber, pcm, said, speech
from tutti_server.app.dialects.rooms.endpoint import _send_events
from tutti_server.app.publish.room import Room
from tutti_server.app.publish.room_entries import Begun, Ended
from tutti_server.app.publish.room_follower import Followed
from tutti_server.app.publish.server_sent_events import EventStream
from tutti_server.app.service.shared_state import SharedState


async def test_readers_see_what_the_speaker_says_and_latecomers_what_was_said(server: Running) -> None:
    async with speaker(server, {"title": "Sunday"}) as (socket, started):
        room = started["room"]
        assert room["path"] == f"/captions/{room['name']}"
        assert len(room["name"]) == 22
        async with listener(server, room["name"]) as early:
            first = await early.until("room")
            assert first == {"type": "room", "name": room["name"], "title": "Sunday", "live": True, "resumed": False}
            ended = await say(socket, [1, 2])
            await early.until("utterance")
            assert early.reader.text(0) == ended["text"] == said([1, 2])
            async with listener(server, room["name"]) as late:
                await late.until("utterance")
                await say(socket, [3])
                for each in (early, late):
                    await each.until("utterance")
                    assert each.reader.ended == {0: said([1, 2]), 1: said([3])}
                assert server.metric("tutti_rooms") == 1
                assert server.metric("tutti_room_readers") == 2
                await socket.send('{"type":"stop"}')
                assert await early.rest() == await late.rest() == ["ended"]
                assert 1000 <= early.retry_ms <= 5000
                last_id = early.reader.last_id
    assert server.metric("tutti_rooms") == 0
    response = await server.get(f"{room['path']}/events", headers={"Last-Event-ID": last_id})
    assert response.status_code == 204
    async with listener(server, room["name"]) as after:
        assert (await after.until("room"))["live"] is False
        assert await after.rest() == ["segment", "utterance", "segment", "utterance", "ended"]


async def test_a_reader_that_comes_back_gets_what_it_missed(server: Running) -> None:
    async with speaker(server, {"name": "choir-7"}) as (socket, _):
        async with listener(server, "choir-7") as first:
            await say(socket, [1])
            await first.until("utterance")
        await say(socket, [2])
        for options in (
            {"headers": {"Last-Event-ID": first.reader.last_id}},
            {"params": {"after": first.reader.last_id}},
        ):
            async with listener(server, "choir-7", **options) as again:
                assert (await again.until("room"))["resumed"] is True
                assert (await again.until("utterance"))["text"] == said([2])
        async with listener(server, "choir-7", headers={"Last-Event-ID": "another-3"}) as other:
            assert (await other.until("utterance"))["text"] == said([1])


async def test_a_speaker_that_comes_back_goes_on_in_its_room(server: Running) -> None:
    """Nothing is doubled, and the numbers of utterances stay unique."""
    async with speaker(server, {"name": "choir-7"}, resumes=True) as (socket, started):
        room = started["room"]
        async with listener(server, "choir-7") as reader:
            ended = await say(socket, [1])
            await reader.until("utterance")
            await socket.send(pcm(speech([2, 3, 4])))
            await until(socket, "interim")
            await reader.until("interim")
            socket.transport.abort()
            resume = {"from_s": ended["resume_from_s"]}
            again = {"name": room["name"], "token": room["token"]}
            async with speaker(server, again, resume=resume, resumes=True) as (other, restarted):
                assert restarted["room"] == room
                await say(other, [2, 3, 4])
                await reader.until("utterance")
                await other.send('{"type":"stop"}')
                await reader.rest()
            assert reader.reader.text(0) == said([1]) + said([2, 3, 4])
            assert reader.reader.retracted == {1}
            assert reader.reader.ended == {0: said([1]), 2: said([2, 3, 4])}


async def test_a_room_that_had_ended_introduces_itself_once_to_latecomers(server: Running) -> None:
    """With the newest title, before all text."""
    again: dict[str, Any] = {"name": "choir-7", "title": "Saturday"}
    for title in ("Sunday", "Monday"):
        async with speaker(server, again) as (socket, started), listener(server, "choir-7") as reader:
            await say(socket, [1])
            await socket.send('{"type":"stop"}')
            await reader.rest()
        again = {"name": "choir-7", "token": started["room"]["token"], "title": title}
    async with speaker(server, again) as (socket, _):
        await say(socket, [2])
        async with listener(server, "choir-7") as late:
            assert (await late.until("room"))["title"] == "Monday"
            while late.reader.text(0) != said([1]) + said([1]) + said([2]):
                await late.until("segment")
            assert late.reader.types.count("room") == 1


class SlowStream(EventStream):
    """A stream that a room's speaker returns to while its reader receives the end of the room."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self.types: list[str] = []

    async def send(self, data: bytes) -> None:
        self.types += [json.loads(each["data"])["type"] for each in parse_events(data.decode()) if "data" in each]
        if self.types == ["room", "ended"]:
            self.followed.room.fold(Begun(stream="b", at=110.0))
        elif self.types == ["room", "ended", "room"]:
            self.followed.room.fold(Ended(stream="b", at=120.0))

    async def end(self) -> None:
        pass


async def test_a_reader_that_has_just_received_the_end_is_introduced_again(server: Running) -> None:
    followed = Followed(room=Room("abc", "choir", 1000))
    for entry in (Begun(stream="a", at=100.0), Ended(stream="a", at=105.0)):
        followed.room.fold(entry)
    stream = SlowStream(followed)
    await _send_events(server.service, followed, "", stream)
    assert stream.types == ["room", "ended", "room", "ended"]


async def test_a_room_belongs_to_its_owner(server: Running) -> None:
    async with speaker(server, {"name": "choir-7"}) as (socket, started):
        await say(socket, [1])
        for room in ({"name": "choir-7"}, {"name": "choir-7", "token": "x" * 32}):
            async with speaker(server, room) as (refused, answer):
                assert (answer["code"], answer["fatal"]) == ("room_taken", True)
                await refused.wait_closed()
                assert refused.close_code == 1008
        async with listener(server, "choir-7") as reader:
            await reader.until("utterance")
            async with speaker(server, started["room"] | {"path": "ignored"}) as (again, answer):
                assert answer["warnings"][0]["code"] == "unknown_key"
                await say(again, [2])
                await reader.until("utterance")
            assert reader.reader.text(0) == said([1]) + said([2])


async def test_a_client_that_has_chosen_its_token_has_its_room_without_started(server: Running) -> None:
    """The connection was lost before."""
    room = {"name": "choir-7", "token": "chosen-by-the-client"}
    async with speaker(server, room):
        pass
    async with speaker(server, {"name": "choir-7"}) as (_, answer):
        assert answer["code"] == "room_taken"
    async with speaker(server, room) as (_, started):
        assert started["room"] == room | {"path": "/captions/choir-7"}


async def test_the_name_of_a_room_is_free_again_after_a_start_that_was_refused(server: Running) -> None:
    """The client has no token of it, and tries again at once."""
    async with speaker(server, {"name": "choir-7"}, language="tlh") as (refused, answer):
        assert answer["code"] == "bad_start"
        await refused.wait_closed()
    async with speaker(server, {"name": "choir-7"}) as (_, started):
        room = started["room"]
    async with speaker(server, room, language="tlh") as (refused, _):
        await refused.wait_closed()
    async with speaker(server, {"name": "choir-7"}) as (_, answer):
        assert answer["code"] == "room_taken"


async def test_a_speaker_learns_that_another_session_speaks_in_its_room(server: Running) -> None:
    """Its own session goes on, and readers do not receive it any more."""
    async with speaker(server, {"name": "choir-7"}) as (old, started), listener(server, "choir-7") as reader:
        await say(old, [1])
        await reader.until("utterance")
        async with speaker(server, {"name": "choir-7", "token": started["room"]["token"]}) as (new, _):
            await say(new, [2])
            await reader.until("utterance")
            await old.send(pcm(speech([3])))
            assert (await until(old, "warning"))["code"] == "room_taken_over"
            assert (await say(old, [4]))["text"].endswith(said([4]).strip())
            await say(new, [5])
            await reader.until("utterance")
    assert reader.reader.text(0) == said([1]) + said([2]) + said([5])


async def test_a_room_ends_when_its_speaker_stays_away(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stable stays, as a last segment."""
    monkeypatch.setattr("tutti_server.app.publish.room_follower.RENEW_S", 0.01)
    monkeypatch.setattr("tutti_server.app.sharing.local_store.READ_S", 0.02)
    server = await serve(room_gone_s=1.0)
    async with speaker(server, {"name": "choir-7"}, resumes=True) as (socket, _), listener(server, "choir-7") as reader:
        await socket.send(pcm(speech([1, 2, 3])))
        while not (await reader.until("interim"))["stable"]:
            await socket.send(pcm(speech([4])))
        socket.transport.abort()
        await reader.until("ended")
        assert reader.reader.ended == {0: reader.reader.text(0)}
        assert reader.reader.text(0).startswith("w1")


async def test_players_get_subtitles(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, and in segments; pages of other origins may fetch them."""
    monkeypatch.setattr("tutti_server.app.publish.room_speaker.SEGMENT_S", 0.01)
    monkeypatch.setattr("tutti_server.app.publish.hls_lines.SEGMENT_S", 1)
    monkeypatch.setattr("tutti_server.app.dialects.rooms.hls_wire.SEGMENT_S", 1)
    server = await serve(api_keys="k", allowed_origins="https://own.example")
    headers = {"Authorization": "Bearer k"}
    async with speaker(server, {"name": "choir-7"}, headers) as (socket, _):
        assert (await eventually(server, "/captions/choir-7.m3u8", 503)).headers["retry-after"] == "6"
        await say(socket, [1, 2])
        await socket.send('{"type":"stop"}')
        await socket.wait_closed()
    while "#EXT-X-ENDLIST" not in (listed := await eventually(server, "/captions/choir-7.m3u8?mpegts=9", 200)).text:
        pass
    assert listed.headers["access-control-allow-origin"] == "*"
    addresses = re.findall(r"^choir-7/\d+\.vtt\?mpegts=9$", listed.text, re.MULTILINE)
    segments = [
        await server.get(f"/captions/{each}", headers={"Origin": "https://other.example"}) for each in addresses
    ]
    assert said([1, 2]) in "".join(each.text for each in segments)
    assert all(each.text.startswith("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:9,LOCAL:00:00:00.000\n\n") for each in segments)
    whole = await server.get("/captions/choir-7.vtt")
    assert (whole.text.count(said([1, 2])), whole.headers["content-type"]) == (1, "text/vtt; charset=utf-8")
    assert (await server.get("/captions/choir-7.vtt?language=&mpegts=")).text == whole.text
    assert (await server.get("/captions/choir-7.vtt?language=de")).text == "WEBVTT\n\n"
    for path, status in (
        ("/captions/choir-7/900.vtt", 404),
        ("/captions/choir-7.vtt?language=/", 400),
        ("/captions/choir-7.vtt?language=klingon", 400),
        ("/captions/choir-7.m3u8?mpegts=-1", 400),
    ):
        assert (await server.get(path)).status_code == status


async def test_players_name_the_language_of_a_translation_in_any_usual_spelling(serve: Serve) -> None:
    server = await serve(FakeTranscriber(info=replace(MODEL, tasks=("transcribe", "translate"))))
    async with (
        speaker(server, {"name": "choir-7"}, language="de", translate=["en"]) as (socket, _),
        listener(server, "choir-7") as reader,
    ):
        await say(socket, [1])
        text = (await reader.until("translation"))["text"].strip()
        for language in ("en", "EN", "en-US", "english"):
            assert text in (await server.get(f"/captions/choir-7.vtt?language={language}")).text, language


async def test_an_unknown_room_is_not_found(server: Running) -> None:
    """People get the page of a room, which waits for the speaker."""
    for path in ("", "/events", ".vtt", ".m3u8", "/0.vtt"):
        response = await server.get(f"/captions/choir-7{path}", headers={"Origin": "https://other.example"})
        assert response.status_code == 404
        assert ("<tutti-captions" in response.text) == (not path)
    assert (await server.get("/captions/choir-7/events")).json()["error"]["code"] == "unknown_room"
    async with speaker(server, {"name": "choir-7"}):
        assert "room" in (await server.get("/captions/choir-7")).text


async def test_rooms_need_the_right(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[a]\nkey = "a"\n[b]\nkey = "b"\nrooms = false\n')
    server = await serve(keys_file=str(path))
    for key, kind in (("a", "started"), ("b", "error")):
        async with speaker(server, headers={"Authorization": f"Bearer {key}"}) as (_, answer):
            assert answer["type"] == kind
            assert answer.get("code", "room_not_allowed") == "room_not_allowed"
    for key, rooms, expected in (("a", True, "started"), ("a", False, "error"), ("b", True, None)):
        headers = {"Authorization": f"Bearer {key}"}
        made = await server.post("/v1/realtime/client_secrets", json={"rooms": rooms}, headers=headers)
        if expected is None:
            assert (made.status_code, made.json()["error"]["param"]) == (400, "rooms")
            continue
        async with speaker(server, headers={"Authorization": f"Bearer {made.json()['value']}"}) as (_, answer):
            assert answer["type"] == expected


@pytest.mark.parametrize("values", [{"max_room_readers": 0}, {"shared": SharedState(n_gateways=2)}])
async def test_a_server_may_have_no_rooms(serve: Serve, values: dict[str, Any]) -> None:
    server = await serve(**values)
    assert (await server.get("/page/model")).json()["rooms"] is False
    async with speaker(server) as (_, answer):
        assert (answer["code"], answer["fatal"]) == ("no_rooms", True)
    assert (await server.get("/captions/choir-7/events")).status_code == (501 if "shared" in values else 404)


async def test_the_number_of_readers_is_limited(serve: Serve) -> None:
    server = await serve(max_room_readers=1)
    async with speaker(server, {"name": "choir-7"}), listener(server, "choir-7") as reader:
        await reader.until("room")
        response = await server.get("/captions/choir-7/events")
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    await eventually(server, "/captions/choir-7.vtt", 200)
    assert server.metric("tutti_room_refused_total", reason="readers") == 1
    assert server.metric("tutti_rooms") == server.metric("tutti_room_readers") == 0


async def test_readers_behind_a_proxy_are_told_apart(serve: Serve) -> None:
    """By the address that it forwards; blanks in the list of proxies mean nothing."""
    server = await serve(max_room_readers=4, trusted_proxies="10.0.0.1, 127.0.0.1")
    host, port = server.address.split(":")
    async with speaker(server, {"name": "choir-7"}), AsyncExitStack() as stack:
        statuses = []
        for address in ("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            head = f"GET /captions/choir-7/events HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {address}\r\n\r\n"
            writer.write(head.encode())
            statuses.append((await reader.readline()).split()[1])
        assert statuses == [b"200", b"200", b"503", b"200"]


async def test_readers_of_a_stopping_server_get_the_last_text_and_come_back(server: Running) -> None:
    async with speaker(server, {"name": "choir-7"}) as (socket, _), listener(server, "choir-7") as reader:
        await socket.send(pcm(speech([1, 2])))
        await reader.until("interim")
        server.server.stop()
        await reader.rest()
        assert reader.reader.text(0) == said([1, 2])
        assert "ended" not in reader.reader.types


async def test_a_reader_that_does_not_read_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.dialects.rooms.endpoint.PING_EVERY_S", 0.001)
    monkeypatch.setattr("tutti_server.app.dialects.rooms.endpoint.PING", b": still at it" * 10_000 + b"\n\n")
    server = await serve(send_timeout_s=0.05)
    host, port = server.address.split(":")
    async with speaker(server, {"name": "choir-7"}):
        with sockets.create_connection((host, int(port))) as client:
            client.sendall(b"GET /captions/choir-7/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await metric_becomes(server, 1, "tutti_room_refused_total", reason="slow")
        await metric_becomes(server, 0, "tutti_room_readers")
