"""WhisperLive's clients at the root of the server: keys, a full server, and silent clients."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.app.conftest import Running, Serve, receive, refusal
from tests.compat.conformance import supported
from tests.fakes import pcm, said, silence, speech

OPTIONS = {"uid": "u1", "language": "en", "task": "transcribe", "model": "fake"}
TURN = pcm(np.concatenate((speech([1, 2, 3]), silence(0.7))))


@asynccontextmanager
async def client(address: str, path: str = "", **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{address}{path}", compression=None, **options) as socket:
        await socket.send(json.dumps(OPTIONS))
        yield socket


async def completed(socket: ClientConnection) -> list[str]:
    """The texts in the first message whose segments are all completed."""
    while True:
        segments = (await receive(socket)).get("segments", [])
        if segments and all(segment["completed"] for segment in segments):
            return [segment["text"] for segment in segments]


async def test_the_root_is_a_page_and_a_socket(server: Running) -> None:
    async with client(server.address) as socket:
        assert (await receive(socket))["message"] == "SERVER_READY"
        await socket.send(TURN)
        assert await completed(socket) == [f" {said([1, 2, 3])}"]
        await socket.send(b"END_OF_AUDIO")
        with pytest.raises(ConnectionClosed):
            await receive(socket)
        assert socket.close_code == 1000
    assert (await server.get("/")).headers["content-type"].startswith("text/html")


async def test_a_client_that_falls_silent_gets_its_last_text(server: Running) -> None:
    """Its protocol has no message that ends an utterance, and no silence follows a file."""
    async with client(server.address) as socket:
        assert (await receive(socket))["message"] == "SERVER_READY"
        await socket.send(pcm(speech([1, 2])))
        assert await completed(socket) == [f" {said([1, 2])}"]
        await socket.send(TURN)
        assert await completed(socket) == [f" {said([1, 2])}", f" {said([1, 2, 3])}"]


@supported("whisperlive", "token")
async def test_a_key_is_a_header_a_query_or_a_subprotocol(serve: Serve) -> None:
    server = await serve(api_keys="k")
    ways: list[tuple[str, dict[str, Any]]] = [
        ("", {"additional_headers": {"Authorization": "Bearer k"}}),
        ("/?token=k", {}),
        ("", {"subprotocols": ["bearer", "k"]}),
    ]
    for path, options in ways:
        async with client(server.address, path, **options) as socket:
            assert (await receive(socket))["message"] == "SERVER_READY"
            assert socket.subprotocol == ("bearer" if "subprotocols" in options else None)
    wrong: list[tuple[str, dict[str, Any]]] = [("", {}), ("/?token=x", {}), ("", {"subprotocols": ["bearer", "x"]})]
    for path, options in wrong:
        assert (await refusal(f"ws://{server.address}{path}", **options)).status_code == 401
    assert server.metric("tutti_refused_total", reason="unauthorized") == 3


@supported("whisperlive", "WAIT")
async def test_a_client_waits_when_the_server_is_full(serve: Serve) -> None:
    """The message carries the `uid`, if the client sent one. Then the client disconnects by itself."""
    server = await serve(max_sessions=1)
    async with client(server.address) as early:
        await receive(early)
        for first, uid in ((json.dumps(OPTIONS), "u1"), ("hello", None), (b"\0\0", None)):
            async with connect(f"ws://{server.address}") as late:
                await late.send(first)
                assert await receive(late) == {"uid": uid, "status": "WAIT", "message": pytest.approx(5 / 60)}
    assert server.metric("tutti_refused_total", reason="overloaded") == 3


async def test_a_draining_server_sends_its_clients_elsewhere(server: Running) -> None:
    """They receive their text first, and no error, after which they would not reconnect."""
    async with client(server.address) as socket:
        assert (await receive(socket))["message"] == "SERVER_READY"
        await socket.send(pcm(speech([1, 2])))
        assert (await receive(socket))["segments"]
        server.server.stop()
        assert await completed(socket) == [f" {said([1, 2])}"]
        assert (await receive(socket))["status"] == "WARNING"
        assert await receive(socket) == {"uid": "u1", "message": "DISCONNECT"}
        with pytest.raises(ConnectionClosed):
            await receive(socket)
        assert socket.close_code == 1012
