"""Sessions share calls of the network, nobody waits for long, and no decision changes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import count

import numpy as np
import pytest

from app.session import commands, events
from app.session.engine_driver import SessionDriver
from app.session.session import Session, SessionConfig
from app.speech.detection_batcher import DetectionBatcher
from app.speech.silero import Judgement, SileroDetector, Stretch
from tests.app.speech.test_silero import LevelModel
from tests.bench import START
from tests.fakes import MODEL, FakeTranscriber, LevelDetector, pcm, said, silence, speech

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


@pytest.fixture(autouse=True)
async def time_limit() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


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


async def test_audio_without_a_whole_chunk_does_not_wait() -> None:
    model = HeldModel()
    await DetectionBatcher(model).detect([(SileroDetector(model), silence(0.02))])
    assert model.n_rows == []


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


async def test_a_session_gives_the_same_text_with_and_without_preparation() -> None:
    """Also the audio that waits for its detector when the server ends the session becomes text."""
    audio = np.concatenate((silence(0.3), speech([3, 4, 5, 6]), silence(0.8), speech([7, 8]), silence(0.1)))
    texts, numbers = [], count()
    for is_prepared in (False, True):
        model = HeldModel()
        model.may_run.set()
        config = SessionConfig(make_detector=lambda model=model: SileroDetector(model, 0.01))  # type: ignore[misc]
        if is_prepared:
            config = SessionConfig(make_detector=config.make_detector, detect_ahead=DetectionBatcher(model).detect)
        sent: list[events.Event] = []
        closed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            session = Session(f"s_{next(numbers)}", MODEL, config)
            driver = SessionDriver(
                session,
                FakeTranscriber(),
                tasks,
                sent.append,
                lambda _, closed=closed: closed.set(),  # type: ignore[misc]
            )
            driver.receive(START)
            for piece in np.array_split(audio, 7):
                await driver.receive_audio(pcm(piece))
            driver.receive(commands.Stop())
            await closed.wait()
        texts.append([event.text for event in sent if isinstance(event, events.Utterance)])
    assert texts[0] == texts[1] == [said([3, 4, 5, 6]), said([7, 8])]


async def test_audio_that_waits_for_its_detector_is_not_lost_when_the_session_ends() -> None:
    model = HeldModel()
    config = SessionConfig(
        make_detector=lambda: SileroDetector(model, 0.01), detect_ahead=DetectionBatcher(model).detect
    )
    sent: list[events.Event] = []
    closed = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        session = Session("s_test", MODEL, config)
        driver = SessionDriver(session, FakeTranscriber(), tasks, sent.append, lambda _: closed.set())
        driver.receive(START)
        reading = tasks.create_task(driver.receive_audio(pcm(speech([3, 4, 5, 6]))))
        await model.has_begun.wait()
        model.may_run.set()
        driver.perform(session.drain())
        await closed.wait()
        await reading
    assert [event.text for event in sent if isinstance(event, events.Utterance)] == [said([3, 4, 5, 6])]
