"""The calls of a turn model for several sessions together."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.turn_batcher import MAX_BATCH, TurnBatcher

PATIENCE_S = 20.0


class HeldModel:
    """Returns the first sample of each pause, when the test lets it. Fails for audio without samples."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.called, self.may_end = threading.Event(), threading.Event()

    def score(self, pauses: Sequence[Samples]) -> list[float]:
        self.batches.append(len(pauses))
        self.called.set()
        assert self.may_end.wait(PATIENCE_S)
        return [float(each[0]) for each in pauses]


def sound(value: float) -> Samples:
    return np.array([value], np.float32)


async def test_pauses_that_come_during_a_call_share_the_next_one() -> None:
    """Each gets its own answer."""
    model = HeldModel()
    batcher = TurnBatcher(model.score)
    tasks = [asyncio.create_task(batcher.score(sound(0.125 * at))) for at in range(1, 6)]
    await asyncio.to_thread(model.called.wait, PATIENCE_S)
    model.may_end.set()
    assert await asyncio.gather(*tasks) == [0.125, 0.25, 0.375, 0.5, 0.625]
    assert model.batches == [1, 4]


async def test_a_call_is_not_for_too_many() -> None:
    """Those that have waited longest come first, and all get an answer."""
    model = HeldModel()
    model.may_end.set()
    batcher = TurnBatcher(model.score)
    values = [index / 64 for index in range(2 * MAX_BATCH)]
    assert await asyncio.gather(*(batcher.score(sound(value)) for value in values)) == values
    assert model.batches == [1, MAX_BATCH, MAX_BATCH - 1]


async def test_a_session_that_leaves_does_not_take_the_others_along() -> None:
    """Neither the one whose call runs, nor one that still waits, whose audio is then not scored."""
    model = HeldModel()
    batcher = TurnBatcher(model.score)
    first, second, third = (asyncio.create_task(batcher.score(sound(value))) for value in (0.25, 0.5, 0.75))
    await asyncio.to_thread(model.called.wait, PATIENCE_S)
    first.cancel()
    second.cancel()
    await asyncio.wait((first, second))
    model.may_end.set()
    assert await third == 0.75 and first.cancelled() and second.cancelled()
    assert model.batches == [1, 1]


async def test_a_failure_is_logged_once_and_gives_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The pauses after it are scored."""
    model = HeldModel()
    model.may_end.set()
    batcher = TurnBatcher(model.score)
    with caplog.at_level(logging.WARNING):
        assert [await batcher.score(sound(0.5)[:0]) for _ in range(2)] == [None, None]
    (line,) = caplog.records
    assert "judged by their text only" in line.message and line.exc_info
    assert await batcher.score(sound(0.5)) == 0.5
