"""Sessions share calls of the network, no session waits for long, and no decision changes."""

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from tests.app.voices.test_silero import LevelModel
from tests.bench import START
from tests.fakes import MODEL, FakeTranscriber, LevelDetector, pcm, said, speech
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import events
from tutti_server.app.session.session import Session
from tutti_server.app.voices.detection_batcher import DetectionBatcher
from tutti_server.app.voices.silero import Judgement, SileroDetector, SileroModel, Stretch

SECOND = np.ones(16_000, dtype=np.float32)


class HeldModel(LevelModel):
    """A network that runs when the test allows it, and notes how many channels each call has."""

    def __init__(self) -> None:
        super().__init__()
        self.may_run = threading.Event()
        self.n_rows: list[int] = []
        self.has_begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def judge(self, stretches: Sequence[Stretch]) -> list[Judgement]:
        self.n_rows.append(len(stretches))
        self._loop.call_soon_threadsafe(self.has_begun.set)
        assert self.may_run.wait(20)
        return super().judge(stretches)


def is_ready(detector: SileroDetector) -> bool:
    return detector.look_ahead(SECOND) is None


async def test_callers_that_come_during_a_call_share_the_next_one() -> None:
    model = HeldModel()
    batcher, detectors = DetectionBatcher(model), [SileroDetector(model) for _ in range(5)]
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(batcher.detect([(detectors[0], SECOND)]))
        await model.has_begun.wait()
        for detector in detectors[1:4]:
            tasks.create_task(batcher.detect([(detector, SECOND)]))
        await asyncio.sleep(0)
        tasks.create_task(batcher.detect([(detectors[4], SECOND), (LevelDetector(), SECOND)]))
        await asyncio.sleep(0)
        assert not first.done()
        model.may_run.set()
    assert model.n_rows == [1, 4]
    assert all(map(is_ready, detectors))


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_caller_that_leaves_holds_up_no_other(is_running: bool) -> None:
    """Neither while it waits for its turn, nor while it runs the network for others: these judge by themselves."""
    model = HeldModel()
    batcher, detectors = DetectionBatcher(model), [SileroDetector(model) for _ in range(3)]
    calls = [asyncio.create_task(batcher.detect([(detector, SECOND)])) for detector in detectors]
    await model.has_begun.wait()
    calls[0 if is_running else 1].cancel()
    model.may_run.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, asyncio.CancelledError) for each in done) == 1
    assert is_ready(detectors[2]) or is_running
    for detector in detectors:
        assert detector.is_speech(SECOND[:600])


class Talk:
    """A session with Silero's detector over `model`."""

    def __init__(self, model: SileroModel, tasks: asyncio.TaskGroup) -> None:
        detect_ahead = DetectionBatcher(model).detect
        config = SessionConfig(make_detector=lambda: SileroDetector(model, 0.01), detect_ahead=detect_ahead)
        self.session = Session("s_test", MODEL, config)
        self.is_closed = asyncio.Event()
        self.texts: list[str] = []
        self.driver = SessionDriver(
            self.session,
            FakeTranscriber(),
            tasks,
            self.note,
            lambda close: self.is_closed.set(),
        )
        self.driver.receive(START)

    def note(self, event: events.Event) -> None:
        if isinstance(event, events.Utterance):
            self.texts.append(event.text)


async def test_audio_that_waits_for_its_detector_is_not_lost_when_the_session_ends() -> None:
    model = HeldModel()
    async with asyncio.TaskGroup() as tasks:
        talk = Talk(model, tasks)
        reading = tasks.create_task(talk.driver.receive_audio(pcm(speech([3, 4, 5, 6]))))
        await model.has_begun.wait()
        model.may_run.set()
        talk.driver.perform(talk.session.drain())
        await talk.is_closed.wait()
        await reading
    assert talk.texts == [said([3, 4, 5, 6])]
