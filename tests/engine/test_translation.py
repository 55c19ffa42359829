"""Text and translation of a window from one encoding: what is decoded, in which order, and what happens under load."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.checkpoints import SHAPES, make_checkpoint
from tests.engine.engines import Samples, collect, kinds, noise, start_engine
from tests.engine.engines import window as plain_window
from tests.engine.fakes import FakeRunner, Pause
from tutti_server.engine.api import (
    DecodeOptions,
    DoneEvent,
    EngineEvent,
    SegmentEvent,
    StartedEvent,
    TranslatedEvent,
    Window,
)
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.errors import InvalidWindow
from tutti_server.engine.runner import Runner
from tutti_server.engine.scheduling import sequences

pytestmark = pytest.mark.usefixtures("patience", "no_pauses")

TRANSLATED = [StartedEvent, SegmentEvent, DoneEvent, TranslatedEvent]


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window waits too long to be translated, however busy the machine is."""
    monkeypatch.setattr(sequences, "MAX_QUEUED_S", math.inf)


def window(session: str = "", **options: Any) -> Window:
    return plain_window(session, **{"language": "de", "translates": True, **options})


def translation(events: list[EngineEvent]) -> DoneEvent:
    """The translation that ends these events."""
    last = events[-1]
    assert isinstance(last, TranslatedEvent) and last.done
    return last.done


async def test_the_translation_follows_the_text_from_the_same_encoding(runner: FakeRunner) -> None:
    """One encoder call, one slot, two prompts. The second has the task, the language, and nothing of the first."""
    asked = window(previous_text="before", hotwords=("name",), word_times=True)
    async with start_engine(runner) as engine:
        events = await collect(engine, asked)
        assert engine.stats().windows_done == 1
    assert kinds(events) == TRANSLATED
    done = events[2]
    assert isinstance(done, DoneEvent) and done.translation_follows
    assert len(runner.encoded) == 1 and len(runner.encoded[0]) == 1
    (_, _), (prompt, _) = runner.prefilled
    tokenizer = runner.checkpoint.tokenizer
    assert prompt.tokens == (tokenizer.sot, runner.checkpoint.generation.languages["de"], tokenizer.translate)
    assert not prompt.hotwords
    assert translation(events).text == " good morning" and translation(events).language == "de"
    assert runner.slots.n_free == 4


async def reach_translation(runner: FakeRunner, events: AsyncIterator[EngineEvent]) -> Pause:
    """Receive the text of a window, and hold the engine where the prefill of the translation begins."""
    first = runner.pause("prefill")
    assert kinds([await anext(events)]) == [StartedEvent]
    await first.reached()
    second = runner.pause("prefill")
    first.end()
    assert kinds([await anext(events), await anext(events)]) == [SegmentEvent, DoneEvent]
    await second.reached()
    return second


@pytest.mark.parametrize("options", [{"translates": False}, {"language": "en"}, {"language": None}])
async def test_english_is_not_translated(runner: FakeRunner, options: dict[str, Any]) -> None:
    """Neither where the caller names it nor where it is detected; and nothing is, unless it is asked for."""
    async with start_engine(runner) as engine:
        events = await collect(engine, window(**options))
    assert kinds(events) == [StartedEvent, SegmentEvent, DoneEvent]
    assert len(runner.prefilled) == 1 and runner.slots.n_free == 4


async def test_a_translation_leaves_slots_free_for_finals(runner: FakeRunner) -> None:
    """Of four slots one is reserved. Four windows end in one step: one of them gives its slot back at once."""
    async with start_engine(runner, max_wait_ms=1000) as engine:
        async with asyncio.TaskGroup() as tasks:
            collecting = [tasks.create_task(collect(engine, window(f"{index}"))) for index in range(4)]
        events = [each.result() for each in collecting]
    assert runner.prefill_sizes == [4, 3]
    assert [kinds(each) for each in events] == [TRANSLATED] * 4
    assert [each[-1] == TranslatedEvent(None) for each in events].count(True) == 1
    assert runner.slots.n_free == 4


async def test_a_window_that_waited_long_is_not_translated(runner: FakeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is behind makes texts, and no translations."""
    monkeypatch.setattr(sequences, "MAX_QUEUED_S", -1.0)
    async with start_engine(runner) as engine:
        events = await collect(engine, window())
    assert kinds(events) == TRANSLATED and events[-1] == TranslatedEvent(None)
    assert len(runner.prefilled) == 1 and runner.slots.n_free == 4


async def test_a_caller_that_leaves_ends_the_translation(runner: FakeRunner) -> None:
    """It has the text while the prompt of the translation is not even prefilled. The window is not counted twice."""
    async with start_engine(runner) as engine:
        async with engine.submit(window()) as events:
            pause = await reach_translation(runner, events)
        pause.end()
        await collect(engine, window(translates=False))
        stats = engine.stats()
    assert (stats.windows_done, stats.windows_cancelled) == (2, 0)
    assert runner.slots.n_free == 4


async def test_a_failed_step_drops_the_translation_of_a_text_that_is_out(runner: FakeRunner) -> None:
    """The text is not decoded again for it."""
    async with start_engine(runner) as engine:
        async with engine.submit(window()) as events:
            pause = await reach_translation(runner, events)
            runner.fail_once("prefill", RuntimeError("no memory"))
            pause.end()
            assert [event async for event in events] == [TranslatedEvent(None)]
        assert kinds(await collect(engine, window())) == TRANSLATED
    assert len(runner.encoded) == 2 and runner.slots.n_free == 4


async def test_a_model_without_the_task_refuses(small_checkpoint: Checkpoint) -> None:
    """An English-only vocabulary has no translation."""
    english = replace(small_checkpoint, generation=replace(small_checkpoint.generation, is_multilingual=False))
    fake = FakeRunner(english, lambda _: iter(()))
    async with start_engine(fake) as engine:
        with pytest.raises(InvalidWindow, match="translates"):
            async with engine.submit(window(language="en")):
                pass


@pytest.fixture(
    scope="module",
    params=[pytest.param(SHAPES[0], marks=pytest.mark.nightly), replace(SHAPES[1], max_target_positions=64)],
    ids=lambda shape: shape.name,
)
def multilingual_runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = make_checkpoint(tmp_path_factory.mktemp("translation"), request.param)
    return Runner(read_checkpoint(str(folder)), EngineConfig(n_slots=8))


async def test_translated_tokens_equal_those_of_a_separate_window(
    multilingual_runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of a batch give text and translation with one encoding each, as two windows would with two."""
    runner, n_encoded = multilingual_runner, 0
    encode = runner.begin_encoding

    def count(windows: list[Samples], slots: list[int], are_interims: Sequence[bool]) -> None:
        nonlocal n_encoded
        n_encoded += len(windows)
        encode(windows, slots, are_interims)

    monkeypatch.setattr(runner, "begin_encoding", count)

    def windows(**options: Any) -> list[Window]:
        chosen = DecodeOptions(language="de", **options)
        return [Window(samples=noise(seed), session=f"{seed}", options=chosen) for seed in range(3)]

    async with start_engine(runner) as engine:
        n_encoded = 0
        both = await asyncio.gather(*(collect(engine, each) for each in windows(translates=True)))
        assert n_encoded == 3
        texts = await asyncio.gather(*(collect(engine, each) for each in windows()))
        alone = await asyncio.gather(*(collect(engine, each) for each in windows(task="translate")))
    for translated, text, separate in zip(both, texts, alone, strict=True):
        done, expected = translated[-2], separate[-1]
        assert isinstance(done, DoneEvent) and isinstance(expected, DoneEvent)
        assert _decoded(done) == _decoded(text[-1]) != _decoded(expected)
        assert _decoded(translation(translated)) == _decoded(expected)


def _decoded(event: EngineEvent) -> tuple[tuple[tuple[int, ...], ...], str, int]:
    """What must not depend on the batch: the tokens, the text, and the number of steps."""
    assert isinstance(event, DoneEvent)
    return tuple(piece.tokens for piece in event.pieces), event.text, event.n_steps
