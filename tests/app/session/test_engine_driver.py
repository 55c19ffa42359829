"""The shell of a session: how long it waits for the engine, and how it asks the turn model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from tests.bench import CONFIG, START
from tests.fakes import MODEL, FakeTranscriber, pcm, said, silence, speech
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import LimitSpeakers
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.observers.speaker_stretches import SpeakersFound, Stretch
from tutti_server.app.session.session import Session
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api

ADAPTIVE = commands.Endpointing(mode="adaptive", min_silence_ms=160, end_confidence=0.4)


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


class Sent(list[events.Event]):
    """The events of a session; tells when an utterance has ended, and when all has."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended, self.closed = asyncio.Event(), asyncio.Event()

    def append(self, event: events.Event) -> None:
        super().append(event)
        if isinstance(event, events.Utterance):
            self.has_ended.set()

    def driver(
        self,
        tasks: asyncio.TaskGroup,
        transcriber: FakeTranscriber,
        config: SessionConfig = CONFIG,
        deadline_s: float | None = None,
    ) -> SessionDriver:
        """The shell of a session that sends them."""
        session = Session("s", MODEL, config)
        return SessionDriver(session, transcriber, tasks, self.append, lambda _: self.closed.set(), deadline_s)


async def test_other_tasks_run_while_text_rules_are_compiled() -> None:
    rules = TextRuleOptions(replace=(("cuba nets", "Kubernetes"),))
    async with asyncio.TaskGroup() as tasks:
        driver = Sent().driver(tasks, FakeTranscriber())
        starting = tasks.create_task(driver.start(replace(START, text_rules=rules)))
        await asyncio.sleep(0)
        assert not driver.session.is_open
        await starting
        assert driver.session.is_open


async def test_an_interim_is_dropped_at_the_deadline() -> None:
    """The session goes on, and gets its final text when the engine answers again."""
    transcriber, sent = StallingTranscriber(), Sent()
    async with asyncio.TaskGroup() as tasks:
        driver = sent.driver(tasks, transcriber, deadline_s=0.01)
        driver.receive(START)
        driver.receive(commands.Audio(pcm(speech([1, 2, 3]))))
        await transcriber.withdrawn.wait()
        transcriber.release()
        driver.receive(commands.Stop())
        await sent.closed.wait()
    assert [event.text for event in sent if isinstance(event, events.Utterance)] == [said([1, 2, 3])]
    assert isinstance(sent[-1], events.Stopped)


async def test_a_file_waits_as_long_as_it_takes() -> None:
    """Without a deadline no window is withdrawn."""
    transcriber, sent = StallingTranscriber(), Sent()
    async with asyncio.TaskGroup() as tasks:
        driver = sent.driver(tasks, transcriber)
        driver.receive(START)
        driver.receive(commands.Audio(pcm(speech([1, 2, 3]))))
        driver.receive(commands.Stop())
        await transcriber.opened.wait()
        assert not transcriber.withdrawn.is_set()
        transcriber.release()
        await sent.closed.wait()
    assert isinstance(sent[-1], events.Stopped)


class HeldScorer:
    """A turn model that answers when the test lets it."""

    def __init__(self, answer: float | None) -> None:
        self.answer = answer
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.n_asked = self.n_cancelled = 0

    async def __call__(self, samples: Samples) -> float | None:
        self.n_asked += 1
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise
        return self.answer


async def talk(scorer: HeldScorer, tasks: asyncio.TaskGroup, sent: Sent) -> SessionDriver:
    """A session whose engine has answered in its first pause, and whose turn model was asked."""
    transcriber = StallingTranscriber()
    transcriber.release()
    driver = sent.driver(tasks, transcriber, replace(CONFIG, speculates=True, score_turn=scorer))
    driver.receive(replace(START, interim=False, endpointing=ADAPTIVE))
    driver.receive(commands.Audio(pcm(np.concatenate((speech([1, 2, 3]), silence(0.36))))))
    await scorer.asked.wait()
    return driver


async def test_an_answer_of_the_turn_model_reaches_the_session() -> None:
    """The silence so far is enough, once the text is there and the model takes the turn for ended."""
    scorer, sent = HeldScorer(1.0), Sent()
    async with asyncio.TaskGroup() as tasks:
        await talk(scorer, tasks, sent)
        assert not any(isinstance(event, events.Endpoint) for event in sent)
        scorer.may_answer.set()
        await sent.has_ended.wait()
    assert scorer.n_asked == 1


async def test_a_newer_pause_takes_the_place_of_one_that_waits_for_the_turn_model() -> None:
    """One pause of a channel at a time; none is waited for when the session is over."""
    scorer, sent = HeldScorer(1.0), Sent()
    async with asyncio.TaskGroup() as tasks:
        driver = await talk(scorer, tasks, sent)
        scorer.asked.clear()
        driver.receive(commands.Audio(pcm(np.concatenate((speech([4, 5, 6]), silence(0.2))))))
        await scorer.asked.wait()
        assert (scorer.n_asked, scorer.n_cancelled) == (2, 1)
        driver.receive(commands.Stop())
        await sent.has_ended.wait()
        driver.cancel_windows()
    assert scorer.n_cancelled == 2


class SilentVoices:
    """Never answers."""

    asked: asyncio.Event

    def open(self, max_speakers: int, voices: str) -> "SilentVoices":
        self.asked = asyncio.Event()
        return self

    async def add(self, stretches: tuple[Stretch, ...]) -> SpeakersFound | None:
        self.asked.set()
        return await asyncio.Future()


async def test_a_session_ends_without_its_last_speakers_when_they_take_too_long() -> None:
    """Its text is final by then, and no task is left."""
    sent, voices = Sent(), SilentVoices()
    async with asyncio.TaskGroup() as tasks:
        driver = sent.driver(tasks, FakeTranscriber(), replace(CONFIG, speaker_teller=voices))
        driver.receive(replace(START, max_speakers=4))
        driver.receive(commands.Audio(pcm(np.concatenate((speech([*range(1, 13)]), silence(0.9))))))
        driver.receive(commands.Stop())
        await voices.asked.wait()
        await sent.has_ended.wait()
        assert not sent.closed.is_set()
        driver.perform([LimitSpeakers(0.0)])
        await sent.closed.wait()
        driver.cancel_windows()
    *_, late, stopped = sent
    assert isinstance(late, events.Notice) and late.code == "speakers_late"
    assert isinstance(stopped, events.Stopped)
