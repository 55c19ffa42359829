"""Live sessions and the speaker network: what is answered, counted, and given up."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.media.pcm import Samples
from app.session.speaker_stretches import Stretch
from app.speakers.clustering import Thresholds
from app.speakers.embedder import MAX_BATCH, EmbedderBatcher
from app.speakers.live import LiveSpeakers, LiveVoices
from app.speakers.model import SpeakerModel
from app.speakers.online import OnlineSpeakers

THRESHOLDS = Thresholds(joins=0.5, knows=0.6)


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


async def test_a_network_without_an_answer_is_given_up() -> None:
    async def hang(stretches: Sequence[Samples]) -> NDArray[np.float32]:
        return await asyncio.Future()

    counts: Counter[str] = Counter()
    speakers = OnlineSpeakers(THRESHOLDS, 4)
    voices = LiveVoices(SpeakerModel(hang, THRESHOLDS), speakers, lambda name, n: counts.update({name: n}), 0.01)
    assert await voices.add((stretch(0),)) is None
    assert counts["failed"] == 1


async def test_live_stretches_go_before_those_of_files() -> None:
    order: list[int] = []

    class Network:
        def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
            order.extend(len(each) for each in stretches)
            return np.eye(1, 4, dtype=np.float32).repeat(len(stretches), 0)

    batcher = EmbedderBatcher(Network())
    first = [np.zeros(1, np.float32)] * MAX_BATCH
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(batcher.embed([*first, np.zeros(2, np.float32)]))
        await asyncio.sleep(0)
        tasks.create_task(batcher.embed_live([np.zeros(3, np.float32)]))
    assert order == [1] * MAX_BATCH + [3, 2]
