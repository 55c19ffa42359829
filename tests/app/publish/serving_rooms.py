"""Speakers and readers of a real server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.app.conftest import Running, until
from tests.app.publish.made_up import Message, Reader
from tests.fakes import pcm, silence, speech


@asynccontextmanager
async def speaker(
    server: Running, room: dict[str, Any] | None = None, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[ClientConnection, Message]]:
    """A live session in a room, and its `started`."""
    async with connect(server.stream, additional_headers=headers or {}) as socket:
        start = {"type": "start", "audio": {"encoding": "pcm_f32le"}, "endpointing": {"mode": "vad"}}
        await socket.send(json.dumps(start | {"room": room if room is not None else {}} | options))
        yield socket, json.loads(await socket.recv())


async def say(socket: ClientConnection, numbers: Iterable[int]) -> Message:
    """Send an utterance, and return its end."""
    await socket.send(pcm(speech(numbers)))
    await socket.send(pcm(silence(1.0)))
    return await until(socket, "utterance")


class Listener:
    """A reader over HTTP."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.reader = Reader()
        self.retry_ms = 0
        self._events = self._read()

    async def _read(self) -> AsyncIterator[Message]:
        event: dict[str, str] = {}
        async for line in self.response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                event[name] = value
                continue
            if "retry" in event:
                self.retry_ms = int(event["retry"])
            if "data" in event:
                self.reader.last_id = event.get("id", self.reader.last_id)
                yield json.loads(event["data"])
            event = {}

    async def until(self, kind: str) -> Message:
        """The next event of this type. The reader checks all that come."""
        async for message in self._events:
            self.reader.receive(message)
            if message["type"] == kind:
                return message
        raise AssertionError(f"the stream has ended without {kind}, after {self.reader.types}")

    async def rest(self) -> list[str]:
        """The types of all events up to the end of the stream."""
        n_before = len(self.reader.types)
        async for message in self._events:
            self.reader.receive(message)
        return self.reader.types[n_before:]


@asynccontextmanager
async def listener(server: Running, name: str, **options: Any) -> AsyncIterator[Listener]:
    address = f"{server.http}/captions/{name}/events"
    async with httpx.AsyncClient(timeout=20) as client, client.stream("GET", address, **options) as response:
        yield Listener(response)


async def eventually(server: Running, path: str, status: int) -> httpx.Response:
    """The response as soon as it has this status: the log of a room is read a moment after an event."""
    while True:
        response = await server.get(path)
        if response.status_code == status:
            return response
        await asyncio.sleep(0.01)


async def metric_becomes(server: Running, expected: float, name: str, **labels: str) -> None:
    """Wait until a series has a value."""
    while True:
        if server.metric(name, **labels) == expected:
            return
        await asyncio.sleep(0.01)
