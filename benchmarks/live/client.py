"""One client that streams a recording at the pace of speech and notes what came back, and when."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import tutti
from app.media.pcm import Samples
from benchmarks.live.encodings import PLAIN, encode
from benchmarks.live.faulty_proxy import Relay, relay
from benchmarks.live.network import Network
from benchmarks.recordings import Recording
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
    resumed: list[tuple[int, float]] = field(default_factory=list)
    """For every connection but the first: how many events there were before it, and from when on it was resumed."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client talks to the server."""

    format: tutti.AudioFormat = PLAIN
    network: Network = Network()
    seed: int = 0
    """For what the network does by chance."""


async def stream(
    url: str, log: StreamLog, *, language: str | None, delay_s: float = 0.0, manner: Manner | None = None
) -> None:
    """Open a session after `delay_s` and fill in `log`. A session that fails is noted there, not raised.

    Connections that `manner` loses are resumed as the SDK describes it: from the audio that is not final yet.
    """
    await asyncio.sleep(delay_s)
    client = _Client(log, manner or Manner(), language)
    try:
        async with asyncio.timeout(log.recording.audio_s + GRACE_S):
            if client.losses_s:
                await client.run_with_losses(url)
            else:
                await client.run(url, None)
    except* (tutti.TuttiError, TimeoutError) as group:
        log.failure = described(group)


async def speak(log: ClientLog, send: Callable[[Samples], Awaitable[None]]) -> None:
    """Hand over the recording in chunks, each as soon as its last sample has been spoken, and note how that went."""
    async with aclosing(spoken_chunks(log)) as chunks:
        async for begin, end in chunks:
            await send(log.recording.samples[begin:end])


async def spoken_chunks(
    log: ClientLog, network: Network | None = None, *, seed: int = 0, first: int = 0
) -> AsyncGenerator[tuple[int, int], None]:
    """From which sample to which a chunk goes, when it is to be sent: what was spoken meanwhile, at once.

    Args:
        first: the sample to begin with; the clock runs from the first time that it was the very first.
    """
    n_samples = len(log.recording.samples)
    ends = [min(end, n_samples) for end in range(CHUNK_SAMPLES, n_samples + CHUNK_SAMPLES, CHUNK_SAMPLES)]
    delays_s = (network or Network()).delays([end / SAMPLE_RATE for end in ends], seed)
    ready = time.monotonic()
    log.begun = log.begun or ready
    begin = first
    for end, delay_s in zip(ends, delays_s, strict=True):
        if end <= first:
            continue
        due = log.begun + end / SAMPLE_RATE + delay_s
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        log.late_s.append(sent - max(due, ready))
        yield begin, end
        ready = time.monotonic()
        log.blocked_s.append(ready - sent)
        begin = end
    log.spoken.set()


def described(error: BaseException) -> str:
    """The first error of a group, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class _Client:
    def __init__(self, log: StreamLog, manner: Manner, language: str | None) -> None:
        self._log = log
        self._manner = manner
        self._language = language
        self._audio = encode(log.recording.samples, manner.format)
        self.losses_s = manner.network.losses(log.recording.audio_s, manner.seed)
        # Where the next connection takes up, if this one is lost.
        self._from_s: tuple[float, ...] | None = None

    async def run(self, url: str, from_s: tuple[float, ...] | None) -> None:
        """One connection, up to `stopped`."""
        format = self._manner.format
        async with (
            # Closed behind the session, which reads from it up to its own end.
            aclosing(self._chunks(0.0 if from_s is None else min(from_s))) as audio,
            tutti.connect(
                url,
                encoding=format.encoding,
                sample_rate=format.sample_rate,
                language=self._language,
                resume=None if from_s is None else tutti.Resume(from_s),
                proxy=None,
            ) as session,
            aclosing(session.stream(audio)) as events,
        ):
            if from_s is not None:
                self._log.resumed.append((len(self._log.events), min(from_s)))
            self._from_s = session.resume_from_s
            async for event in events:
                self._log.events.append((time.monotonic(), event))
                self._from_s = session.resume_from_s

    async def run_with_losses(self, url: str) -> None:
        async with relay(url) as between:
            cutting = asyncio.create_task(self._cut(between))
            try:
                while True:
                    n_cuts = between.n_cuts
                    try:
                        return await self.run(between.url, self._from_s)
                    except tutti.TuttiError:
                        # What fails by itself has failed.
                        if between.n_cuts == n_cuts:
                            raise
            finally:
                cutting.cancel()

    async def _cut(self, between: Relay) -> None:
        begun = time.monotonic()
        for loss_s in self.losses_s:
            await asyncio.sleep(begun + loss_s - time.monotonic())
            between.cut()

    async def _chunks(self, from_s: float) -> AsyncGenerator[bytes, None]:
        first = round(from_s * SAMPLE_RATE)
        per_sample = self._manner.format.sample_rate / SAMPLE_RATE
        width = self._manner.format.bytes_per_s // self._manner.format.sample_rate
        chunks = spoken_chunks(self._log, self._manner.network, seed=self._manner.seed, first=first)
        async with aclosing(chunks):
            async for begin, end in chunks:
                yield self._audio[width * round(begin * per_sample) : width * round(end * per_sample)]
