"""Many paced WebSocket clients in one process, for `benchmarks.live_capacity`: what they send was prepared before, and
of what comes back only times are kept.

A caller speaks in utterances and says so: soon after one ends comes a flush, unless the server is to find out by
itself. Times are those of `time.monotonic`, which all processes of a machine share.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from benchmarks.live.client import described
from engine.api import SAMPLE_RATE

CHUNK_SAMPLES = SAMPLE_RATE // 10
CONNECT_AHEAD_S = 2.0
"""A caller connects so long before it speaks."""
FLUSH_AFTER_S = 0.15
"""From the end of speech to its flush: what comes sooner leaves a rest of sound behind it that begins anew."""
GRACE_S = 60.0
"""A session that takes so much longer than its audio has failed."""
SUBPROTOCOL = Subprotocol("tutti.v1")


@dataclass(frozen=True, slots=True)
class Call:
    """One side of a call, ready to be sent."""

    file: Path
    """Samples as .npy, int16."""
    spans: tuple[tuple[float, float], ...]
    """Where there is speech, in seconds."""
    ends: tuple[float, ...]
    """Where an utterance ends."""

    def speech_end_s(self, end_s: float) -> float:
        """Where the speech ended of an utterance that ends at `end_s`, as the server has it; itself inside speech."""
        before = [(start, end) for start, end in self.spans if start < end_s]
        return min(before[-1][1], end_s) if before else end_s


@dataclass(frozen=True, slots=True)
class Callers:
    """What one process is to do."""

    url: str
    """ws://host:port/v1/stream"""
    start: dict[str, Any]
    """The message of this type."""
    calls: tuple[tuple[Call, float], ...]
    """And when each begins to speak."""
    flushes: bool


@dataclass(slots=True)
class Noted:
    """What all callers of a process saw. Adds up."""

    interims: list[tuple[float, float]] = field(default_factory=list)
    """When its newest sample was spoken, and how long after that each interim came."""
    finals: list[tuple[float, float]] = field(default_factory=list)
    """When the speech of an utterance ended, and how long after that it was final: the answer to its flush, or else
    its own event."""
    late_s: list[float] = field(default_factory=list)
    """How late each chunk left, for whatever reason."""
    n_refused: int = 0
    """The server had no room."""
    n_announced: int = 0
    n_ended: int = 0
    """Utterances."""
    n_flushes: int = 0
    n_flushed: int = 0
    n_empty: int = 0
    """Of these, without text."""
    failures: list[str] = field(default_factory=list)
    """Sessions that came to no good end, and errors that were sent."""
    cpu_s: float = 0.0

    def add(self, other: "Noted") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def run_callers(callers: Callers) -> Noted:
    """All of them, on one loop. To be called in a process of its own."""
    return uvloop.run(_run(callers))


async def _run(callers: Callers) -> Noted:
    noted, begun_s = Noted(), time.process_time()
    pcm = {call.file: np.load(call.file) for call, _ in callers.calls}
    async with asyncio.TaskGroup() as tasks:
        for call, begin in callers.calls:
            tasks.create_task(_call(callers, call, memoryview(pcm[call.file]).cast("B"), begin, noted))
    noted.cpu_s = time.process_time() - begun_s
    return noted


async def _call(callers: Callers, call: Call, pcm: memoryview, begin: float, noted: Noted) -> None:
    """One session. What fails is noted, not raised."""
    await asyncio.sleep(begin - CONNECT_AHEAD_S - time.monotonic())
    is_stopped = False
    try:
        async with (
            asyncio.timeout_at(asyncio.get_running_loop().time() + len(pcm) / 2 / SAMPLE_RATE + GRACE_S),
            connect(callers.url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None) as socket,
        ):
            await socket.send(json.dumps(callers.start))
            async with asyncio.TaskGroup() as tasks:
                speaking = tasks.create_task(_speak(socket, call, pcm, begin, callers.flushes, noted))
                async for message in socket:
                    at = time.monotonic()
                    is_stopped |= _note(json.loads(message), at, callers, call, begin, noted)
                speaking.cancel()
        if not is_stopped:
            noted.failures.append(f"the connection was closed: {socket.close_code} {socket.close_reason}")
    except* InvalidStatus as group:
        status = next(each.response.status_code for each in group.exceptions if isinstance(each, InvalidStatus))
        if status == 503:
            noted.n_refused += 1
        else:
            noted.failures.append(f"HTTP {status}")
    except* (WebSocketException, OSError) as group:
        noted.failures.append(described(group))


async def _speak(
    socket: ClientConnection, call: Call, pcm: memoryview, begin: float, flushes: bool, noted: Noted
) -> None:
    """Every chunk as soon as its last sample is spoken; an utterance's end ends a chunk."""
    n_samples = len(pcm) // 2
    flush_at = {round((end + FLUSH_AFTER_S) * SAMPLE_RATE): end for end in call.ends} if flushes else {}
    at = 0
    for end in sorted({*range(CHUNK_SAMPLES, n_samples, CHUNK_SAMPLES), *flush_at, n_samples}):
        due = begin + end / SAMPLE_RATE
        await asyncio.sleep(due - time.monotonic())
        noted.late_s.append(time.monotonic() - due)
        await socket.send(pcm[2 * at : 2 * end])
        if end in flush_at:
            noted.n_flushes += 1
            await socket.send(json.dumps({"type": "flush", "id": str(flush_at[end])}))
        at = end
    await socket.send('{"type": "stop"}')


def _note(message: dict[str, Any], at: float, callers: Callers, call: Call, begin: float, noted: Noted) -> bool:
    """Whether it is the last."""
    match message["type"]:
        case "interim":
            spoken = begin + message["end_s"]
            noted.interims.append((spoken, at - spoken))
        case "utterance":
            noted.n_ended += 1
            noted.n_empty += not message["text"]
            if not callers.flushes:
                spoken = begin + call.speech_end_s(message["end_s"])
                noted.finals.append((spoken, at - spoken))
        case "flushed":
            noted.n_flushed += 1
            spoken = begin + float(message["id"])
            noted.finals.append((spoken, at - spoken))
        case "speech_started":
            noted.n_announced += 1
        case "error":
            noted.failures.append(f"{message['code']}: {message['message']}")
        case "stopped":
            return True
    return False


def write_call(file: Path, samples: "np.ndarray[Any, np.dtype[np.float32]]", said: Any) -> Call:
    """Store a recording's samples, and say where there is speech in it."""
    np.save(file, np.round(np.clip(samples, -1, 1) * 32_767).astype("<i2"))
    spans = tuple(chain.from_iterable(each.spans for each in said))
    return Call(file, spans, tuple(each.end_s for each in said))
