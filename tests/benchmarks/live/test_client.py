"""Clients on bad networks and with other encodings, against a real server around the fake engine."""

import asyncio

import numpy as np

import tutti
from benchmarks.live.client import ClientProfile, StreamLog, stream
from benchmarks.live.encodings import parse_formats
from benchmarks.live.latencies import captions, measure, problems
from benchmarks.live.network import Network
from benchmarks.recordings import Recording, ReferenceUtterance
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings

TURNS = ([1, 2, 3], [4, 5, 6, 7], [8, 9])


def three_turns() -> Recording:
    """Utterances with pauses that end them."""
    parts, spoken, at_s = [silence(0.2)], [], 0.2
    for words in TURNS:
        samples = speech(words)
        spoken.append(ReferenceUtterance(said(words), ((at_s, at_s + len(samples) / 16_000 - 0.08),)))
        parts += [samples, silence(0.9)]
        at_s += len(samples) / 16_000 + 0.9
    samples = np.concatenate(parts)
    return Recording("made-up", samples, " ".join(each.text for each in spoken), tuple(spoken))


async def streamed(*profiles: ClientProfile) -> list[StreamLog]:
    """A client for each, all at once."""
    logs = [StreamLog(recording=three_turns()) for _ in profiles]
    async with (
        asyncio.timeout(60),
        running(Settings(port=0), FakeTranscriber()) as server,
        asyncio.TaskGroup() as tasks,
    ):
        for log, profile in zip(logs, profiles, strict=True):
            tasks.create_task(stream(server.http, log, language="en", profile=profile))
    return logs


async def test_lost_connections_cost_no_word_and_repeat_none() -> None:
    """The session is resumed each time, and its promises hold over all connections."""
    for log in await streamed(*(ClientProfile(network=Network(losses_per_min=36), seed=seed) for seed in range(4))):
        assert problems(log) == []
        assert len(log.resumed) == 3
        assert [event for _, event in log.events if isinstance(event, tutti.Stopped)]
        latencies = measure(log)
        assert latencies.errors.rate == 0.0
        assert captions(log)[-1].shown.split() == log.recording.text.split()


async def test_audio_that_was_held_back_is_late() -> None:
    """What the network costs counts as latency: the words were spoken when they were."""
    plain, late = await streamed(ClientProfile(), ClientProfile(network=Network(jitter_s=0.8), seed=1))
    assert problems(late) == []
    assert sum(measure(late).words.seen_s) > sum(measure(plain).words.seen_s)
    # The network is no fault of the generator's.
    assert max(late.late_s) < 0.5


async def test_every_encoding_is_heard() -> None:
    formats = parse_formats("mulaw,pcm_s16le@48000,pcm_f32le")
    for log in await streamed(*(ClientProfile(format=format) for format in formats)):
        assert problems(log) == []
        assert measure(log).errors.missing == 0


async def test_a_server_that_goes_away_is_not_a_lost_connection() -> None:
    """It is told as a failure, not tried again for ever."""
    log = StreamLog(recording=three_turns())
    async with asyncio.timeout(30):
        await stream("http://127.0.0.1:9", log, language="en", profile=ClientProfile(network=Network(losses_per_min=6)))
    assert log.failure
