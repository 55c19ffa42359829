"""Many WebSocket clients in one process for `benchmarks.live_capacity`, with as little work per client as possible.

What they send is prepared in advance, and of what they receive only times are kept. A client speaks in utterances. Soon
after each utterance it sends a flush, unless the server shall detect the end of speech by itself. All times are those
of `time.monotonic`, which all processes of a machine share.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from benchmarks.live.client import describe_error
from benchmarks.recordings import ReferenceUtterance
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

CONNECT_AHEAD_S = 2.0
"""A client connects this many seconds before it starts to speak."""
FLUSH_AFTER_S = 0.15
"""Seconds from the end of speech to the flush. After an earlier flush the rest of the sound starts a new utterance."""
GRACE_S = 60.0
"""A session that takes this many seconds longer than its audio has failed."""
RETRY_S = (4.0, 6.0)
"""The least and the most seconds after which a client that was refused calls again, if it does at all."""
LEAST_CALL_S = 15.0
"""A client does not call again where it could speak for fewer seconds than this."""
SUBPROTOCOL = Subprotocol("tutti.v1")


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One side of a call, ready to be sent."""

    file: Path
    """Samples as .npy, int16."""
    spans: tuple[tuple[float, float], ...]
    """Start and end of each stretch of speech, in seconds."""
    ends: tuple[float, ...]
    """Where each utterance ends, in seconds."""

    def speech_end_s(self, end_s: float) -> float:
        """Where the speech ended in an utterance that the server ends at `end_s`; `end_s` itself inside speech."""
        before = [(start, end) for start, end in self.spans if start < end_s]
        return min(before[-1][1], end_s) if before else end_s

    def speech_s(self, until_s: float) -> float:
        return sum(min(end, until_s) - start for start, end in self.spans if start < until_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    url: str
    start: dict[str, Any]
    calls: tuple[tuple[PreparedCall, float], ...]
    """The call of each client, and when it starts to speak."""
    flushes: bool
    chunk_samples: int
    calls_again: bool
    """Whether a client that is refused calls again, and then sends its call from the beginning, up to the usual end."""


@dataclass(slots=True, kw_only=True)
class ServedSession:
    speech_s: float
    """Seconds of speech that the client sent."""
    n_interims: int = 0
    ended_by: str = ""
    """The close code and reason, where the server ended the session before its client; else empty."""


@dataclass(slots=True, kw_only=True)
class LoadLog:
    """What the clients of a process recorded, or the clients of several processes together."""

    interims: list[tuple[float, float]] = field(default_factory=list)
    """For each interim: when its newest sample was spoken, and how many seconds later it arrived."""
    finals: list[tuple[float, float]] = field(default_factory=list)
    """For each utterance: when its speech ended, and how many seconds later it was final.

    It is final with the answer to its flush or, without flushes, with its `utterance` event.
    """
    late_s: list[float] = field(default_factory=list)
    """How late each chunk was sent, for any reason, in seconds."""
    n_refused: int = 0
    n_announced: int = 0
    """`speech_started` events."""
    n_ended: int = 0
    """`utterance` events."""
    n_flushes: int = 0
    n_flushed: int = 0
    sessions: list[ServedSession] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Sessions that did not end as they should, and error events."""

    def add(self, other: "LoadLog") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def run_clients(group: ClientGroup) -> LoadLog:
    """Run all clients of a group on one event loop. Call it in a process of its own."""
    return uvloop.run(run_group(group))


async def run_group(group: ClientGroup) -> LoadLog:
    """Run all clients of a group on the present event loop."""
    log = LoadLog()
    # Mapped, so that the processes share the memory of long calls.
    pcm = {call.file: np.load(call.file, mmap_mode="r") for call, _ in group.calls}
    async with asyncio.TaskGroup() as tasks:
        for call, speaks_at in group.calls:
            client = _Client(group, call, memoryview(pcm[call.file]).cast("B"), speaks_at, log)
            tasks.create_task(client.run())
    return log


class _Client:
    """One client. It records failures in the log and does not raise them."""

    def __init__(self, group: ClientGroup, call: PreparedCall, pcm: memoryview, speaks_at: float, log: LoadLog) -> None:
        self._group = group
        self._call = call
        self._pcm = pcm
        self._speaks_at = speaks_at
        self._ends_at = speaks_at + len(pcm) / 2 / SAMPLE_RATE
        self._log = log
        self._session: ServedSession | None = None
        self._is_refused = False

    async def run(self) -> None:
        """Connect, send the call at the pace of speech, and record the answers until the server stops."""
        await asyncio.sleep(self._speaks_at - CONNECT_AHEAD_S - time.monotonic())
        await self._connect()
        while self._is_refused and self._group.calls_again:
            await asyncio.sleep(random.uniform(*RETRY_S))
            self._speaks_at = time.monotonic() + CONNECT_AHEAD_S
            if self._ends_at - self._speaks_at < LEAST_CALL_S:
                return
            self._is_refused = False
            await self._connect()

    async def _connect(self) -> None:
        is_stopped = False
        timeout_s = self._ends_at - self._speaks_at + GRACE_S
        try:
            async with (
                asyncio.timeout_at(asyncio.get_running_loop().time() + timeout_s),
                connect(self._group.url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None) as socket,
            ):
                await socket.send(json.dumps(self._group.start))
                async with asyncio.TaskGroup() as tasks:
                    sending = tasks.create_task(self._send(socket))
                    async for message in socket:
                        arrived_at = time.monotonic()
                        is_stopped |= self._record(json.loads(message), arrived_at)
                    sending.cancel()
            if not is_stopped:
                self._note_end(f"{socket.close_code} {socket.close_reason}")
        except* InvalidStatus as errors:
            status = next(each.response.status_code for each in errors.exceptions if isinstance(each, InvalidStatus))
            if status == 503:
                self._is_refused = True
                self._log.n_refused += 1
            else:
                self._log.failures.append(f"HTTP {status}")
        except* (WebSocketException, OSError) as errors:
            # A client that is refused may still be sending.
            if not self._is_refused:
                self._note_end(describe_error(errors))

    def _note_end(self, reason: str) -> None:
        """Note that the server, or the network, has ended the session."""
        self._log.failures.append(f"the connection was closed: {reason}")
        if self._session:
            self._session.ended_by = reason

    async def _send(self, socket: ClientConnection) -> None:
        """Send every chunk as soon as its last sample is spoken. A flush also ends a chunk."""
        n_samples = len(self._pcm) // 2
        flushes: dict[int, float] = {}
        if self._group.flushes:
            flushes = {round((end_s + FLUSH_AFTER_S) * SAMPLE_RATE): end_s for end_s in self._call.ends}
        begin, n_chunk = 0, self._group.chunk_samples
        for end in sorted({*range(n_chunk, n_samples, n_chunk), *flushes, n_samples}):
            due = self._speaks_at + end / SAMPLE_RATE
            if due > self._ends_at:
                break
            await asyncio.sleep(due - time.monotonic())
            self._log.late_s.append(time.monotonic() - due)
            await socket.send(self._pcm[2 * begin : 2 * end])
            if end in flushes:
                self._log.n_flushes += 1
                await socket.send(json.dumps({"type": "flush", "id": str(flushes[end])}))
            begin = end
        await socket.send('{"type": "stop"}')

    def _record(self, message: dict[str, Any], arrived_at: float) -> bool:
        """Record a message. Returns whether it is the last one."""
        log = self._log
        match message["type"]:
            case "interim":
                assert self._session
                self._session.n_interims += 1
                spoken_at = self._speaks_at + message["end_s"]
                log.interims.append((spoken_at, arrived_at - spoken_at))
            case "utterance":
                log.n_ended += 1
                if not self._group.flushes:
                    spoken_at = self._speaks_at + self._call.speech_end_s(message["end_s"])
                    log.finals.append((spoken_at, arrived_at - spoken_at))
            case "flushed":
                log.n_flushed += 1
                spoken_at = self._speaks_at + float(message["id"])
                log.finals.append((spoken_at, arrived_at - spoken_at))
            case "speech_started":
                log.n_announced += 1
            case "started":
                self._session = ServedSession(speech_s=self._call.speech_s(self._ends_at - self._speaks_at))
                log.sessions.append(self._session)
            case "error" if message["code"] == "overloaded" and not self._session:
                # A server without keys counts a session from its `start` on.
                self._is_refused = True
                log.n_refused += 1
                return True
            case "error":
                log.failures.append(f"{message['code']}: {message['message']}")
            case "stopped":
                return True
        return False


def write_call(file: Path, samples: Samples, utterances: Sequence[ReferenceUtterance]) -> PreparedCall:
    """Store the samples of a recording, and return the call with its speech times."""
    np.save(file, np.round(np.clip(samples, -1, 1) * 32_767).astype("<i2"))
    spans = tuple(chain.from_iterable(each.spans for each in utterances))
    return PreparedCall(file, spans, tuple(each.end_s for each in utterances))
