"""One client that streams a recording at the pace of speech and notes what came back, and when."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

import tutti
from app.audio import Samples
from benchmarks.audio import Recording
from engine.api import SAMPLE_RATE

CHUNK_S = 0.1
CHUNK_SAMPLES = round(CHUNK_S * SAMPLE_RATE)
GRACE_S = 90.0
"""A session that takes so much longer than its audio has failed."""


@dataclass(slots=True)
class ClientLog:
    """What one client did. Times are those of `time.monotonic`."""

    recording: Recording
    begun: float = 0.0
    """When the first sample was spoken; a sample at `t` seconds is spoken at `begun + t`, whatever the server does."""
    late_s: list[float] = field(default_factory=list)
    """How late each chunk left for reasons of this generator's own."""
    blocked_s: list[float] = field(default_factory=list)
    """How long each chunk waited for a server that did not read."""
    failure: str | None = None
    """Why there is no complete session."""
    spoken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last sample has been sent."""


@dataclass(slots=True)
class StreamLog(ClientLog):
    """And what it saw of tutti."""

    events: list[tuple[float, tutti.Event]] = field(default_factory=list)


async def stream(url: str, log: StreamLog, *, language: str | None, delay_s: float = 0.0) -> None:
    """Open a session after `delay_s` and fill in `log`. A session that fails is noted there, not raised."""
    await asyncio.sleep(delay_s)
    try:
        async with (
            asyncio.timeout(log.recording.audio_s + GRACE_S),
            tutti.connect(url, sample_rate=SAMPLE_RATE, language=language, proxy=None) as session,
        ):
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(_send(session, log))
                async for event in session:
                    log.events.append((time.monotonic(), event))
                sender.cancel()
    except* (tutti.TuttiError, TimeoutError) as group:
        log.failure = described(group)


async def speak(log: ClientLog, send: Callable[[Samples], Awaitable[None]]) -> None:
    """Hand over the recording in chunks, each as soon as its last sample has been spoken, and note how that went."""
    samples = log.recording.samples
    ready = log.begun = time.monotonic()
    for end in range(CHUNK_SAMPLES, len(samples) + CHUNK_SAMPLES, CHUNK_SAMPLES):
        due = log.begun + min(end, len(samples)) / SAMPLE_RATE
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        log.late_s.append(sent - max(due, ready))
        await send(samples[end - CHUNK_SAMPLES : end])
        ready = time.monotonic()
        log.blocked_s.append(ready - sent)
    log.spoken.set()


def to_pcm(samples: Samples) -> bytes:
    """16 bits."""
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def described(error: BaseException) -> str:
    """The first error of a group, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _send(session: tutti.Session, log: StreamLog) -> None:
    await speak(log, lambda samples: session.send(to_pcm(samples)))
    await session.stop()
