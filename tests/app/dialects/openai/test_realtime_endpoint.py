"""`/v1/realtime` over real sockets: who is let in, subprotocols, secrets for browsers, and limits."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.app.conftest import Running, Serve, receive, refusal
from tests.compat.conformance import approximated, supported
from tests.fakes import said, silence, speech
from tutti_server.app.dialects.body_endpoint import MAX_BODY_BYTES
from tutti_server.app.dialects.openai.realtime_endpoint import MIN_IDLE_TIMEOUT_S
from tutti_server.app.errors import CLOSE_TOO_BIG

DIALECT = "openai-realtime"
UPDATE = {
    "type": "session.update",
    "session": {"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}},
}


@asynccontextmanager
async def opened(server: Running, query: str = "", **options: Any) -> AsyncIterator[ClientConnection]:
    async with asyncio.timeout(10), connect(f"ws://{server.address}/v1/realtime{query}", **options) as socket:
        yield socket


async def refused(server: Running, query: str = "", **options: Any) -> httpx.Response:
    """The answer before the upgrade."""
    response = await refusal(f"ws://{server.address}/v1/realtime{query}", **options)
    headers = dict(response.headers.raw_items())
    return httpx.Response(response.status_code, headers=headers, content=bytes(response.body))


def append(numbers: list[int], silence_s: float) -> str:
    samples = np.concatenate((speech(numbers), silence(silence_s)))
    audio = base64.b64encode(np.round(samples * 32768).astype("<i2").tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


async def transcribed(socket: ClientConnection) -> str:
    """Send speech, and wait for its text."""
    await socket.send(json.dumps(UPDATE))
    await socket.send(append([1, 2, 3], 1.0))
    while (message := await receive(socket))["type"] != "conversation.item.input_audio_transcription.completed":
        assert message["type"] != "error", message
    return str(message["transcript"])


@supported(DIALECT, "?intent=transcription, ?model=, both or neither")
@supported(DIALECT, "OpenAI-Beta: realtime=v1 (older shape)")
async def test_every_way_to_say_what_is_wanted_is_understood(server: Running) -> None:
    """What of the URL has no effect is named."""
    for query in ("", "?intent=transcription", "?model=gpt-realtime", "?intent=transcription&model=m"):
        async with opened(server, query, additional_headers={"OpenAI-Organization": "o"}) as socket:
            assert (await receive(socket))["type"] == "session.created"
            assert await transcribed(socket) == said([1, 2, 3])
    async with opened(server, "?intent=&api-version=&model=") as socket:
        assert "warnings" not in await receive(socket)
    async with opened(server, "?intent=conversation&api-version=1&model=m") as socket:
        assert [warning["param"] for warning in (await receive(socket))["warnings"]] == [
            "model",
            "intent",
            "api-version",
        ]
    for names, is_older in (("realtime=v1", True), ("assistants=v2, realtime=v1", True), ("assistants=v2", False)):
        async with opened(server, additional_headers={"OpenAI-Beta": names}) as socket:
            assert ("input_audio_format" in (await receive(socket))["session"]) is is_older


@supported(DIALECT, "Authorization: Bearer; 401 before the upgrade")
async def test_a_key_is_needed_where_keys_are_set(serve: Serve) -> None:
    server = await serve(api_keys="k")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer ek_AAAA"}):
        response = await refused(server, additional_headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
    assert server.metric("tutti_refused_total", reason="unauthorized") == 3
    async with opened(server, additional_headers={"Authorization": "Bearer k"}) as socket:
        assert await transcribed(socket) == said([1, 2, 3])


@supported(DIALECT, "subprotocols realtime, openai-insecure-api-key.KEY")
async def test_browsers_offer_the_key_as_a_subprotocol(serve: Serve) -> None:
    """The server does not echo it, nor show it where it refuses another subprotocol."""
    server = await serve(api_keys="k")
    offered = ["realtime", "openai-insecure-api-key.k", "openai-beta.realtime-v1"]
    async with opened(server, subprotocols=offered) as socket:
        assert socket.subprotocol == "realtime"
        assert "input_audio_format" in (await receive(socket))["session"]
    response = await refused(server, subprotocols=["realtime", "openai-insecure-api-key.wrong"])
    assert response.status_code == 401
    response = await refused(server, subprotocols=["openai-insecure-api-key.k", "soap"])
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "subprotocol: expected realtime, got soap"


@approximated(DIALECT, "429 before the upgrade", how="503 with `Retry-After` when there is no room")
async def test_a_full_server_refuses_before_the_upgrade(serve: Serve) -> None:
    server = await serve(max_sessions=1)
    async with opened(server) as socket:
        await receive(socket)
        await socket.send('{"type": "input_audio_buffer.append", "audio": ""}')
        await socket.send('{"type": "input_audio_buffer.clear"}')
        await receive(socket)
        response = await refused(server)
    assert response.status_code == 503 and int(response.headers["retry-after"]) > 0
    assert response.json()["error"]["code"] == "overloaded"


async def test_a_large_append_is_accepted_and_a_larger_one_refused(serve: Serve) -> None:
    """Clients send up to the audio of half a minute at once."""
    server = await serve(max_message_kb=1024)
    async with opened(server) as socket:
        await socket.send(append([1, 2, 3], 30.0))
        with pytest.raises(ConnectionClosed) as caught:
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "A" * (4 << 20)}))
            while True:
                await receive(socket)
    assert caught.value.rcvd is not None and caught.value.rcvd.code == CLOSE_TOO_BIG

    # That no window is left open is asserted when the server ends.


async def test_idle_clients_may_stay_as_long_as_pools_keep_their_sockets(serve: Serve) -> None:
    """Ten minutes, whatever the limit for others."""
    server = await serve(idle_timeout_s=0.05)
    async with opened(server) as socket:
        await receive(socket)
        async with connect(server.stream) as other:
            await other.wait_closed()
        assert other.close_reason == "idle"
        assert await transcribed(socket) == said([1, 2, 3])
    assert MIN_IDLE_TIMEOUT_S > 600


# Secrets for browsers.


async def post(server: Running, path: str, body: Any = None, key: str = "k") -> httpx.Response:
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    return await server.post(f"/v1/realtime/{path}", headers={"Authorization": f"Bearer {key}"}, content=content)


SESSION = {"type": "transcription", "audio": {"input": {"transcription": {"language": "de"}, "turn_detection": None}}}


@supported(DIALECT, "POST /v1/realtime/client_secrets")
async def test_a_client_secret_opens_sessions_that_are_set_as_it_says(serve: Serve) -> None:
    """As key and as subprotocol, for this and for the native protocol. Else it only lists the models.

    Our JavaScript client asks for these, to see whether it was refused because of the secret.
    """
    server = await serve(api_keys="k,k2")
    # Values may be texts, as in the updates of a session.
    wanted = {"session": SESSION, "expires_after": {"seconds": "30"}, "rooms": "false"}
    response = await post(server, "client_secrets", wanted, "k2")
    body = response.json()
    assert body["value"].startswith("ek_") and 0 < body["expires_at"] - server.service.shared.started < 60
    assert body["session"]["audio"]["input"]["transcription"]["language"] == "de"
    assert body["session"]["type"] == "transcription" and body["session"]["object"]
    for options in (
        {"additional_headers": {"Authorization": f"Bearer {body['value']}"}},
        {"subprotocols": ["realtime", f"openai-insecure-api-key.{body['value']}"]},
    ):
        async with opened(server, **options) as socket:
            source = (await receive(socket))["session"]["audio"]["input"]
            assert source["transcription"]["language"] == "de" and source["turn_detection"] is None
    async with connect(
        server.stream, subprotocols=[Subprotocol("tutti.v1"), Subprotocol(f"tutti.key.{body['value']}")]
    ) as socket:
        await socket.send('{"type": "start"}')
        assert (await receive(socket))["type"] == "started"
    assert (await post(server, "client_secrets", {}, body["value"])).status_code == 401
    headers = {"Authorization": f"Bearer {body['value']}"}
    assert (await server.get("/v1/models/whisper-1", headers=headers)).status_code == 200
    secret = server.service.access.client_secret(body["value"])
    assert secret
    await server.service.access.withdrawals.withdraw(secret)
    assert (await server.get("/v1/models", headers=headers)).status_code == 401


@supported(DIALECT, "POST /v1/realtime/transcription_sessions (older shape)")
async def test_the_older_way_to_a_secret_works_too(serve: Serve) -> None:
    server = await serve(api_keys="k")
    session = {
        "input_audio_format": "g711_alaw",
        "client_secret": {"expires_at": {"anchor": "created_at", "seconds": 60}},
    }
    body = (await post(server, "transcription_sessions", session)).json()
    assert body["input_audio_format"] == "g711_alaw" and "audio" not in body
    value = body["client_secret"]["value"]
    async with opened(server, additional_headers={"Authorization": f"Bearer {value}"}) as socket:
        created = await receive(socket)
    assert created["session"]["audio"]["input"]["format"] == {"type": "audio/pcma"}


async def test_an_open_server_makes_secrets(server: Running) -> None:
    """So that a page made for OpenAI's works on a laptop, too."""
    value = (await post(server, "client_secrets")).json()["value"]
    async with opened(server, additional_headers={"Authorization": f"Bearer {value}"}) as socket:
        assert await transcribed(socket) == said([1, 2, 3])


LONG_PROMPT = "".join(map(str, range(2500)))
BAD_REQUESTS: list[tuple[Any, int, str | None]] = [
    (b"hello", 400, None),
    ([], 400, None),
    ({"session": 3}, 400, "session"),
    ({"session": {"audio": {"input": {"format": {"type": "mp3"}}}}}, 400, "session.audio.input.format.type"),
    ({"session": {"audio": {"input": {"transcription": {"prompt": LONG_PROMPT}}}}}, 400, "session"),
    ({"expires_after": {"seconds": 5}}, 400, "expires_after.seconds"),
    ({"expires_after": {"seconds": True}}, 400, "expires_after.seconds"),
    ({"rooms": "some"}, 400, "rooms"),
    ({"expires_after": {"anchor": "born_at"}}, 400, "expires_after"),
    (b"x" * (MAX_BODY_BYTES + 1), 413, None),
    (b'{"session": {"audio": {"input": {"transcription": {"prompt": "\\ud800"}}}}}', 400, None),
    (b'{"expires_after": NaN}', 400, None),
    (b'"\xff"', 400, None),
    (b"[" * 50_000, 400, None),
]
"""The body of a request for a secret, the status of the answer, and the field that it names."""


async def test_bad_requests_for_secrets_are_explained(server: Running) -> None:
    for body, status, param in BAD_REQUESTS:
        response = await post(server, "client_secrets", body)
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (status, param), str(body)[:60]
        assert "expected" in error["message"]
        assert param is None or "got" in error["message"]
