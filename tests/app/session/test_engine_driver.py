"""The shell of a session: how long it waits for the engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from app.session import commands, events
from app.session.engine_driver import SessionDriver
from app.session.session import Session
from engine import api
from tests.bench import CONFIG, START
from tests.fakes import MODEL, FakeTranscriber, pcm, said, silence, speech


@dataclass
class StallingTranscriber(FakeTranscriber):
    """Answers nothing until it is released, and notes that a window was withdrawn."""

    holds: bool = True
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def submit(self, window: api.Window) -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
        async with super().submit(window) as answers:
            try:
                yield answers
            finally:
                self.withdrawn.set()


@pytest.fixture(autouse=True)
async def time_limit() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


async def test_a_final_is_waited_for_until_its_deadline() -> None:
    """Then the session ends with the text it has, the window is withdrawn, and the client is not held up."""
    transcriber, closed = StallingTranscriber(), asyncio.Event()
    sent: list[events.Event] = []
    async with asyncio.TaskGroup() as tasks:
        session = Session("s", MODEL, CONFIG)
        driver = SessionDriver(session, transcriber, tasks, sent.append, lambda _: closed.set(), 0.01)
        driver.receive(START)
        driver.receive(commands.Audio(pcm(np.concatenate((speech([1, 2, 3]), silence(0.6))))))
        await closed.wait()
        await driver.room()
    *_, utterance, failure = sent
    assert isinstance(utterance, events.Utterance) and isinstance(failure, events.Failure)
    assert (utterance.final_until_s, utterance.text) == (0.0, "")
    assert (failure.code, failure.is_fatal) == ("engine_stalled", True)
    assert transcriber.n_open == 0


async def test_an_interim_is_dropped_at_the_deadline() -> None:
    """The session goes on, and gets its final text when the engine answers again."""
    transcriber, closed = StallingTranscriber(), asyncio.Event()
    sent: list[events.Event] = []
    async with asyncio.TaskGroup() as tasks:
        session = Session("s", MODEL, CONFIG)
        driver = SessionDriver(session, transcriber, tasks, sent.append, lambda _: closed.set(), 0.01)
        driver.receive(START)
        driver.receive(commands.Audio(pcm(speech([1, 2, 3]))))
        await transcriber.withdrawn.wait()
        transcriber.release()
        driver.receive(commands.Stop())
        await closed.wait()
    assert [event.text for event in sent if isinstance(event, events.Utterance)] == [said([1, 2, 3])]
    assert isinstance(sent[-1], events.Stopped)


async def test_a_file_waits_as_long_as_it_takes() -> None:
    """Without a deadline no window is withdrawn."""
    transcriber, closed = StallingTranscriber(), asyncio.Event()
    sent: list[events.Event] = []
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(Session("s", MODEL, CONFIG), transcriber, tasks, sent.append, lambda _: closed.set())
        driver.receive(START)
        driver.receive(commands.Audio(pcm(speech([1, 2, 3]))))
        driver.receive(commands.Stop())
        await transcriber.opened.wait()
        assert not transcriber.withdrawn.is_set()
        transcriber.release()
        await closed.wait()
    assert isinstance(sent[-1], events.Stopped)
