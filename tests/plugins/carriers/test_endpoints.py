"""Calls of telephone systems on a real server: Asterisk by WebSocket and AudioSocket, AudioHook and FreeSWITCH."""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from benchmarks.server import free_port
from tests.app.conftest import Running, Serve, receive_all, refusal, until
from tests.app.dialects.twilio.test_endpoint import slowly, subscriber, texts
from tests.fakes import FakeTranscriber, said, silence, speech
from tests.redis_server import redis_server
from tutti_server.app.cli import processes
from tutti_server.app.errors import SettingsError
from tutti_server.app.live.timed_socket import TimedSocket
from tutti_server.app.server.plugins import make_settings
from tutti_server.app.service.shared_state import SharedState
from tutti_server.plugins.carriers.audiohook.timeline import read_duration
from tutti_server.plugins.carriers.audiosocket.wire import DTMF, HANGUP, ID, packet
from tutti_server.plugins.carriers.settings import CarrierSettings

START = {
    "event": "MEDIA_START",
    "connection_id": "c1",
    "channel_id": "CA1",
    "format": "ulaw",
    "optimal_frame_size": 160,
}
CALL = uuid.UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
KEY = {"Authorization": "Bearer k"}
SECRET = b"a secret of the integration"
HANGUP_PACKET = b"\x00\x00\x00"
"""AudioSocket's packet that ends a call: its kind 0, and a length of 0 in two bytes."""


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"any:{password}".encode()).decode()}


def linear(words: list[int]) -> bytes:
    """Speech at 16 kHz."""
    return bytes((np.concatenate((speech(words), silence(0.5))) * 32768).round().astype("<i2").tobytes())


async def send_all(socket: ClientConnection, audio: bytes, n_bytes: int) -> None:
    for at in range(0, len(audio), n_bytes):
        await socket.send(audio[at : at + n_bytes])


async def test_a_port_in_use_is_reported_before_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was reported after the model was loaded, below a traceback."""
    monkeypatch.setattr(processes, "start_engine", lambda *_: pytest.fail("the engine starts"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: "):
            await processes.serve(make_settings({"port": 0, "audiosocket_port": port}))


async def test_a_channel_of_asterisk_is_transcribed(serve: Serve) -> None:
    """It ends when Asterisk closes the socket. Its key is in the path, or in a header of either kind."""
    server = await serve(api_keys="k")
    for headers in (basic("k"), KEY):
        async with connect(f"ws://{server.address}/v1/asterisk", additional_headers=headers):
            pass
    async with subscriber(server.address, additional_headers=KEY) as listener:
        url = f"ws://{server.address}/v1/asterisk/k?agent=Ann"
        async with connect(url, subprotocols=["media"], compression=None) as channel:  # type: ignore[list-item]
            assert channel.subprotocol == "media"
            await channel.send(json.dumps(START))
            await send_all(channel, slowly([1, 2]), 160)
        heard = await receive_all(listener)
    assert heard[0] | {"type": "call_started"} == {
        "type": "call_started",
        "call_sid": "CA1",
        "stream_sid": "c1",
        "tracks": ["inbound"],
        "parameters": {"agent": "Ann"},
    }
    assert texts(heard, 0) == [said([1, 2])]
    assert [each["type"] for each in heard[-2:]] == ["stopped", "call_ended"]


async def test_telnyx_may_send_the_key_as_its_token(serve: Serve) -> None:
    """So it stands in no address, which proxies write to their logs."""
    server = await serve(api_keys="k")
    url = f"ws://{server.address}/v1/telnyx"
    start = {"call_control_id": "CA1", "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}}
    async with (
        subscriber(server.address, additional_headers=KEY) as listener,
        connect(url, additional_headers={"x-telnyx-streaming-auth-token": "k"}) as stream,
    ):
        await stream.send(json.dumps({"event": "start", "stream_id": "s1", "start": start}))
        await stream.send(json.dumps({"event": "stop", "stop": {}}))
        heard = await receive_all(listener)
    assert [each["type"] for each in (heard[0], heard[-1])] == ["call_started", "call_ended"]
    await refusal(url, additional_headers={"x-telnyx-streaming-auth-token": "other"})


async def test_without_a_key_there_is_no_call(serve: Serve) -> None:
    server = await serve(api_keys="k")
    paths = [f"{name}{key}" for name in ("asterisk", "freeswitch", "jambonz", "plivo", "vonage") for key in ("", "/x")]
    for path in (*paths, "audiohook"):
        headers = basic("x") if path.endswith("/x") else {"Authorization": "Basic no-base64-é"}
        response = await refusal(f"ws://{server.address}/v1/{path}", additional_headers=headers)
        assert response.status_code == 401, path
    assert server.metric("tutti_refused_total", reason="unauthorized") == len(paths) + 1


async def test_both_sides_of_a_stream_of_freeswitch_are_transcribed(serve: Serve) -> None:
    """The module receives the same events as a subscriber; `mod_audio_fork` receives them in its own envelope."""
    server = await serve()
    sides = [np.frombuffer(linear(words), "<i2") for words in ([1, 2], [3, 4])]
    audio = np.stack(sides, axis=1).tobytes()
    url = f"ws://{server.address}/v1/freeswitch?mix=stereo&rate=16k"
    for subprotocols in (None, ["audio.drachtio.org"]):
        async with subscriber(server.address) as listener:
            async with connect(url, subprotocols=subprotocols, compression=None) as stream:  # type: ignore[arg-type]
                await stream.send('{"call":"CA1","queue":"sales"}')
                await send_all(stream, audio, 640)
                answers: list[dict[str, Any]] = []
                while len(texts(answers, 0) + texts(answers, 1)) < 2:
                    answer = json.loads(await stream.recv())
                    answers.append(answer if subprotocols is None else answer["data"])
            heard = await receive_all(listener)
        assert (texts(heard, 0), texts(heard, 1)) == ([said([1, 2])], [said([3, 4])])
        assert (texts(answers, 0), texts(answers, 1)) == ([said([1, 2])], [said([3, 4])])
        assert heard[0]["parameters"] == {"queue": "sales"}


@pytest.mark.parametrize("leaves", [True, False])
async def test_what_freeswitch_said_before_it_received_no_more_becomes_final(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """It is gone when the engine answers, or reads no more, and is cut off. Subscribers receive the rest."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)

    async def not_read(socket: TimedSocket, message: str) -> None:
        raise TimeoutError

    async with subscriber(server.address) as listener:
        async with connect(f"ws://{server.address}/v1/freeswitch?rate=16k&call=CA1", compression=None) as stream:
            audio = linear([1, 2, 3])[:-16_000]
            await send_all(stream, audio, 640)
            await transcriber.opened.wait()
            if not leaves:
                while server.metric("tutti_audio_seconds_total") < len(audio) / 32_000 - 0.001:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                monkeypatch.setattr(TimedSocket, "send", not_read)
                transcriber.release()
                await stream.wait_closed()
        transcriber.release()
        heard = await receive_all(listener)
    assert texts(heard, 0) == [said([1, 2, 3])]
    assert [each["type"] for each in heard[-2:]] == ["stopped", "call_ended"]


def hook_headers(server: Running, target: str, secret: bytes, session: str) -> dict[str, str]:
    """The headers of a connection of Genesys, signed."""
    headers = {
        "audiohook-organization-id": "d7934305-0972-4844-938e-9060eef73d05",
        "audiohook-correlation-id": "e160e428-53e2-487c-977d-96989bf5c99d",
        "audiohook-session-id": session,
        "x-api-key": "k",
    }
    covered = " ".join(f'"{name}"' for name in ("@request-target", "@authority", *headers))
    now = int(time.time())
    nonce = secrets.token_urlsafe(16)
    params = f'({covered});keyid="k";nonce="{nonce}";alg="hmac-sha256";created={now};expires={now + 10}'
    lines = [f'"@request-target": {target}', f'"@authority": {server.address}']
    lines += [*(f'"{name}": {value}' for name, value in headers.items()), f'"@signature-params": {params}']
    digest = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest()
    return {**headers, "signature": f"sig1=:{base64.b64encode(digest).decode()}:", "signature-input": f"sig1={params}"}


@asynccontextmanager
async def hook(server: Running, secret: bytes = SECRET) -> AsyncIterator[Any]:
    """A connection of Genesys; yields a function that sends a message."""
    session, target = str(uuid.uuid4()), "/v1/audiohook?silence_ms=400"
    headers = hook_headers(server, target, secret, session)
    async with connect(f"ws://{server.address}{target}", additional_headers=headers, compression=None) as socket:
        seq = 0

        async def send(kind: str, **parameters: Any) -> ClientConnection:
            nonlocal seq
            seq += 1
            frame = {"version": "2", "id": session, "type": kind, "seq": seq, "serverseq": 0, "position": "PT0S"}
            await socket.send(json.dumps({**frame, "parameters": parameters}))
            return socket

        yield send


def opening(conversation: str) -> dict[str, Any]:
    media = {"type": "audio", "format": "PCMU", "channels": ["external", "internal"], "rate": 8000}
    organization = "d7934305-0972-4844-938e-9060eef73d05"
    return {"organizationId": organization, "conversationId": conversation, "media": [media], "language": "en-US"}


async def test_a_conversation_of_genesys_receives_transcripts_of_both_sides(serve: Serve) -> None:
    """`closed` comes after the last transcript, so Genesys does not close before all text is there."""
    server = await serve(api_keys="k", audiohook_secret=base64.b64encode(SECRET).decode())
    async with subscriber(server.address, additional_headers=KEY) as listener, hook(server) as send:
        socket = await send("open", **opening("CA1"))
        assert json.loads(await socket.recv())["type"] == "opened"
        sides = [np.frombuffer(slowly(words), np.uint8) for words in ([1, 2], [3, 4])]
        await send_all(socket, np.stack(sides, axis=1).tobytes(), 1600)
        await send("ping")
        await send("close", reason="end")
        messages = await receive_all(socket)
        assert socket.close_code == 1000
        heard = await receive_all(listener)
    entities = [each["parameters"]["entities"][0]["data"] for each in messages if each["type"] == "event"]
    found = {each["channel"]: each["alternatives"][0]["interpretations"][0]["transcript"] for each in entities}
    assert found == {"external": said([1, 2]), "internal": said([3, 4])}
    assert messages[-1]["type"] == "closed"
    assert [each["seq"] for each in messages] == list(range(2, len(messages) + 2))
    assert heard[0]["tracks"] == ["external", "internal"]


async def test_text_before_a_pause_of_genesys_ends_before_it(serve: Serve) -> None:
    """The audio ends within speech, and the pause is over before its text is there."""
    server = await serve(api_keys="k", audiohook_secret=base64.b64encode(SECRET).decode())
    async with hook(server) as send:
        socket = await send("open", **opening("CA1"))
        await socket.send(np.repeat(np.frombuffer(slowly([1, 2])[:6000], np.uint8), 2).tobytes())
        await send("paused")
        await send("resumed", start="PT0.75S", discarded="PT60S")
        await send("close", reason="end")
        messages = await receive_all(socket)
    data = [each["parameters"]["entities"][0]["data"] for each in messages if each["type"] == "event"]
    assert len(data) == 2
    assert all(read_duration("duration", each["duration"]) <= 0.75 for each in data)


async def test_a_probe_of_genesys_is_answered_and_a_wrong_signature_is_not(serve: Serve) -> None:
    server = await serve(api_keys="k", audiohook_secret=base64.b64encode(SECRET).decode())
    async with hook(server) as send:
        await send("open", **opening("00000000-0000-0000-0000-000000000000"))
        socket = await send("close", reason="end")
        assert [each["type"] for each in await receive_all(socket)] == ["opened", "closed"]
    with pytest.raises(InvalidStatus) as refused:
        async with hook(server, b"another"):
            pass
    assert refused.value.response.status_code == 401
    assert server.metric("tutti_refused_total", reason="unauthorized") == 1


@pytest.mark.default
async def test_a_signature_of_genesys_opens_one_connection(serve: Serve) -> None:
    """Whoever has seen its headers on their way opens nothing with them, at no gateway that shares the store."""
    secret = base64.b64encode(SECRET).decode()
    with redis_server() as redis:
        servers = [await serve(api_keys="k", audiohook_secret=secret, redis_url=redis.url) for _ in range(2)]
        headers = hook_headers(servers[0], "/v1/audiohook", SECRET, str(uuid.uuid4()))
        async with connect(f"ws://{servers[0].address}/v1/audiohook", additional_headers=headers):
            pass
        for server in servers:
            replayed = {**headers, "host": servers[0].address}
            upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
            key = {"sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
            answer = await server.get("/v1/audiohook", headers={**replayed, **upgrade, **key})
            assert answer.status_code == 401
            assert "nonce" in answer.json()["error"]["message"]


async def test_a_draining_server_sends_its_text_and_disconnects(serve: Serve) -> None:
    server = await serve(api_keys="k", audiohook_secret=base64.b64encode(SECRET).decode())
    async with subscriber(server.address, additional_headers=KEY) as listener, hook(server) as send:
        socket = await send("open", **opening("CA1"))
        await send_all(socket, np.repeat(np.frombuffer(slowly([1, 2])[:-3000], np.uint8), 2).tobytes(), 1600)
        await until(listener, "interim")
        server.server.stop()
        messages = await receive_all(socket)
    assert messages[-1]["type"] == "disconnect"
    assert "event" in [each["type"] for each in messages]


@asynccontextmanager
async def audiosocket(server: Running) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    # The server answers as soon as it listens on both ports.
    await server.get("/healthz")
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.service.settings.of(CarrierSettings).audiosocket_port
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_an_announced_call_of_audiosocket_is_transcribed(serve: Serve) -> None:
    """Once, with the parameters of its announcement; when it ends, the connection ends with a hangup."""
    server = await serve(api_keys="k", audiosocket_port=free_port())
    async with httpx.AsyncClient(base_url=server.http, headers=KEY) as http:
        body = {"id": str(CALL), "parameters": {"agent": "Ann"}}
        answer = await http.post("/v1/audiosocket/calls", json=body)
        assert (answer.status_code, answer.json()["id"]) == (201, str(CALL))
        assert (await http.post("/v1/audiosocket/calls", json=body)).status_code == 409
        for parameters, message in (
            ({"language": "xx"}, "language: expected one of the model's languages (en"),
            ({"languages": "en,xx"}, "languages: expected one of the model's languages (en"),
            ({"model": "nobody/knows"}, "model: expected "),
        ):
            unknown = await http.post("/v1/audiosocket/calls", json={"parameters": parameters})
            assert unknown.status_code == 400 and unknown.json()["error"]["message"].startswith(message)
        bad = await http.post("/v1/audiosocket/calls", json={"parameters": {"words": "x"}})
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "words")
    async with (
        subscriber(server.address, str(CALL), additional_headers=KEY) as listener,
        audiosocket(server) as (reader, writer),
    ):
        writer.write(packet(ID, CALL.bytes) + packet(DTMF, b"5"))
        audio = linear([1, 2])
        for at in range(0, len(audio), 640):
            writer.write(packet(0x12, audio[at : at + 640]))
        writer.write(packet(HANGUP))
        assert await reader.read() == HANGUP_PACKET
        heard = await receive_all(listener)
    assert heard[0]["parameters"] == {"agent": "Ann"}
    assert heard[1] == {"type": "dtmf", "digit": "5", "track": "inbound"}
    assert texts(heard, 0) == [said([1, 2])]
    assert [each["type"] for each in heard[-2:]] == ["stopped", "call_ended"]
    async with audiosocket(server) as (reader, writer):
        writer.write(packet(ID, CALL.bytes))
        assert await reader.read() == HANGUP_PACKET, "an announcement is good for one call"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(packet(ID, CALL.bytes), ""), (b"GET / HTTP/1.1\r\n\r\n" + bytes(100_000), "malformed")],
)
async def test_a_call_that_was_not_announced_is_refused(serve: Serve, sent: bytes, reason: str) -> None:
    server = await serve(api_keys="k", audiosocket_port=free_port())
    async with audiosocket(server) as (reader, writer):
        writer.write(sent)
        with suppress(ConnectionResetError):
            assert await reader.read() in (HANGUP_PACKET, b"")
    assert server.metric("tutti_refused_total", reason="unauthorized") == (not reason)
    assert server.metric("tutti_strangers_refused_total", reason="malformed") == bool(reason)
    assert len(server.service.unauthenticated) == 0


async def test_a_call_of_an_allowed_network_that_just_disconnects_is_made_final(serve: Serve) -> None:
    networks = "10.0.0.0/8, 127.0.0.1"
    server = await serve(api_keys="k", audiosocket_port=free_port(), audiosocket_networks=networks)
    async with subscriber(server.address, str(CALL), additional_headers=KEY) as listener:
        async with audiosocket(server) as (_, writer):
            writer.write(packet(ID, CALL.bytes))
            writer.write(packet(0x12, linear([3])))
        assert texts(await receive_all(listener), 0) == [said([3])]


async def test_a_draining_server_makes_a_call_of_audiosocket_final(serve: Serve) -> None:
    server = await serve(audiosocket_port=free_port())
    async with subscriber(server.address, str(CALL)) as listener, audiosocket(server) as (reader, writer):
        writer.write(packet(ID, CALL.bytes) + packet(0x12, linear([1, 2])[:-8000]))
        await until(listener, "interim")
        server.server.stop()
        assert await reader.read() == HANGUP_PACKET
        assert texts(await receive_all(listener), 0)


async def test_a_silent_client_of_audiosocket_is_cut_off(serve: Serve) -> None:
    server = await serve(audiosocket_port=free_port(), head_timeout_s=0.2)
    async with audiosocket(server) as (reader, _):
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    assert server.metric("tutti_strangers_refused_total", reason="slow") == 1


async def test_a_full_server_hangs_up(serve: Serve) -> None:
    server = await serve(audiosocket_port=free_port(), max_sessions=1)
    async with connect(f"ws://{server.address}/v1/freeswitch") as first, audiosocket(server) as (reader, writer):
        await first.send(b"\0\0")
        await first.recv()
        writer.write(packet(ID, CALL.bytes))
        assert await reader.read() == HANGUP_PACKET


async def test_announcements_need_a_key_a_port_and_a_store_that_all_gateways_know(serve: Serve) -> None:
    for settings, shared, headers, status in (
        ({"audiosocket_port": free_port()}, None, {}, 401),
        ({}, None, KEY, 404),
        ({"audiosocket_port": free_port()}, SharedState(n_gateways=2), KEY, 501),
    ):
        server = await serve(shared=shared, api_keys="k", **settings)  # type: ignore[arg-type]
        assert (await server.post("/v1/audiosocket/calls", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"audiohook_secret": "not base64!"}, "audiohook_secret: expected base64"),
        ({"audiosocket_port": 70_000}, "audiosocket_port: expected 0 to 65535"),
        ({"audiosocket_port": 8000}, "another one than port"),
        ({"audiosocket_port": 9, "audiosocket_networks": "10.0.0.1/8"}, "audiosocket_networks: expected addresses"),
        ({"audiosocket_networks": "10.0.0.0/8"}, "audiosocket_networks: expected audiosocket_port"),
        ({"audiosocket_port": 9, "audiosocket_host": "0.0.0.0"}, "audiosocket_host: other machines can reach"),
    ],
)
def test_wrong_settings_stop_the_start(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        make_settings(values)


@pytest.mark.parametrize("keys", [{"api_keys": "k"}, {"database_keys": True}])
def test_calls_may_come_from_other_machines_where_they_are_announced_with_a_key(keys: dict[str, Any]) -> None:
    settings = make_settings({"audiosocket_port": 9, "audiosocket_host": "0.0.0.0", **keys})
    assert settings.of(CarrierSettings).host(settings) == "0.0.0.0"
