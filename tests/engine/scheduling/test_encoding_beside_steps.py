"""Windows are encoded in a thread of their own while others are decoded, as on a CPU."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.engines import Samples, collect, noise, prefill, start_engine
from tests.engine.fakes import FakeRunner, Pause
from tutti_server.engine.api import DecodeOptions, DoneEvent, EngineEvent, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.runner import Runner

Script = Callable[[Samples], Iterator[int]]
N_WORDS = 12


@pytest.fixture
def script(small_checkpoint: Checkpoint) -> Script:
    """Some words between 0 s and 0.5 s."""
    tokenizer = small_checkpoint.tokenizer
    first = tokenizer.first_timestamp
    return lambda _: iter([first, *range(300, 300 + N_WORDS), first + 25, *repeat(tokenizer.eot, 9)])


@pytest.fixture
def runner(small_checkpoint: Checkpoint, script: Script) -> FakeRunner:
    made = FakeRunner(small_checkpoint, script)
    made.encodes_beside_steps = True
    return made


def window(session: str, **options: Any) -> Window:
    return Window(samples=np.full(16_000, 0.1, np.float32), session=session, options=DecodeOptions(**options))


def is_done(events: list[EngineEvent]) -> bool:
    return isinstance(events[-1], DoneEvent)


async def paused_while(runner: FakeRunner, stage: str, started: Callable[[], Any]) -> tuple[Pause, Any]:
    """Start something, and return once the runner is paused at a stage of it."""
    pause = runner.pause(stage)
    task = started()
    await pause.reached()
    return pause, task


async def test_a_window_is_decoded_to_its_end_while_another_is_encoded(runner: FakeRunner) -> None:
    """Between steps, it would have waited for the encoder."""
    async with start_engine(runner) as engine:
        stepping, first = await paused_while(
            runner, "step", lambda: asyncio.create_task(collect(engine, window("first")))
        )
        encoding = runner.pause("encode")
        second = asyncio.create_task(collect(engine, window("second")))
        await asyncio.sleep(0)  # it is in the queue
        stepping.end()
        assert is_done(await first)
        assert not second.done()
        encoding.end()
        assert is_done(await second)
    assert runner.slots.n_free == 4


async def test_windows_that_come_during_a_call_share_the_next_one(runner: FakeRunner) -> None:
    async with start_engine(runner) as engine:
        encoding, first = await paused_while(
            runner, "encode", lambda: asyncio.create_task(collect(engine, window("first")))
        )
        others = [asyncio.create_task(collect(engine, window(name))) for name in ("second", "third")]
        await asyncio.sleep(0)
        encoding.end()
        assert all(map(is_done, await asyncio.gather(first, *others)))
    assert [len(windows) for windows in runner.encoded] == [1, 2]


async def test_a_window_that_is_cancelled_during_its_call_frees_its_slot_after_it(runner: FakeRunner) -> None:
    """Not before: the encoder writes to the slot."""
    async with start_engine(runner) as engine:
        encoding = runner.pause("encode")
        cancel = engine.begin(window("cancelled"), lambda _: None)
        await encoding.reached()
        cancel()
        later = asyncio.create_task(collect(engine, window("later")))
        await asyncio.sleep(0)
        assert runner.slots.n_free == 3
        encoding.end()
        assert is_done(await later)
    assert runner.slots.n_free == 4
    assert runner.prefill_sizes == [1]


@pytest.mark.parametrize("stage", ["encode", "step"])
async def test_windows_are_decoded_again_after_a_failure(runner: FakeRunner, stage: str) -> None:
    """Of the encoder, and of a step while the encoder works."""
    async with start_engine(runner) as engine:
        stepping, first = await paused_while(
            runner, "step", lambda: asyncio.create_task(collect(engine, window("first")))
        )
        second = asyncio.create_task(collect(engine, window("second")))
        await asyncio.sleep(0)
        runner.fail_once(stage, RuntimeError("out of memory"))
        stepping.end()
        assert all(map(is_done, await asyncio.gather(first, second)))
    assert runner.slots.n_free == 4


async def test_closing_waits_for_the_call_and_fails_its_windows(runner: FakeRunner) -> None:
    async with start_engine(runner) as engine:
        encoding, first = await paused_while(
            runner, "encode", lambda: asyncio.create_task(collect(engine, window("first")))
        )
        asyncio.get_running_loop().call_later(0.01, encoding.end)
    with pytest.raises(EngineFailed):
        await first
    assert runner.slots.n_free == 4


async def test_endless_windows_leave_the_encoder_to_others(small_checkpoint: Checkpoint) -> None:
    """Their steps never end by themselves, and yet new windows are encoded at once."""
    runner = FakeRunner(small_checkpoint, lambda _: count(300))
    runner.encodes_beside_steps = True
    async with start_engine(runner) as engine, engine.submit(window("endless")) as endless:
        await anext(endless)
        done = [(await collect(engine, window(f"s{index}", max_tokens=3)))[-1] for index in range(3)]
    assert [isinstance(each, DoneEvent) and each.is_truncated for each in done] == [True] * 3


def tokens_of(runner: Runner, slot: int, n_steps: int) -> list[int]:
    return [runner.collect(runner.launch())[slot].token for _ in range(n_steps)]


def test_steps_beside_the_encoder_change_no_token(random_runner: Runner) -> None:
    """The window that is encoded meanwhile lies in a lower slot, whose row every step computes."""
    runner, prompt = random_runner, Prompt(tokens=(random_runner.checkpoint.tokenizer.sot,), sot_index=0)
    lower, slot = runner.slots.allocate(), runner.slots.allocate()

    def begin() -> None:
        runner.encode([noise(1)], [slot])
        prefill(runner, [slot], [prompt], [True], [Draw()])

    begin()
    alone = tokens_of(runner, slot, 20)
    begin()
    runner.begin_encoding([noise(2)], [lower], [False])
    beside = tokens_of(runner, slot, 20)
    runner.finish_encoding()
    assert beside == alone
    prefill(runner, [lower], [prompt], [True], [Draw()])
    written = tokens_of(runner, lower, 10)
    runner.encode([noise(2)], [lower])
    prefill(runner, [lower], [prompt], [True], [Draw()])
    assert tokens_of(runner, lower, 10) == written
    runner.release(lower)
    runner.release(slot)


def test_memory_of_a_window_that_is_encoded_is_kept(random_runner: Runner) -> None:
    """Slots without a window give theirs back, and this one has its window only at the end of the call."""
    runner, slot = random_runner, random_runner.slots.allocate()
    runner.begin_encoding([noise(1)], [slot], [False])
    while runner.is_encoding():
        pass
    runner.return_free_memory()
    runner.finish_encoding()
    during = runner.cache.cross_attention[:, :, slot].clone()
    runner.encode([noise(1)], [slot])
    assert torch.equal(runner.cache.cross_attention[:, :, slot], during)
    runner.release(slot)


@pytest.mark.parametrize(
    ("times_s", "n_threads"),
    [({1: 9.2, 2: 10.9, 4: 8.0}, 1), ({1: 30.0, 2: 16.0, 4: 9.0}, 4), ({1: 30.0, 2: 11.0, 4: 9.0}, 2)],
)
def test_steps_get_the_threads_that_are_worth_their_cores(
    random_runner: Runner, monkeypatch: pytest.MonkeyPatch, times_s: dict[int, float], n_threads: int
) -> None:
    """The fewest with which a step takes nearly as short as with any."""
    runner = random_runner
    monkeypatch.setattr(runner, "_n_threads", 4)
    monkeypatch.setattr(runner, "_n_step_threads", 4)
    monkeypatch.setattr(runner, "_shortest_step_s", lambda: times_s[runner._n_step_threads])
    assert runner._choose_step_threads() == times_s[n_threads]
    assert runner._n_step_threads == n_threads


async def test_the_same_comes_out(small_checkpoint: Checkpoint, script: Script) -> None:
    """More windows than slots, some of them cancelled."""
    windows = [window(f"s{index}") for index in range(9)]
    pieces = []
    for is_beside in (False, True):
        runner = FakeRunner(small_checkpoint, script)
        runner.encodes_beside_steps = is_beside
        async with start_engine(runner) as engine:
            ended = await asyncio.gather(*(collect(engine, each) for each in windows))
        pieces.append([events[-1].pieces for events in ended if isinstance(events[-1], DoneEvent)])
    assert pieces[0] == pieces[1] and len(pieces[0]) == 9


async def test_work_counts_by_its_part_of_the_cores(runner: FakeRunner) -> None:
    """Calls and steps run at the same time: otherwise a busy device would do more than a second of work in a second."""
    runner.encode_device_share, runner.step_device_share = 0.75, 0.25
    async with start_engine(runner) as engine:
        await asyncio.gather(*(collect(engine, window(f"s{index}")) for index in range(5)))
        stats = engine.stats()
    assert stats.busy_s == pytest.approx(0.75 * stats.encode_s.total + 0.25 * stats.step_s.total)
    assert 0 < stats.final_busy_s < stats.busy_s
