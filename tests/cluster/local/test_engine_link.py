"""The link to an engine in another process: its events, the audio it frees, and crashes of the engine."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.local.conftest import N_BLOCKS, HaltingTranscriber, Pair, paired
from tests.cluster.test_engine_pool import check_ends
from tests.engine.engines import collect, start_engine
from tests.engine.fakes import FakeRunner
from tests.fakes import FakeTranscriber, decode, speech, until
from tutti_server.cluster.local.messages import WindowStatus
from tutti_server.cluster.local.shared_audio import BLOCK_SAMPLES, AudioPoolFull
from tutti_server.engine.api import (
    WINDOW_SAMPLES,
    DecodeOptions,
    DoneEvent,
    EngineEvent,
    Priority,
    SegmentEvent,
    StartedEvent,
    Window,
)
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.errors import EngineOverloaded, InvalidWindow


def window(numbers: Iterator[int] | range = range(3), priority: Priority = Priority.FINAL, **options: object) -> Window:
    # The pauses are so long that every word is a segment.
    samples = speech(numbers, gap_samples=8000)
    return Window(samples=samples, session="s", priority=priority, options=DecodeOptions(**options))  # type: ignore[arg-type]


# While the engine lives.


async def test_it_passes_on_what_the_engine_sends(pair: Pair) -> None:
    """Audio, options and events arrive unchanged, and no audio stays in use."""
    engine = FakeTranscriber()
    pair.start(engine)
    submitted = window(language="de", word_times=True)
    assert await collect(pair.remote, submitted) == decode(submitted)
    (received,) = engine.windows
    assert received.options == submitted.options and (received.session, received.priority) == ("s", Priority.FINAL)
    assert pair.remote.info == engine.info and pair.remote.is_alive
    await pair.until_free()


async def test_the_events_of_a_step_travel_together(pair: Pair, runner: FakeRunner) -> None:
    """Three windows of one batch end in one message, and no engine step needs two messages."""
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        pair.start(engine)
        busy = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        three = [asyncio.create_task(collect(pair.remote, window())) for _ in range(3)]
        await until(lambda: engine.stats().waiting_finals == 3)
        pause.end()
        received = await asyncio.gather(busy, *three)
        ends = [done for *_, done in received if isinstance(done, DoneEvent)]
        assert len(ends) == len(received) and None not in {done.end_logprob for done in ends}
        assert pair.server
        replies = [reply for reply in pair.server.replies if isinstance(reply, list)]
        assert max(sum(isinstance(item, DoneEvent) for _, item in each) for each in replies) >= 3
        n_segments = sum(isinstance(event, SegmentEvent) for events in received for event in events)
        assert sum(any(isinstance(item, SegmentEvent) for _, item in each) for each in replies) <= n_segments / 2
        await pair.until_free()
        await pair.kill()


async def test_an_invalid_window_is_refused_on_entry(pair: Pair, runner: FakeRunner) -> None:
    """The gateway checks samples, the engine checks options; the error is the same as without a gateway."""
    async with start_engine(runner) as engine:
        pair.start(engine)
        for bad in (Window(samples=np.zeros(0, np.float32), session="s"), window(language="xx"), window(prefix=(-1,))):
            with pytest.raises(InvalidWindow) as local:
                async with engine.submit(bad):
                    pytest.fail("accepted")
            with pytest.raises(InvalidWindow) as remote:
                async with pair.remote.submit(bad):
                    pytest.fail("accepted")
            assert str(remote.value) == str(local.value)
        await pair.until_free()
        await pair.kill()


async def test_a_full_queue_and_a_full_pool_refuse_on_entry(pair: Pair, runner: FakeRunner) -> None:
    """Both raise an error that means "overloaded", for interims. A final waits until there is room."""
    async with start_engine(runner, max_waiting=1) as engine:
        pause = runner.pause("encode")
        pair.start(engine)
        first = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        second = asyncio.create_task(collect(pair.remote, window(priority=Priority.INTERIM)))
        await until(lambda: engine.stats().waiting_interims == 1)
        with pytest.raises(EngineOverloaded, match="the limit is 1"):
            await collect(pair.remote, replace(window(priority=Priority.INTERIM), session="other"))
        n_free = N_BLOCKS - pair.pool.n_used_blocks
        too_long = Window(samples=np.zeros((n_free + 1) * BLOCK_SAMPLES, np.float32), session="s")
        with pytest.raises(AudioPoolFull):
            await collect(pair.remote, replace(too_long, priority=Priority.INTERIM))
        third = asyncio.create_task(collect(pair.remote, too_long))
        pause.end()
        await asyncio.gather(first, second, third)
        await pair.until_free()
        await pair.kill()


@pytest.mark.parametrize("stage", ["encode", "prefill", "step"])
async def test_cancelling_at_any_stage_frees_all(pair: Pair, small_checkpoint: Checkpoint, stage: str) -> None:
    """The audio is freed when the engine reports that it has dropped the window."""
    runner = FakeRunner(small_checkpoint, lambda _: count(300))
    async with start_engine(runner) as engine:
        pause = runner.pause(stage)
        pair.start(engine)
        task = asyncio.create_task(collect(pair.remote, window()))
        await pause.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pair.pool.n_used_blocks > 0
        await pair.until_free()
        assert pair.server and any(
            isinstance(reply, list) and reply[-1][1] is WindowStatus.RELEASED for reply in pair.server.replies
        )
        pause.end()
        await collect(pair.remote, window(max_tokens=1))
        assert runner.slots.n_free == 4
        await pair.until_free()
        await pair.kill()


async def test_a_final_waits_for_the_room_of_cancelled_windows(pair: Pair) -> None:
    """All sessions but one have just ended; the engine has not answered yet that it does not read their audio."""
    pair.start(HaltingTranscriber())
    large = Window(samples=np.zeros(WINDOW_SAMPLES, np.float32), session="s")
    cancelled = asyncio.create_task(collect(pair.remote, large))
    await until(lambda: pair.pool.n_used_blocks > 0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert pair.pool.n_used_blocks > N_BLOCKS / 2
    async with pair.remote.submit(large) as events:
        assert isinstance(await anext(events), StartedEvent)
    await pair.until_free()


async def test_counters_are_those_of_the_engine(pair: Pair, runner: FakeRunner) -> None:
    """They are updated without a request of the session. Of an engine that has died, no window runs."""
    async with start_engine(runner) as engine:
        pair.start(engine)
        await collect(pair.remote, window())
        assert pair.server
        pair.server.replies.clear()
        await until(lambda: pair.remote.stats().windows_done == 1)
        assert pair.remote.stats() == engine.stats()
        await pair.kill()
    assert pair.remote.stats().windows_done == 1


# When engines die.


async def test_cancelling_while_there_is_no_engine_frees_all(pair: Pair) -> None:
    """Both a window that a dead engine had, and one that no engine had: its audio is not shared before."""
    pair.start(HaltingTranscriber())
    had = asyncio.create_task(collect(pair.remote, window()))
    await until(lambda: pair.server is not None and pair.server.n_open == 1)
    await pair.kill()
    n_shared = pair.pool.n_used_blocks
    waiting = asyncio.create_task(collect(pair.remote, window()))
    await asyncio.sleep(0)
    assert pair.pool.n_used_blocks == n_shared
    for task in (had, waiting):
        task.cancel()
    await asyncio.gather(had, waiting, return_exceptions=True)
    assert had.cancelled() and waiting.cancelled() and pair.pool.n_used_blocks == 0


async def test_an_engine_that_fails_by_itself_ends_its_process(pair: Pair, runner: FakeRunner) -> None:
    """Its windows receive no error, and the next engine answers them."""
    runner.faults["step"] = RuntimeError("device-side assert")
    async with start_engine(runner) as engine:
        pair.start(engine)
        task = asyncio.create_task(collect(pair.remote, window()))
        await pair.ended()
    assert not pair.remote.is_alive
    pair.start(FakeTranscriber())
    assert isinstance((await task)[-1], DoneEvent)


async def test_the_windows_of_a_dead_gateway_are_cancelled(pair: Pair) -> None:
    """The engine frees them, and ignores messages that the gateway sent before it died."""
    engine = FakeTranscriber(holds=True)
    pair.start(engine)
    task = asyncio.create_task(collect(pair.remote, window()))
    await until(lambda: engine.n_open == 1)
    assert pair.server
    pair.server.disconnect(pair.route)
    await until(lambda: engine.n_open == 0)
    later = asyncio.create_task(collect(pair.remote, window()))
    n_submitted = len(engine.windows)
    await pair.kill()
    assert len(engine.windows) == n_submitted
    task.cancel()
    later.cancel()
    await asyncio.gather(task, later, return_exceptions=True)


STEPS = st.lists(
    st.sampled_from(["final", "interim", "cancel", "kill", "start", "start halting", "turn"]), min_size=3, max_size=25
)


@given(STEPS)
def test_in_any_order_each_window_ends_once_and_all_is_freed(steps: list[str]) -> None:
    """Windows open and are cancelled, engines start and die: each window gets all events once, or an error."""
    asyncio.run(_run(steps))


async def _run(steps: list[str]) -> None:
    async with paired() as pair:
        tasks: list[asyncio.Task[list[EngineEvent]]] = []
        for step in [*steps, "kill", "start"]:
            match step:
                case "final" | "interim":
                    submitted = window(priority=Priority.FINAL if step == "final" else Priority.INTERIM)
                    tasks.append(asyncio.create_task(collect(pair.remote, submitted)))
                case "cancel" if tasks:
                    tasks[len(tasks) // 2].cancel()
                case "kill":
                    await pair.kill()
                case "start" | "start halting" if not pair.remote.is_alive:
                    pair.start(FakeTranscriber() if step == "start" else HaltingTranscriber(halt_after=2))
            for _ in range(8):
                await asyncio.sleep(0)
        await check_ends(tasks)
        await pair.until_free()
