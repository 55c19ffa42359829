"""A speaker whose session has a room: it streams a recording at the pace of speech, and records when events arrive."""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks.recordings import Recording
from engine.api import SAMPLE_RATE

CHUNK_S = 0.1
"""Length of the chunks that the speaker sends, in seconds."""
OPEN_TIMEOUT_S = 30.0
GRACE_S = 90.0
"""A session that takes this many seconds longer than its audio has failed."""

Event = dict[str, Any]
READ_TYPES = ("interim", "segment", "utterance", "translation")
"""The events that readers get as well."""


@dataclass
class SpeakerLog:
    """What the speaker's own page would show. Times are those of `time.perf_counter`."""

    events: list[tuple[float, Event]] = field(default_factory=list)

    def arrivals(self) -> dict[str, float]:
        """When each text arrived first, by what it says."""
        found: dict[str, float] = {}
        for at, event in self.events:
            found.setdefault(content(event), at)
        return found


def content(event: Event) -> str:
    """What an event says, without numbers that a room may count in another way."""
    names = ("type", "channel", "language", "start_s", "end_s", "stable", "tail", "text")
    return json.dumps([event.get(name) for name in names])


def final_text(events: Iterable[Event]) -> str:
    """The final text: a line for each utterance that has one, in the order in which they began to be final."""
    lines: dict[int, str] = {}
    for event in events:
        if event["type"] == "segment":
            lines[event["utterance"]] = lines.get(event["utterance"], "") + event["text"]
        elif event["type"] == "retract":
            lines.pop(event["utterance"], None)
    return "\n".join(line for line in lines.values() if line)


class Speaker:
    """One session with a room. The block `async with` opens it; `speak` streams and ends it."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("http", "ws", 1) + "/v1/stream"
        self.log = SpeakerLog()
        self.changed = asyncio.Event()
        """Set with each event of the log."""
        self.room: dict[str, str] = {}
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> "Speaker":
        subprotocols = [Subprotocol("tutti.v1")]
        connection = await connect(self._url, subprotocols=subprotocols, proxy=None, open_timeout=OPEN_TIMEOUT_S)
        self._connection = connection
        start = {"type": "start", "audio": {"encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE}, "room": {}}
        await connection.send(json.dumps(start))
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            started = json.loads(await connection.recv())
        if started["type"] != "started" or not started.get("room"):
            await connection.close()
            raise click.ClickException(f"expected a `started` with a room, got {started}")
        self.room = started["room"]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._connection is not None
        await self._connection.close()

    async def speak(self, recording: Recording) -> None:
        """Stream the recording at the pace of speech, and stop. Returns when the server has sent everything."""
        assert self._connection is not None
        async with asyncio.timeout(recording.audio_s + GRACE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(self._connection, recording))
            tasks.create_task(self._receive(self._connection))

    async def _send(self, connection: ClientConnection, recording: Recording) -> None:
        pcm = (recording.samples * 32767).astype("<i2")
        began = time.monotonic()
        for index, chunk in enumerate(np.array_split(pcm, max(round(recording.audio_s / CHUNK_S), 1))):
            # A chunk can be sent once its last sample has been spoken.
            await asyncio.sleep(began + (index + 1) * CHUNK_S - time.monotonic())
            await connection.send(chunk.tobytes())
        await connection.send(json.dumps({"type": "stop"}))

    async def _receive(self, connection: ClientConnection) -> None:
        async for message in connection:
            at, event = time.perf_counter(), json.loads(message)
            if event["type"] == "error" and event["fatal"]:
                raise click.ClickException(f"the session failed: {event['code']}: {event['message']}")
            if event["type"] in READ_TYPES:
                self.log.events.append((at, event))
                self.changed.set()
