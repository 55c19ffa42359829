"""When a client is admitted: with its key, or where none is needed with its first valid message."""

import json
from contextlib import AsyncExitStack
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.app.conftest import Running, Serve

DEEPGRAM = urlencode({"encoding": "linear16", "sample_rate": "16000"})
CALL = {
    "streamSid": "MZ1",
    "callSid": "CA1",
    "tracks": ["inbound"],
    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
}
FIRST_MESSAGES = {
    "/v1/stream": ("nonsense", '{"type": "start"}'),
    "/v1/realtime": ('{"type": "session.update"}', '{"type": "input_audio_buffer.append", "audio": ""}'),
    f"/v1/listen?{DEEPGRAM}": ("nonsense", '{"type": "KeepAlive"}'),
    "/": (None, '{"uid": "u"}'),
    "/v1/twilio": ('{"event": "connected"}', json.dumps({"event": "start", "start": CALL})),
}
"""For each address, a message that admits no one, and one that does. WhisperLive's clients send nothing else first."""


def counts(server: Running) -> tuple[int, int]:
    """How many sessions and unauthenticated connections there are."""
    return len(server.service.admission.sessions), len(server.service.unauthenticated)


async def read(socket: ClientConnection) -> None:
    """Wait until the server has read what was sent: it reads on, and answers a ping, when a message is handled."""
    await (await socket.ping())


@pytest.mark.parametrize("path", FIRST_MESSAGES)
async def test_without_keys_only_a_valid_message_admits_a_session(serve: Serve, path: str) -> None:
    """So that any number of silent clients keep no one out."""
    server = await serve(max_sessions=1)
    invalid, valid = FIRST_MESSAGES[path]
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect(f"ws://{server.address}{path}")) for _ in range(3)]
        assert counts(server) == (0, 3)
        if invalid is not None:
            await sockets[0].send(invalid)
            await read(sockets[0])
            assert counts(server) == (0, 3)
        await sockets[0].send(valid)
        await read(sockets[0])
        assert counts(server) == (1, 2)
        # The limit has been reached in the meantime.
        await sockets[1].send(valid.replace("CA1", "CA2"))
        with pytest.raises(ConnectionClosed):
            while True:
                await sockets[1].recv()
        assert sockets[1].close_code == 1013
    assert server.metric("tutti_refused_total", reason="overloaded") == 1


async def test_with_keys_a_client_is_admitted_at_once(serve: Serve) -> None:
    """It is known, and learns before the upgrade whether there is room."""
    server = await serve(api_keys="k")
    async with connect(server.stream, additional_headers={"authorization": "Bearer k"}):
        assert counts(server) == (1, 0)


async def test_messages_that_are_not_valid_give_no_more_time(serve: Serve) -> None:
    server = await serve(idle_timeout_s=0.3)
    async with connect(server.stream) as socket:
        with pytest.raises(ConnectionClosed):
            while True:
                await socket.send("nonsense")
                last = json.loads(await socket.recv())
        assert (socket.close_code, last["code"]) == (1008, "idle")
        assert last["message"] == "no valid message for 0.3 s"


async def test_a_server_that_goes_down_says_so_to_clients_that_are_not_admitted(server: Running) -> None:
    async with connect(server.stream) as socket:
        server.server.stop()
        assert json.loads(await socket.recv())["code"] == "draining"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1012
