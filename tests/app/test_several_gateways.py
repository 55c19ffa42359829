"""Two servers with one Redis, as clients see them: calls, keys and secrets; and Redis killed and started again."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.app.conftest import Running, Serve, receive_all, refusal
from tests.app.dialects.twilio.test_endpoint import call, messages, slowly, subscriber, texts
from tests.app.publish.serving_rooms import listener as reader
from tests.app.publish.serving_rooms import speaker
from tests.fakes import FakeTranscriber, pcm, said, speech
from tests.redis_server import RedisServer
from tutti_server.app.service.client_secrets import sign
from tutti_server.app.service.shared_state import N_COUNTS, AdmissionCounter, SharedState

KEY = {"Authorization": "Bearer k"}
KEYS_FILE = """
[team]
key = "k"
sessions = 1

[metered]
key = "m"
minutes_per_day = 0.01
"""


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    path = tmp_path / "keys.toml"
    path.write_text(KEYS_FILE)
    return str(path)


async def post(server: Running, path: str, body: dict[str, Any], key: str = "k") -> httpx.Response:
    return await server.post(path, headers={"Authorization": f"Bearer {key}"}, json=body)


async def refused(address: str, headers: dict[str, str]) -> tuple[int, str | None, str]:
    """The status, `retry-after` and the text with which a WebSocket is refused."""
    response = await refusal(address, additional_headers=headers)
    return response.status_code, response.headers.get("retry-after"), (response.body or b"").decode()


async def started(socket: ClientConnection) -> None:
    await socket.send('{"type": "start", "audio": {"encoding": "pcm_f32le"}}')
    assert json.loads(await socket.recv())["type"] == "started"


async def finished(socket: ClientConnection) -> str:
    """All final text of a session that is stopped now."""
    await socket.send('{"type": "stop"}')
    return " ".join(each["text"] for each in await receive_all(socket) if each["type"] == "utterance")


async def test_a_stream_at_another_gateway_takes_a_call_over(serve: Serve, redis: RedisServer) -> None:
    """The older one ends with what it has received."""
    one, other = [await serve(redis_url=redis.url) for _ in range(2)]
    async with subscriber(other.address) as listener, call(one.address, tracks=["inbound"]) as first:
        await first.send(messages(slowly([1]))[0])
        assert json.loads(await listener.recv())["type"] == "call_started"
        async with call(other.address, streamSid="MZ2") as second:
            assert await receive_all(first) == []
            assert first.close_reason == "call_is_on"
            await second.send('{"event":"stop"}')
            await receive_all(second)
        heard = [(each["type"], each["stream_sid"]) for each in await receive_all(listener) if "stream_sid" in each]
    assert heard == [("call_ended", "MZ1"), ("call_started", "MZ2"), ("call_ended", "MZ2")]


async def test_a_stop_of_all_gateways_delivers_the_last_texts_at_each(
    serve: Serve, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway of a subscriber and of a reader has no session of its own, and waits for the others all the same."""

    def let_leave(seconds: float) -> None:
        for name in ("call_subscribers", "room_hub"):
            monkeypatch.setattr(f"tutti_server.app.publish.{name}.LEAVE_S", seconds)

    let_leave(0.3)
    counts = np.zeros((2, N_COUNTS), np.int64)
    shares = [SharedState(n_gateways=2, counter=AdmissionCounter(counts, number)) for number in range(2)]
    transcriber = FakeTranscriber(holds=True)
    one = await serve(transcriber, redis_url=redis.url, shared=shares[0])
    other = await serve(redis_url=redis.url, shared=shares[1])
    async with (
        subscriber(other.address) as listener,
        call(one.address, tracks=["inbound"]) as socket,
        speaker(one, {"name": "stopping"}) as (speaking, _),
        reader(other, "stopping") as reading,
    ):
        assert json.loads(await listener.recv())["type"] == "call_started"
        of_call, of_room = slowly([1, 2]), speech([3, 4])
        for message in messages(of_call):
            await socket.send(message)
        await speaking.send(pcm(of_room))
        sent_s = len(of_call) / 8000 + len(of_room) / 16_000
        while one.metric("tutti_audio_seconds_total") < sent_s - 0.001:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for server in (other, one):
            server.server.stop()
            while not server.service.admission.is_draining:  # noqa: ASYNC110
                await asyncio.sleep(0)
        # Longer than the gateway of the listeners would wait if it knew of no session elsewhere.
        await asyncio.sleep(0.7)
        let_leave(10.0)
        transcriber.release()
        assert texts(heard := await receive_all(listener), 0) == [said([1, 2])]
        assert heard[-1]["type"] == "call_ended"
        await reading.rest()
        assert reading.reader.text(0) == said([3, 4])


async def test_limits_of_a_key_hold_over_all_gateways(serve: Serve, redis: RedisServer, keys_file: str) -> None:
    """With the answer of each protocol, and when to try again."""
    one, other = [await serve(redis_url=redis.url, keys_file=keys_file) for _ in range(2)]
    async with connect(one.stream, additional_headers=KEY) as socket:
        await started(socket)
        for path in ("v1/stream", "v1/realtime?intent=transcription", "v1/listen", "v1/twilio/k"):
            status, retry_after, body = await refused(f"ws://{other.address}/{path}", KEY)
            assert (status, retry_after) == (429, "5")
            assert "the key team has 1 of 1 sessions open" in body
        async with connect(f"ws://{other.address}/", additional_headers=KEY) as waiting:
            await waiting.send('{"uid": "u"}')
            assert json.loads(await waiting.recv())["status"] == "WAIT"
        async with call(other.address, customParameters={"token": "k"}) as second:
            assert await receive_all(second) == []
            assert (second.close_code, second.close_reason) == (1013, "session_limit")
        secret = (await post(other, "/v1/realtime/client_secrets", {})).json()["value"]
        assert (await refused(other.stream, {"Authorization": f"Bearer {secret}"}))[0] == 429
    assert other.metric("tutti_refused_total", reason="key_limit") == 7


async def test_minutes_of_a_key_hold_over_all_gateways(serve: Serve, redis: RedisServer, keys_file: str) -> None:
    key = {"Authorization": "Bearer m"}
    one, other = [await serve(redis_url=redis.url, keys_file=keys_file) for _ in range(2)]
    async with connect(one.stream, additional_headers=key) as socket:
        await started(socket)
        await socket.send(pcm(speech(range(1, 6))))
        assert await finished(socket) == said(range(1, 6))
    one.server.stop()
    await one.task
    status, retry_after, body = await refused(other.stream, key)
    assert status == 429 and retry_after and int(retry_after) > 1
    assert "quota_exceeded" in body
    for path in ("/v1/listen", "/v1/audio/transcriptions"):
        assert (await other.post(path, headers=key)).status_code == 429


async def test_a_withdrawn_secret_is_refused_at_all_gateways(serve: Serve, redis: RedisServer) -> None:
    """A session that it has opened goes on."""
    one, other = [await serve(redis_url=redis.url, api_keys="k,k2") for _ in range(2)]
    secret = (await post(one, "/v1/realtime/client_secrets", {})).json()
    headers = {"Authorization": f"Bearer {secret['value']}"}
    async with connect(other.stream, additional_headers=headers) as socket:
        await started(socket)
        assert (await post(one, "/v1/realtime/client_secrets/withdraw", secret, "k2")).status_code == 404
        answer = await post(one, "/v1/realtime/client_secrets/withdraw", secret)
        assert (answer.status_code, answer.json()) == (200, {"withdrawn": True, "expires_at": secret["expires_at"]})
        for server in (one, other):
            for path in ("v1/stream", "v1/realtime?intent=transcription", "v1/listen"):
                assert (await refused(f"ws://{server.address}/{path}", headers))[0] == 401
        await socket.send(pcm(speech([1, 2])))
        assert await finished(socket) == said([1, 2])


async def test_withdrawals_say_what_is_wrong(serve: Serve) -> None:
    server = await serve(api_keys="k", shared=SharedState(n_gateways=1))
    path = "/v1/realtime/client_secrets/withdraw"
    expired = sign("k", int(time.time()) - 1, {}).value
    for body, key, status in (
        ({"value": "x"}, "x", 401),
        ({}, "k", 400),
        ({"value": "x"}, "k", 404),
        ({"value": expired}, "k", 404),
    ):
        assert (await post(server, path, body, key)).status_code == status
    several = await serve(api_keys="k", shared=SharedState(n_gateways=2))
    answer = await post(several, path, {"value": sign("k", int(time.time()) + 60, {}).value})
    assert answer.status_code == 501 and "TUTTI_REDIS_URL" in answer.text


async def test_sessions_go_on_without_redis(serve: Serve, redis: RedisServer, keys_file: str) -> None:
    """Also new ones begin. What needs Redis says so, and works when it is back."""
    one, other = [await serve(redis_url=redis.url, keys_file=keys_file, api_keys="free") for _ in range(2)]
    withdrawal = ("/v1/realtime/client_secrets/withdraw", {"value": sign("free", int(time.time()) + 60, {}).value})
    async with (
        connect(one.stream, additional_headers=KEY) as first,
        connect(other.stream, additional_headers={"Authorization": "Bearer free"}) as second,
        subscriber(other.address, additional_headers={"Authorization": "Bearer free"}) as listener,
        call(one.address, "/free", tracks=["inbound"]) as socket,
    ):
        await started(first)
        await started(second)
        assert json.loads(await listener.recv())["type"] == "call_started"
        redis.kill()
        await first.send(pcm(speech([1, 2])))
        await second.send(pcm(speech([3])))
        for message in messages(slowly([4, 5])):
            await socket.send(message)
        async with connect(other.stream, additional_headers=KEY) as new:
            await started(new)
            await new.send(pcm(speech([6])))
            assert await finished(new) == said([6])
        status, retry_after, body = await refused(f"ws://{other.address}/v1/calls/CA2", KEY)
        assert (status, retry_after) == (503, "5") and "Redis cannot be reached" in body
        answer = await post(other, *withdrawal, "free")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        ready = await other.get("/readyz")
        assert ready.status_code == 200 and "without Redis" in ready.text
        assert other.metric("tutti_redis_away") == 1 and other.metric("tutti_redis_losses_total") == 1
        redis.start()
        await other.service.store.wait_until_up()
        assert (await post(other, *withdrawal, "free")).status_code == 200
        await socket.send('{"event":"stop"}')
        assert await finished(first) == said([1, 2])
        assert await finished(second) == said([3])
        heard = await receive_all(listener)
    assert texts(heard, 0) == [said([4, 5])]
    assert heard[-1]["type"] == "call_ended"
    assert "delivery_paused" in [each.get("code") for each in heard]
    assert other.metric("tutti_redis_away") == 0


async def test_a_server_starts_without_redis(serve: Serve) -> None:
    """It may come later."""
    server = await serve(redis_url="unix:///nowhere/redis.sock")
    async with connect(server.stream) as socket:
        await started(socket)
    assert server.metric("tutti_redis_away") == 1
