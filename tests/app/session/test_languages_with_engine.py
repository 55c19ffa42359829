"""Languages of a session with the real engine and a small multilingual checkpoint, whose weights are random.

Its text and its languages mean nothing. The tests show that policy and engine fit together.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.bench import CONFIG, START
from tests.engine.checkpoints import SHAPES, make_checkpoint
from tests.engine.engines import start_engine
from tests.fakes import GAP_SAMPLES, WORD_SAMPLES, pcm, silence, speech
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter
from tutti_server.app.session.text.language_choice import ChannelLanguage, LanguageRequest
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.runner import Runner

ANY_TEXT = HallucinationFilter(
    no_speech_threshold=1.0,
    text_logprob_threshold=-100.0,
    short_text_logprob_threshold=-100.0,
    silent_logprob_threshold=-100.0,
    after_refused_logprob_threshold=-100.0,
    dense_logprob_threshold=-100.0,
    first_word_logprob_threshold=-100.0,
    max_letters_per_s=1e6,
    max_repeated_letters_per_s=1e6,
    compression_ratio_threshold=100.0,
)
"""Lets the text of random weights through."""
CANDIDATES = ("de", "zh")
N_UTTERANCES = 5
N_WORDS = 8
"""Words of an utterance."""
SPEECH_S = (N_WORDS * (WORD_SAMPLES + GAP_SAMPLES) - GAP_SAMPLES) / SAMPLE_RATE
"""Seconds of speech in an utterance."""


@pytest.fixture(scope="module")
def random_runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A checkpoint that knows English, German and Chinese."""
    torch.set_num_threads(1)
    folder = make_checkpoint(tmp_path_factory.mktemp("languages"), replace(SHAPES[0], max_target_positions=40))
    return Runner(read_checkpoint(str(folder)), EngineConfig(n_slots=4))


class Observed:
    """An engine whose windows and last events a test sees."""

    def __init__(self, engine: api.Transcriber) -> None:
        self.info = engine.info
        self.is_alive, self.is_lost = True, False
        self.problems = ()
        self.stats = engine.stats
        self.answers: list[tuple[api.Window, api.DoneEvent]] = []
        self._engine = engine

    def submit(self, window: api.Window) -> AbstractAsyncContextManager[AsyncIterator[api.EngineEvent]]:
        @asynccontextmanager
        async def submitted() -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
            async with self._engine.submit(window) as engine_events:
                yield self._observe(window, engine_events)

        return submitted()

    async def _observe(
        self, window: api.Window, engine_events: AsyncIterator[api.EngineEvent]
    ) -> AsyncIterator[api.EngineEvent]:
        async for event in engine_events:
            if isinstance(event, api.DoneEvent):
                self.answers.append((window, event))
            yield event


async def run(runner: Runner, start: commands.Start) -> tuple[list[events.Event], Observed]:
    """A session of some utterances: its events, and what the engine answered."""
    said: list[events.Event] = []
    closed = asyncio.Event()

    def close(_: Close) -> None:
        closed.set()

    audio = np.concatenate([part for _ in range(N_UTTERANCES) for part in (speech(range(N_WORDS)), silence(0.7))])
    async with start_engine(runner) as engine:
        observed = Observed(engine)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            session = Session("s_random", engine.info, replace(CONFIG, hallucination_filter=ANY_TEXT, beam_size=1))
            driver = SessionDriver(session, observed, tasks, said.append, close)
            driver.receive(start)
            for piece in np.array_split(audio, 40):
                driver.receive(commands.Audio(pcm(piece)))
                await asyncio.sleep(0)
            driver.receive(commands.Stop())
            await closed.wait()
    return said, observed


@pytest.mark.parametrize("interim", [False, True])
async def test_languages_are_chosen_among_the_candidates(random_runner: Runner, interim: bool) -> None:
    """The detector's probabilities are those of the candidates, and events have the language and its probability."""
    said, engine = await run(random_runner, replace(START, languages=CANDIDATES, interim=interim))
    assert engine.answers
    for window, done in engine.answers:
        assert done.language in CANDIDATES
        if window.options.languages:
            assert done.language_probabilities is not None
            assert set(done.language_probabilities) == set(CANDIDATES)
            assert sum(done.language_probabilities.values()) == pytest.approx(1)
    utterances = [event for event in said if isinstance(event, events.Utterance)]
    assert len(utterances) == N_UTTERANCES and any(each.text for each in utterances)
    for each in utterances:
        assert (each.language in CANDIDATES) == bool(each.text)
        assert (each.language_probability is not None) == bool(each.text)


async def test_a_locked_language_is_decoded_without_detection(random_runner: Runner) -> None:
    """From when there is enough evidence. Re-decodes, which are shown no prompt, never detect the language."""
    said, engine = await run(random_runner, replace(START, locks_language=True, interim=False, prompt="Hello."))
    finals = [(window.options, done) for window, done in engine.answers if window.options.previous_text]
    utterances = [event for event in said if isinstance(event, events.Utterance)]
    language = ChannelLanguage(LanguageRequest(candidates=engine.info.languages, locks=True))
    for (options, done), utterance in zip(finals, utterances, strict=True):
        assert (options.language is None) == language.is_detected
        if language.is_locked:
            assert done.language == language.evidence.language
        if utterance.text:
            language.add(done.language_probabilities, SPEECH_S)
