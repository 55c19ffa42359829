"""A client that streams a recording at the pace of speech and records which events arrive, and when."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import tutti
from benchmarks.live.encodings import PCM_16K, encode
from benchmarks.live.faulty_proxy import FaultyProxy, faulty_proxy
from benchmarks.live.network import Network
from benchmarks.recordings import Recording
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

CHUNK_S = 0.1
"""Length of the chunks that clients send, in seconds."""
CHUNK_SAMPLES = round(CHUNK_S * SAMPLE_RATE)
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
    blocked_s: list[float] = field(default_factory=list)
    """How long each chunk waited because the server did not read, in seconds."""
    failure: str | None = None
    """Why the session is not complete."""
    all_sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last sample has been sent."""


@dataclass(slots=True, kw_only=True)
class StreamLog(ClientLog):
    """What one client of tutti did, and the events it received."""

    events: list[tuple[float, tutti.Event]] = field(default_factory=list)
    """Each event with its arrival time."""
    resumed: list[tuple[int, float]] = field(default_factory=list)
    """For every connection but the first: the number of events before it, and the audio time it resumed from."""


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """The encoding, the network and the endpointing of a client."""

    format: tutti.AudioFormat = PCM_16K
    network: Network = field(default_factory=Network)
    seed: int = 0
    """Seed of the random faults of the network."""
    endpointing: tutti.EndpointingMode | None = "vad"
    """With a fixed silence the utterances are the same, however late the engine answers. `None`: the server chooses."""


async def stream(
    url: str, log: StreamLog, *, language: str | None, delay_s: float = 0.0, profile: ClientProfile | None = None
) -> None:
    """Open a session after `delay_s` seconds and fill in `log`. A failure is recorded there, not raised.

    A connection that the network of `profile` loses is resumed as the SDK documents it: from the first audio that is
    not final yet.
    """
    await asyncio.sleep(delay_s)
    client = _Client(log, profile or ClientProfile(), language)
    try:
        async with asyncio.timeout(log.recording.audio_s + GRACE_S):
            if client.losses_s:
                await client.run_with_losses(url)
            else:
                await client.run(url, None)
    except* (tutti.TuttiError, TimeoutError) as group:
        log.failure = describe_error(group)


async def send_paced(log: ClientLog, send: Callable[[Samples], Awaitable[None]]) -> None:
    """Send the recording in chunks, each as soon as its last sample has been spoken, and log the delays."""
    async with aclosing(paced_chunks(log)) as chunks:
        async for begin, end in chunks:
            await send(log.recording.samples[begin:end])


async def paced_chunks(
    log: ClientLog, network: Network | None = None, *, seed: int = 0, first: int = 0
) -> AsyncGenerator[tuple[int, int], None]:
    """Yield the first and last sample of each chunk at the moment at which it must be sent.

    Audio that was spoken in the meantime is yielded at once.

    Args:
        log: the log of the client. Its clock starts at the first call for this log.
        network: delays the chunks.
        seed: seed of these delays.
        first: the sample to begin with.
    """
    n_samples = len(log.recording.samples)
    ends = [min(end, n_samples) for end in range(CHUNK_SAMPLES, n_samples + CHUNK_SAMPLES, CHUNK_SAMPLES)]
    delays_s = (network or Network()).delays([end / SAMPLE_RATE for end in ends], seed)
    ready = time.monotonic()
    log.started_at = log.started_at or ready
    begin = first
    for end, delay_s in zip(ends, delays_s, strict=True):
        if end <= first:
            continue
        due = log.started_at + end / SAMPLE_RATE + delay_s
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        log.late_s.append(sent - max(due, ready))
        yield begin, end
        ready = time.monotonic()
        log.blocked_s.append(ready - sent)
        begin = end
    log.all_sent.set()


def describe_error(error: BaseException) -> str:
    """One line for an error, or for the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class _Client:
    """The connections of one client session."""

    def __init__(self, log: StreamLog, profile: ClientProfile, language: str | None) -> None:
        self._log = log
        self._profile = profile
        self._language = language
        self._audio = encode(log.recording.samples, profile.format)
        self.losses_s = profile.network.losses(log.recording.audio_s, profile.seed)
        # Where the next connection resumes if this one is lost, by channel.
        self._from_s: tuple[float, ...] | None = None

    async def run(self, url: str, from_s: tuple[float, ...] | None) -> None:
        """Run one connection until the `stopped` event, from the beginning or from where a lost one left off."""
        format = self._profile.format
        async with (
            # Closed after the session, which reads from it until the session ends.
            aclosing(self._chunks(0.0 if from_s is None else min(from_s))) as audio,
            tutti.connect(
                url,
                encoding=format.encoding,
                sample_rate=format.sample_rate,
                language=self._language,
                endpointing=self._profile.endpointing,
                turns=True,
                resume=None if from_s is None else tutti.Resume(from_s),
                # A loss is part of the measurement.
                resume_buffer_s=0,
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
        """Run through a proxy that drops connections, and resume after each loss."""
        async with faulty_proxy(url) as proxy:
            dropping = asyncio.create_task(self._drop_connections(proxy))
            try:
                while True:
                    n_drops = proxy.n_drops
                    try:
                        return await self.run(proxy.url, self._from_s)
                    except tutti.TuttiError:
                        # A session that fails without a dropped connection has failed.
                        if proxy.n_drops == n_drops:
                            raise
            finally:
                dropping.cancel()

    async def _drop_connections(self, proxy: FaultyProxy) -> None:
        started_at = time.monotonic()
        for loss_s in self.losses_s:
            await asyncio.sleep(started_at + loss_s - time.monotonic())
            proxy.drop_connections()

    async def _chunks(self, from_s: float) -> AsyncGenerator[bytes, None]:
        first = round(from_s * SAMPLE_RATE)
        ratio = self._profile.format.sample_rate / SAMPLE_RATE
        width = self._profile.format.bytes_per_s // self._profile.format.sample_rate
        chunks = paced_chunks(self._log, self._profile.network, seed=self._profile.seed, first=first)
        async with aclosing(chunks):
            async for begin, end in chunks:
                yield self._audio[width * round(begin * ratio) : width * round(end * ratio)]
