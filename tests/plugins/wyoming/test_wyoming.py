"""Wyoming over its port, spoken by hand: descriptions, texts, errors, and who may use it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.server import free_port
from tests.app.conftest import Running, Serve
from tests.fakes import MODEL, FakeTranscriber, said, silence, speech
from tutti_server.app.errors import SettingsError
from tutti_server.app.live.tcp_port import TcpClient
from tutti_server.app.media.pcm import Samples
from tutti_server.app.server.plugins import make_settings
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.wyoming.dialect import WyomingPort
from tutti_server.plugins.wyoming.plugin import Wyoming, WyomingSettings

FORMAT: dict[str, Any] = {"rate": 16_000, "width": 2, "channels": 1}


def pcm(samples: Samples) -> bytes:
    return np.round(samples * 32768).astype("<i2").tobytes()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, kind: str, payload: bytes = b"", **data: Any) -> None:
        """Send an event as the package does: its data behind the line."""
        more = json.dumps(data).encode() if data else b""
        header = {"type": kind, "version": "1.10.2", "data_length": len(more), "payload_length": len(payload)}
        self.writer.write(json.dumps(header).encode() + b"\n" + more + payload)

    def speak(self, *numbers: int, **wanted: Any) -> None:
        """Ask for the text of made-up words."""
        self.send("transcribe", **wanted)
        self.send("audio-start", **FORMAT)
        audio = pcm(speech(numbers)) + pcm(silence(0.3))
        for at in range(0, len(audio), 2048):
            self.send("audio-chunk", audio[at : at + 2048], **FORMAT)
        self.send("audio-stop")

    def ping(self) -> None:
        """Ask for a long answer."""
        self.send("ping", text="a" * 50_000)

    async def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self.reader.readline())
        return event


@asynccontextmanager
async def wyoming(server: Running, *, is_deaf: bool = False) -> AsyncIterator[Client]:
    """Connect, where wanted as a client that reads next to nothing."""
    async with asyncio.timeout(20):
        # The server answers as soon as it listens on both ports.
        await server.get("/healthz")
        port = server.service.settings.of(WyomingSettings).wyoming_port
        sock = socket.socket()
        if is_deaf:
            # Otherwise the kernel reads megabytes for it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=4096 if is_deaf else 1 << 16)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort() if is_deaf else writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[Client]:
    """A client of a server with no other settings."""
    async with wyoming(await serve(wyoming_port=free_port())) as client:
        yield client


class WatchedPort(WyomingPort):
    """Shows how much waits to be sent to its last client."""

    _transport: asyncio.WriteTransport | None = None

    @property
    def waiting_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    async def serve_client(self, client: TcpClient) -> None:
        self._transport = client.writer.transport
        await super().serve_client(client)


class Watched(Wyoming):
    """Wyoming with a watched port."""

    def listeners(self, settings: Settings) -> Sequence[WatchedPort]:
        self.port = WatchedPort(settings)
        return (self.port,)


async def flood(client: Client, port: WatchedPort) -> int:
    """Ask and read no answer, until the server cuts the connection. Returns the most bytes that waited to be sent."""
    peak = 0
    with pytest.raises(ConnectionError):
        # As much as no kernel keeps.
        for _ in range(1500):
            client.ping()
            await client.writer.drain()
            peak = max(peak, port.waiting_bytes)
    return peak


async def test_a_satellite_gets_one_text_for_its_audio(client: Client) -> None:
    """It asks first what there is. A pause between words makes two utterances and no second text."""
    client.send("describe")
    (program,) = (await client.event())["data"]["asr"]
    (model,) = program["models"]
    assert (program["name"], model["name"], model["languages"]) == ("tutti", "fake", ["en", "de"])
    client.send("ping", text="x")
    assert await client.event() == {"type": "pong", "data": {"text": "x"}}
    client.send("something-new")
    client.send("transcribe", language="en-GB", transcript_names=["Kitchen"])
    client.send("audio-start", **FORMAT)
    for part in (speech([1, 2]), silence(1.5), speech([3, 4]), silence(0.3)):
        client.send("audio-chunk", pcm(part), **FORMAT)
    client.send("audio-stop")
    assert await client.event() == {"type": "transcript", "data": {"text": said([1, 2, 3, 4]), "language": "en"}}
    assert await client.reader.read() == b""


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("transcribe", {"name": "large"}, "name: expected fake"),
        ("transcribe", {"language": "fr"}, "language: expected one of en, de"),
        ("transcribe", {"transcript_names": 5}, "transcript_names: expected lists of texts, got [5, []]"),
        ("transcribe", {"transcript_names": "Kitchen"}, "transcript_names: expected lists of texts"),
        ("transcribe", {"transcript_terms": {"a": 1}}, "transcript_names: expected lists of texts"),
        ("transcribe", {"transcript_terms": [None]}, "transcript_names: expected lists of texts"),
        ("audio-start", FORMAT | {"width": 4}, "width: expected an integer from 2 to 2, got 4"),
        ("audio-chunk", {}, "expected audio-start and then audio of its format"),
    ],
)
async def test_what_cannot_be_done_is_an_error(client: Client, kind: str, data: dict[str, Any], message: str) -> None:
    client.send(kind, **data)
    client.send("audio-start", **FORMAT)
    event = await client.event()
    assert event["type"] == "error" and message in event["data"]["text"]


async def test_a_second_start_changes_no_format(client: Client) -> None:
    """The audio after it would be taken as that of the first."""
    other = FORMAT | {"rate": 8000}
    client.send("audio-start", **FORMAT)
    client.send("audio-start", **other)
    client.send("audio-chunk", pcm(speech([1])), **other)
    client.send("audio-stop")
    assert (await client.event())["data"]["code"] == "already_started"
    last = await client.event()
    assert last["type"] == "error" and "of its format" in last["data"]["text"]
    assert await client.reader.read() == b""


async def test_names_may_be_null(client: Client) -> None:
    client.speak(1, transcript_names=None, transcript_terms=None)
    assert (await client.event())["data"]["text"] == said([1])


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"type": "ping", "data_length": -1}\n',
        b"[]\n",
        b'{"type": "ping", "data_length": 207}\n{"text":' + b"[" * 99 + b"]" * 99 + b"}",
    ],
)
async def test_what_is_no_event_is_an_error(client: Client, junk: bytes) -> None:
    """Also data that is too deep only inside its event."""
    client.writer.write(junk)
    assert "expected a" in (await client.event())["data"]["text"]
    assert await client.reader.read() == b""


async def test_a_full_server_says_so(serve: Serve) -> None:
    server = await serve(wyoming_port=free_port(), max_sessions=1)
    async with wyoming(server) as first, wyoming(server) as second:
        first.send("audio-start", **FORMAT)
        first.send("ping")
        assert (await first.event())["type"] == "pong"
        second.speak(1)
        assert (await second.event())["data"]["code"] == "overloaded"


async def test_a_client_that_asks_and_does_not_read_is_cut(serve: Serve) -> None:
    """Few answers wait for it, and none of them gives it more time."""
    watched = Watched()
    server = await serve(plugins=[watched], wyoming_port=free_port(), head_timeout_s=0.1)
    async with wyoming(server, is_deaf=True) as client:
        assert await flood(client, watched.port) < 200_000
    assert server.metric("tutti_strangers_refused_total", reason="slow") == 1


async def test_a_client_that_does_not_read_does_not_count_as_a_session(serve: Serve) -> None:
    """It begins a session while answers wait for it."""
    watched = Watched()
    server = await serve(
        plugins=[watched],
        wyoming_port=free_port(),
        wyoming_networks="127.0.0.0/8",
        api_keys="k",
        head_timeout_s=0.1,
    )
    async with wyoming(server, is_deaf=True) as client:
        for _ in range(400):
            client.ping()
        client.send("audio-start", **FORMAT)
        await flood(client, watched.port)
    assert server.metric("tutti_sessions_open") == 0


async def test_what_a_client_does_not_read_keeps_no_connection_open(serve: Serve) -> None:
    """Its session has ended, and it gets the time of one more send."""
    watched = Watched()
    server = await serve(plugins=[watched], wyoming_port=free_port(), send_timeout_s=0.1)
    async with wyoming(server, is_deaf=True) as client:
        client.send("audio-start", **FORMAT)
        await flood(client, watched.port)
    assert server.metric("tutti_sessions_total") == 1


@pytest.mark.parametrize(("networks", "kind"), [("127.0.0.0/8", "transcript"), ("10.0.0.0/8", "error")])
async def test_a_server_with_keys_serves_the_named_networks(serve: Serve, networks: str, kind: str) -> None:
    """Wyoming has no keys."""
    server = await serve(api_keys="k", wyoming_port=free_port(), wyoming_networks=networks)
    async with wyoming(server) as client:
        client.speak(1)
        assert (await client.event())["type"] == kind


async def test_a_client_that_left_at_once_is_no_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a port scanner, of whose connection uvloop tells no address."""
    monkeypatch.setattr(TcpClient, "address", "")
    server = await serve(api_keys="k", wyoming_port=free_port(), wyoming_networks="127.0.0.0/8")
    async with wyoming(server) as client:
        assert await client.reader.read() == b""
    assert "failed" not in caplog.text


async def test_the_name_of_the_model_may_be_an_alias(serve: Serve) -> None:
    info = replace(MODEL, aliases=("home",))
    server = await serve(FakeTranscriber(info=info), wyoming_port=free_port())
    async with wyoming(server) as client:
        client.speak(1, 2, name="home")
        assert (await client.event())["data"]["text"] == said([1, 2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wyoming_port": 70_000}, "wyoming_port: expected 0 to 65535"),
        ({"wyoming_port": 8000}, "another one than port"),
        ({"wyoming_networks": "10.0.0.0/8"}, "expected wyoming_port with it"),
        ({"wyoming_port": 9, "wyoming_networks": "10.0.0.1/8"}, "wyoming_networks: expected addresses and networks"),
        ({"wyoming_port": 9, "api_keys": "k"}, "expected wyoming_networks with it, as the server has API keys"),
    ],
)
def test_settings_that_cannot_hold_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_settings(values)
