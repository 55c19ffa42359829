"""A client that streams a recording at the pace of speech and records which events arrive, and when."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import tutti
from benchmarks.recordings import Recording, to_pcm
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

CHUNK_SAMPLES = SAMPLE_RATE // 10
"""Samples in the chunks that clients send: 100 ms."""
GRACE_S = 90.0
"""A session that takes this many seconds longer than its audio has failed."""


@dataclass(slots=True, kw_only=True)
class ClientLog:
    """What one client did. Times are those of `time.monotonic`."""

    recording: Recording
    started_at: float = 0.0
    """When the first sample was spoken.

    The sample at `t` seconds is spoken at `started_at + t`, whatever the server does.
    """
    late_s: list[float] = field(default_factory=list)
    """By how much each chunk was late because of this load generator, in seconds."""
    failure: str | None = None
    all_sent: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class StreamLog(ClientLog):
    events: list[tuple[float, tutti.Event]] = field(default_factory=list)


async def stream(
    url: str,
    log: StreamLog,
    *,
    delay_s: float = 0.0,
    endpointing: tutti.EndpointingMode | None = "vad",
) -> None:
    """Open a session after `delay_s` seconds and fill in `log`. A failure is recorded there, not raised.

    With `vad`, a fixed silence, the utterances are the same, however late the engine answers. With no `endpointing` the
    server chooses.
    """
    await asyncio.sleep(delay_s)
    try:
        async with (
            asyncio.timeout(log.recording.audio_s + GRACE_S),
            # Closed after the session, which reads from it until the session ends.
            aclosing(_pcm_chunks(log)) as audio,
            # A loss is a failure of the run.
            tutti.connect(url, language="en", endpointing=endpointing, resume_buffer_s=0, proxy=None) as session,
            aclosing(session.stream(audio)) as events,
        ):
            async for event in events:
                log.events.append((time.monotonic(), event))
    except* (tutti.TuttiError, TimeoutError) as group:
        log.failure = describe_error(group)


async def send_paced(log: ClientLog, send: Callable[[Samples], Awaitable[None]]) -> None:
    """Send the recording in chunks, each as soon as its last sample has been spoken, and log the delays."""
    async with aclosing(paced_chunks(log)) as chunks:
        async for chunk in chunks:
            await send(chunk)


async def paced_chunks(log: ClientLog) -> AsyncGenerator[Samples, None]:
    """Yield each chunk at the moment at which its last sample has been spoken; what was spoken meanwhile, at once."""
    samples = log.recording.samples
    ready = log.started_at = time.monotonic()
    for begin in range(0, len(samples), CHUNK_SAMPLES):
        chunk = samples[begin : begin + CHUNK_SAMPLES]
        due = log.started_at + (begin + len(chunk)) / SAMPLE_RATE
        await asyncio.sleep(due - time.monotonic())
        # A server that does not read makes the next chunk late too, which is no fault of this generator.
        log.late_s.append(time.monotonic() - max(due, ready))
        yield chunk
        ready = time.monotonic()
    log.all_sent.set()


def describe_error(error: BaseException) -> str:
    """One line for an error, or for the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def chunks_of(samples: Samples) -> AsyncGenerator[bytes, None]:
    for begin in range(0, len(samples), CHUNK_SAMPLES):
        yield to_pcm(samples[begin : begin + CHUNK_SAMPLES])


async def _pcm_chunks(log: ClientLog) -> AsyncGenerator[bytes, None]:
    async with aclosing(paced_chunks(log)) as chunks:
        async for chunk in chunks:
            yield to_pcm(chunk)
