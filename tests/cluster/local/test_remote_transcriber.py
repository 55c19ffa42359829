"""A transcriber whose engine is elsewhere: what it says, what it frees, and what becomes of it when engines die."""

import asyncio
from collections.abc import Iterator
from itertools import count, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.local.messages import Mark
from cluster.local.shared_audio import BLOCK_SAMPLES, ArenaFull
from engine.api import (
    DecodeOptions,
    DoneEvent,
    EngineEvent,
    Priority,
    SegmentEvent,
    SupersededEvent,
    Transcriber,
    Window,
)
from engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from engine.errors import EngineError, EngineFailed, EngineOverloaded, InvalidWindow
from tests.cluster.local.conftest import N_BLOCKS, DyingTranscriber, HaltingTranscriber, Pair, paired
from tests.engine.conftest import start_engine
from tests.engine.fakes import FakeRunner
from tests.fakes import FakeTranscriber, decode, speech


def window(numbers: Iterator[int] | range = range(3), priority: Priority = Priority.FINAL, **options: object) -> Window:
    # Pauses so long that every word is a segment.
    return Window(
        samples=speech(numbers, gap_samples=8000),
        session="s",
        channel=0,
        priority=priority,
        options=DecodeOptions(**options),
    )  # type: ignore[arg-type]


async def collect(transcriber: Transcriber, window: Window) -> list[EngineEvent]:
    async with transcriber.submit(window) as events:
        return [event async for event in events]


@pytest.fixture(scope="module")
def demo() -> Checkpoint:
    return read_checkpoint("tutti-demo")


@pytest.fixture
def runner(demo: Checkpoint) -> FakeRunner:
    """Every window is five words long."""
    tokenizer = demo.tokenizer
    first = tokenizer.first_timestamp
    tokens = [first, *tokenizer.encode(" this is a good morning"), first + 25, tokenizer.eot]
    return FakeRunner(demo, lambda _: iter([*tokens, *repeat(tokenizer.eot, 9)]))


# As near.


async def test_it_says_what_the_engine_says(pair: Pair) -> None:
    """Audio, options and events come through unchanged; nothing is left behind."""
    engine = FakeTranscriber()
    pair.start(engine)
    asked = window(language="de", word_times=True)
    assert await collect(pair.remote, asked) == decode(asked)
    (heard,) = engine.windows
    assert heard.options == asked.options and (heard.session, heard.priority) == ("s", Priority.FINAL)
    assert pair.remote.info == engine.info and pair.remote.is_alive
    await pair.until_free()


async def test_the_events_of_a_step_travel_together(pair: Pair, runner: FakeRunner) -> None:
    """Three windows of one batch end in one message, and no step needs two."""
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        pair.start(engine)
        busy = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        three = [asyncio.create_task(collect(pair.remote, window())) for _ in range(3)]
        await pair.until(lambda: engine.stats().waiting_finals == 3)
        pause.end()
        heard = await asyncio.gather(busy, *three)
        assert all(isinstance(events[-1], DoneEvent) for events in heard)
        assert pair.host
        answers = [reply for reply in pair.host.replies if isinstance(reply, list)]
        assert max(sum(isinstance(item, DoneEvent) for _, item in each) for each in answers) >= 3
        n_segments = sum(isinstance(event, SegmentEvent) for events in heard for event in events)
        assert sum(any(isinstance(item, SegmentEvent) for _, item in each) for each in answers) <= n_segments / 2
        await pair.until_free()
        await pair.kill()


async def test_what_cannot_be_decoded_is_refused_on_entry(pair: Pair, runner: FakeRunner) -> None:
    """Samples here, options by the engine, with the same error as there."""
    async with start_engine(runner) as engine:
        pair.start(engine)
        for bad in (Window(samples=np.zeros(0, np.float32), session="s"), window(language="xx"), window(prefix=(-1,))):
            with pytest.raises(InvalidWindow) as near:
                async with engine.submit(bad):
                    pytest.fail("taken")
            with pytest.raises(InvalidWindow) as far:
                async with pair.remote.submit(bad):
                    pytest.fail("taken")
            assert str(far.value) == str(near.value)
        await pair.until_free()
        await pair.kill()


async def test_a_full_queue_and_a_full_arena_refuse_on_entry(pair: Pair, runner: FakeRunner) -> None:
    async with start_engine(runner, max_waiting=1) as engine:
        pause = runner.pause("encode")
        pair.start(engine)
        first = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        second = asyncio.create_task(collect(pair.remote, window()))
        await pair.until(lambda: engine.stats().waiting_finals == 1)
        with pytest.raises(EngineOverloaded, match="the limit is 1"):
            await collect(pair.remote, window())
        n_free = N_BLOCKS - pair.arena.n_taken
        with pytest.raises(ArenaFull):
            await collect(pair.remote, Window(samples=np.zeros((n_free + 1) * BLOCK_SAMPLES, np.float32), session="s"))
        pause.end()
        await asyncio.gather(first, second)
        await pair.until_free()
        await pair.kill()


@pytest.mark.parametrize("stage", ["encode", "prefill", "step"])
async def test_leaving_at_any_stage_frees_all(pair: Pair, demo: Checkpoint, stage: str) -> None:
    """The audio is given back once the engine says that it has let go."""
    runner = FakeRunner(demo, lambda _: count(300))
    async with start_engine(runner) as engine:
        pause = runner.pause(stage)
        pair.start(engine)
        task = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pair.arena.n_taken > 0
        await pair.until_free()
        assert pair.host and any(isinstance(reply, list) and reply[-1][1] is Mark.LEFT for reply in pair.host.replies)
        pause.end()
        await collect(pair.remote, window(max_tokens=1))
        assert runner.slots.n_free == 4
        await pair.until_free()
        await pair.kill()


async def test_leaving_before_the_engine_has_answered_frees_all(pair: Pair) -> None:
    engine = FakeTranscriber(holds=True)
    pair.start(engine)
    task = asyncio.create_task(collect(pair.remote, window()))
    await asyncio.sleep(0)
    assert pair.arena.n_taken > 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await pair.until_free()
    assert engine.n_open == 0


async def test_counters_are_those_of_the_engine(pair: Pair, runner: FakeRunner) -> None:
    """They come by themselves; of an engine that has died nothing runs."""
    async with start_engine(runner) as engine:
        pair.start(engine)
        await collect(pair.remote, window())
        pair.host.replies.clear()  # type: ignore[union-attr]
        await pair.until(lambda: pair.remote.stats().windows_done == 1)
        assert pair.remote.stats() == engine.stats()
        await pair.kill()
    assert pair.remote.stats().windows_done == 1


# When engines die.


async def test_a_final_goes_on_where_it_was(pair: Pair) -> None:
    """The engine dies after two of five events; the next one says all of them, and each is heard once."""
    asked = window()
    pair.start(HaltingTranscriber(halt_after=2))
    async with pair.remote.submit(asked) as events:
        heard = [await anext(events), await anext(events)]
        await pair.kill()
        assert not pair.remote.is_alive
        pair.start(FakeTranscriber())
        heard += [event async for event in events]
    assert heard == decode(asked)
    await pair.until_free()


async def test_a_final_waits_for_an_engine(pair: Pair) -> None:
    """One that comes while there is none is decoded by the next."""
    pair.start(FakeTranscriber())
    await pair.kill()
    task = asyncio.create_task(collect(pair.remote, window()))
    await pair.until(lambda: pair.arena.n_taken > 0)
    pair.start(FakeTranscriber())
    assert await task == decode(window())


async def test_leaving_while_there_is_no_engine_frees_all(pair: Pair) -> None:
    pair.start(HaltingTranscriber())
    async with pair.remote.submit(window()) as events:
        await anext(events)
        await pair.kill()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(collect(pair.remote, window()))
            await pair.until(lambda: pair.arena.n_taken > 4)
            waiting.cancel()
    assert pair.arena.n_taken == 0


async def test_interims_are_let_go(pair: Pair) -> None:
    """Those that an engine had when it died, and those that come while there is none; another follows soon."""
    pair.start(HaltingTranscriber())
    async with pair.remote.submit(window(priority=Priority.INTERIM)) as events:
        await anext(events)
        await pair.kill()
        assert [event async for event in events] == [SupersededEvent()]
    assert await collect(pair.remote, window(priority=Priority.INTERIM)) == [SupersededEvent()]
    assert pair.arena.n_taken == 0


async def test_a_window_that_two_engines_died_of_is_given_up(pair: Pair) -> None:
    """It is not tried a third time, and says why; one that came later goes on."""
    pair.start(HaltingTranscriber())
    async with pair.remote.submit(window()) as poison:
        await anext(poison)
        await pair.kill()
        pair.start(HaltingTranscriber())
        async with pair.remote.submit(window(range(5))) as other:
            assert await anext(other)
            await pair.kill()
            with pytest.raises(EngineFailed, match="died 2 times"):
                await anext(poison)
            pair.start(FakeTranscriber())
            assert isinstance([event async for event in other][-1], DoneEvent)
    await pair.until_free()


async def test_a_window_that_engines_die_of_takes_no_other_with_it(pair: Pair) -> None:
    """What was open beside it is tried by itself, and lives."""
    pair.start(HaltingTranscriber())
    poison, *others = [asyncio.create_task(collect(pair.remote, window(range(n)))) for n in (1, 2, 3)]
    await pair.until(lambda: pair.host is not None and pair.host.n_open == 3)
    await pair.kill()
    pair.start(DyingTranscriber())
    await pair.ended()
    with pytest.raises(EngineFailed, match="died 2 times"):
        await poison
    pair.start(FakeTranscriber())
    assert await asyncio.gather(*others) == [decode(window(range(n))) for n in (2, 3)]


async def test_text_that_was_handed_out_is_never_taken_back(pair: Pair) -> None:
    """An engine that reads the window differently after the restart ends it with an error."""
    pair.start(HaltingTranscriber(halt_after=3))
    async with pair.remote.submit(window()) as events:
        for _ in range(3):
            await anext(events)
        await pair.kill()
        pair.start(FakeTranscriber(lost={0}))
        with pytest.raises(EngineFailed, match="differently"):
            await anext(events)
    await pair.until_free()


async def test_an_engine_that_fails_by_itself_ends_its_process(pair: Pair, runner: FakeRunner) -> None:
    """Its windows hear nothing of it, and are answered by the next engine."""
    runner.faults["step"] = RuntimeError("device-side assert")
    async with start_engine(runner) as engine:
        pair.start(engine)
        task = asyncio.create_task(collect(pair.remote, window()))
        await pair.ended()
    pair.start(FakeTranscriber())
    assert isinstance((await task)[-1], DoneEvent)


async def test_without_hope_all_fail(pair: Pair) -> None:
    """What is open and what comes: there will be no engine any more."""
    pair.start(HaltingTranscriber())
    async with pair.remote.submit(window()) as events:
        await anext(events)
        pair.remote.close("the engine has died 5 times while it started")
        for _ in range(2):
            with pytest.raises(EngineFailed, match="5 times"):
                await anext(events)
    with pytest.raises(EngineFailed, match="5 times"):
        await collect(pair.remote, window())
    assert pair.arena.n_taken == 0


async def test_what_a_dead_gateway_had_open_is_cancelled(pair: Pair) -> None:
    """The engine frees it, and hears no last words."""
    engine = FakeTranscriber(holds=True)
    pair.start(engine)
    task = asyncio.create_task(collect(pair.remote, window()))
    await pair.until(lambda: engine.n_open == 1)
    assert pair.host
    pair.host.disconnect(pair.route)
    await pair.until(lambda: engine.n_open == 0)
    later = asyncio.create_task(collect(pair.remote, window()))
    # Behind the window, so that it has been read by then.
    n_asked = len(engine.windows)
    await pair.kill()
    assert len(engine.windows) == n_asked
    task.cancel()
    later.cancel()
    await asyncio.gather(task, later, return_exceptions=True)


STEPS = st.lists(
    st.sampled_from(["final", "interim", "leave", "kill", "start", "start halting", "turn"]), min_size=3, max_size=25
)


@settings(max_examples=40)
@given(STEPS)
def test_in_any_order_each_window_ends_once_and_nothing_is_left(steps: list[str]) -> None:
    """Windows come and leave, engines come and die: who stays hears the whole story once, or a clear error."""
    asyncio.run(_run(steps))


async def _run(steps: list[str]) -> None:
    async with paired() as pair:
        tasks: list[asyncio.Task[list[EngineEvent]]] = []
        for step in [*steps, "kill", "start"]:
            match step:
                case "final" | "interim":
                    asked = window(priority=Priority.FINAL if step == "final" else Priority.INTERIM)
                    tasks.append(asyncio.create_task(collect(pair.remote, asked)))
                case "leave" if tasks:
                    tasks[len(tasks) // 2].cancel()
                case "kill":
                    await pair.kill()
                case "start" | "start halting" if not pair.remote.is_alive:
                    pair.start(FakeTranscriber() if step == "start" else HaltingTranscriber(halt_after=2))
            for _ in range(8):
                await asyncio.sleep(0)
        for heard in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(heard, BaseException):
                assert isinstance(heard, asyncio.CancelledError | EngineError)
            else:
                assert heard[-1] == SupersededEvent() or heard == decode(window())
        await pair.until_free()
