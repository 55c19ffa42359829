"""Live sessions and the speaker network: what is answered, counted, and given up."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.observers.speaker_stretches import Stretch
from tutti_server.app.voices.live_clustering import LiveClusters
from tutti_server.app.voices.live_speakers import LiveSpeakers, LiveVoices
from tutti_server.app.voices.speaker_batcher import MAX_BATCH, EmbedderBatcher
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel

THRESHOLDS = SpeakerThresholds(joins=0.5, knows=0.6)
Embed = Callable[[Sequence[Samples]], Awaitable[NDArray[np.float32]]]


def stretch(id_: int) -> Stretch:
    return Stretch(id=id_, start=0, end=320, frames=(np.zeros(320, np.float32),))


async def embed(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    return np.eye(1, 4, dtype=np.float32).repeat(len(stretches), 0)


async def test_stretches_are_counted_by_what_became_of_them() -> None:
    counts: Counter[str] = Counter()
    teller = LiveSpeakers(lambda: SpeakerModel(embed, THRESHOLDS), lambda outcome, n: counts.update({outcome: n}))
    voices = teller.open(4, "")
    assert voices
    assert (found := await voices.add((stretch(0), stretch(1)))) and found.speakers == {0: 0, 1: 0}
    await voices.add((stretch(5),))
    assert counts == {"embedded": 3, "dropped": 3}
    assert LiveSpeakers(lambda: None).open(4, "") is None


async def test_a_session_that_goes_on_with_another_network_learns_its_speakers_anew() -> None:
    """Both networks have as many dimensions, and seem to find the same voice."""
    first, second = (LiveSpeakers(partial(SpeakerModel, embed, THRESHOLDS, None, name)) for name in "ab")
    voices = first.open(4, "")
    assert voices
    found = await voices.add((stretch(0),))
    assert found and found.voices.startswith("v2.a.1.A")
    # The first character holds the upper six bits of the speaker's number, which is 4 now.
    kept = found.voices.replace("v2.a.1.A", "v2.a.1.B")
    for teller, speaker in ((first, 4), (second, 0)):
        goes_on = teller.open(4, kept)
        assert goes_on
        found = await goes_on.add((stretch(0),))
        assert found and found.speakers == {0: speaker}


async def hang(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    return await asyncio.Future()


async def without_numbers(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    return np.full((len(stretches), 4), np.nan, np.float32)


@pytest.mark.parametrize("network", [hang, without_numbers])
async def test_a_network_without_an_answer_or_with_a_defect_costs_labels_and_no_session(network: Embed) -> None:
    """Whatever fails beside the network, too, such as what comes of numbers that are not finite."""
    counts: Counter[str] = Counter()
    speakers = LiveClusters(THRESHOLDS, 4)
    voices = LiveVoices(SpeakerModel(network, THRESHOLDS), speakers, lambda name, n: counts.update({name: n}), 0.1)
    assert await voices.add((stretch(0),)) is None
    assert counts["failed"] == 1


class HangingNetwork:
    """Answers nothing before `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.sizes: list[int] = []

    def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        assert self.goes_on.wait(20)
        self.sizes += [len(each) for each in stretches]
        return np.eye(1, 4, dtype=np.float32).repeat(len(stretches), 0)


async def test_what_is_given_up_is_kept_no_longer() -> None:
    """While the network hangs, sessions give up and ask again: their audio must not pile up."""
    network = HangingNetwork()
    batcher = EmbedderBatcher(network.embed)
    first = asyncio.create_task(batcher.embed_live([np.zeros(1, np.float32)]))
    await asyncio.sleep(0)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await batcher.embed_live([np.zeros(2, np.float32)] * MAX_BATCH)
    assert not batcher._waiting_live
    network.goes_on.set()
    await first
    await batcher.embed([np.zeros(3, np.float32)])
    assert network.sizes == [1, 3]


async def test_files_are_done_while_live_sessions_use_the_network_fully() -> None:
    network = HangingNetwork()
    batcher = EmbedderBatcher(network.embed)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(batcher.embed_live([np.zeros(1, np.float32)] * 3 * MAX_BATCH))
        await asyncio.sleep(0)
        tasks.create_task(batcher.embed([np.zeros(2, np.float32)] * 2))
        await asyncio.sleep(0)
        network.goes_on.set()
    n_live = MAX_BATCH - 1
    assert network.sizes[: 3 * MAX_BATCH] == [*[1] * MAX_BATCH, *[1] * n_live, 2, *[1] * n_live, 2]
