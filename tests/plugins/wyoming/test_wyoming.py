"""Wyoming over its port, spoken by hand: descriptions, texts, errors, and who may use it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.server import free_port
from tests.app.conftest import Running, Serve
from tests.fakes import MODEL, FakeTranscriber, said, silence, speech
from tutti_server.app.errors import SettingsError
from tutti_server.app.media.pcm import Samples
from tutti_server.app.server.plugins import make_settings
from tutti_server.plugins.wyoming.plugin import WyomingSettings

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

    async def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self.reader.readline())
        return event


@asynccontextmanager
async def wyoming(server: Running) -> AsyncIterator[Client]:
    async with asyncio.timeout(20), httpx.AsyncClient() as http:
        # The server answers as soon as it listens on both ports.
        await http.get(f"{server.http}/healthz")
        port = server.service.settings.of(WyomingSettings).wyoming_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def test_a_satellite_gets_one_text_for_its_audio(serve: Serve) -> None:
    """It asks first what there is. A pause between words makes two utterances and no second text."""
    server = await serve(wyoming_port=free_port())
    async with wyoming(server) as client:
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
        ("audio-start", FORMAT | {"width": 4}, "width: expected an integer from 2 to 2, got 4"),
        ("audio-chunk", {}, "expected audio-start and then audio of its format"),
    ],
)
async def test_what_cannot_be_done_is_an_error(serve: Serve, kind: str, data: dict[str, Any], message: str) -> None:
    server = await serve(wyoming_port=free_port())
    async with wyoming(server) as client:
        client.send(kind, **data)
        client.send("audio-start", **FORMAT)
        event = await client.event()
        assert event["type"] == "error" and message in event["data"]["text"]


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b'{"type": "ping", "data_length": -1}\n', b"[]\n"])
async def test_what_is_no_event_is_an_error(serve: Serve, junk: bytes) -> None:
    server = await serve(wyoming_port=free_port())
    async with wyoming(server) as client:
        client.writer.write(junk)
        assert "expected an event" in (await client.event())["data"]["text"]
        assert await client.reader.read() == b""


async def test_a_full_server_says_so(serve: Serve) -> None:
    server = await serve(wyoming_port=free_port(), max_sessions=1)
    async with wyoming(server) as first, wyoming(server) as second:
        first.send("audio-start", **FORMAT)
        first.send("ping")
        assert (await first.event())["type"] == "pong"
        second.speak(1)
        assert (await second.event())["data"]["code"] == "overloaded"


@pytest.mark.parametrize(("networks", "kind"), [("127.0.0.0/8", "transcript"), ("10.0.0.0/8", "error")])
async def test_a_server_with_keys_serves_the_named_networks(serve: Serve, networks: str, kind: str) -> None:
    """Wyoming has no keys."""
    server = await serve(api_keys="k", wyoming_port=free_port(), wyoming_networks=networks)
    async with wyoming(server) as client:
        client.speak(1)
        assert (await client.event())["type"] == kind


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
