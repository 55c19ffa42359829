"""One client that streams a recording at the pace of speech and notes what came back, and when."""

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np

import tutti
from benchmarks.audio import Recording
from engine.api import SAMPLE_RATE

CHUNK_S = 0.1
CHUNK_SAMPLES = round(CHUNK_S * SAMPLE_RATE)
GRACE_S = 90.0
"""A session that takes so much longer than its audio has failed."""


@dataclass(slots=True)
class StreamLog:
    """What one client saw. Times are those of `time.monotonic`."""

    recording: Recording
    begun: float = 0.0
    """When the first sample was spoken; a sample at `t` seconds is spoken at `begun + t`, whatever the server does."""
    events: list[tuple[float, tutti.Event]] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    """How late each chunk left for reasons of this generator's own."""
    blocked_s: list[float] = field(default_factory=list)
    """How long each chunk waited for a server that did not read."""
    failure: str | None = None
    """Why there is no complete session."""


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
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        log.failure = f"{type(error).__name__}: {error}"


async def _send(session: tutti.Session, log: StreamLog) -> None:
    pcm = (np.clip(log.recording.samples, -1, 1) * 32767).astype("<i2")
    ready = log.begun = time.monotonic()
    for end in range(CHUNK_SAMPLES, len(pcm) + CHUNK_SAMPLES, CHUNK_SAMPLES):
        # A chunk exists only once its last sample has been spoken.
        due = log.begun + min(end, len(pcm)) / SAMPLE_RATE
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        log.late_s.append(sent - max(due, ready))
        await session.send(pcm[end - CHUNK_SAMPLES : end].tobytes())
        ready = time.monotonic()
        log.blocked_s.append(ready - sent)
    await session.stop()
