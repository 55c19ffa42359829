"""The worker launches a step before it collects the one before it, as on a GPU. The runner is a script."""

import asyncio
from itertools import count, repeat
from typing import Any

import pytest

from tests.engine.engines import begin, collect, start_engine, window
from tests.engine.fakes import PATIENCE_S, FakeRunner, Script
from tutti_server.engine.api import DoneEvent, EngineEvent, Sampling, TranslatedEvent, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.engine import Engine


@pytest.fixture
def ahead(small_checkpoint: Checkpoint, good_morning: Script) -> FakeRunner:
    """A runner whose steps are launched ahead."""
    return FakeRunner(small_checkpoint, good_morning, n_ahead=1)


async def done(runner: FakeRunner, *windows: Window) -> list[DoneEvent]:
    async with start_engine(runner) as engine:
        ended = [events[-1] for events in await asyncio.gather(*(collect(engine, each) for each in windows))]
        assert engine.stats().running == 0
    assert runner.slots.n_free == 4
    return ended  # type: ignore[return-value]


async def second_while_the_first_is_decoded(engine: Engine, runner: FakeRunner) -> list[EngineEvent]:
    """Submit a window, and another before its first step. Returns the last event of each."""
    pause = runner.pause("step")
    first = await begin(engine, window("a"))
    await pause.reached()
    second = await begin(engine, window("b"))
    pause.end()
    return [events[-1] for events in await asyncio.gather(*first, *second)]


async def test_what_comes_out_is_the_same(runner: FakeRunner, ahead: FakeRunner) -> None:
    """More windows than slots, so that slots are taken over while a step of their last owner is under way."""
    windows = [window(f"s{index}") for index in range(9)]
    without, with_ahead = await done(runner, *windows), await done(ahead, *windows)
    assert [each.pieces for each in with_ahead] == [each.pieces for each in without]
    assert [each.n_steps for each in with_ahead] == [each.n_steps for each in without]


async def test_a_step_is_launched_before_the_last_one_is_collected(runner: FakeRunner, ahead: FakeRunner) -> None:
    """So the end is seen one step late, and the step after it belongs to no window."""
    await done(runner, window("a"))
    await done(ahead, window("a"))
    assert ahead.n_steps == runner.n_steps + 1


@pytest.mark.parametrize("n_ahead", [0, 1])
async def test_a_step_is_launched_before_a_window_is_brought_to_the_device(
    runner: FakeRunner, n_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than usual, where steps are launched ahead: bringing a window takes longer than a step."""
    runner.n_ahead, launched, encode = n_ahead, list[int](), runner.encode

    def spying_encode(*arguments: Any) -> None:
        launched.append(runner.n_steps - runner.n_collected)
        encode(*arguments)

    monkeypatch.setattr(runner, "encode", spying_encode)
    async with start_engine(runner, min_decode_share=0.0, max_wait_ms=0.0) as engine:
        ended = await second_while_the_first_is_decoded(engine, runner)
    assert launched == [0, 2 * n_ahead]
    assert [each.text for each in ended if isinstance(each, DoneEvent)] == [" good morning"] * 2


async def test_sequences_that_ended_early_leave_no_debt_to_the_next_call(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no interim could join a call while nothing else runs."""
    debts, encode = list[float](), runner.encode
    async with start_engine(runner, min_decode_share=0.999, max_wait_ms=0.0) as engine:

        def spying_encode(*arguments: Any) -> None:
            assert engine._worker
            debts.append(engine._worker._encoder_time.debt_fraction)
            encode(*arguments)

        monkeypatch.setattr(runner, "encode", spying_encode)
        await second_while_the_first_is_decoded(engine, runner)
    assert debts == [0.0, 0.0]


async def test_no_window_is_lost_when_the_step_before_its_encoder_call_fails(ahead: FakeRunner) -> None:
    """Both windows are decoded again, alone."""
    allocate, n_allocated = ahead.slots.allocate, count(1)

    def allocate_and_break() -> int:
        if next(n_allocated) == 2:
            ahead.fail_once("step", RuntimeError("out of memory"))
        return allocate()

    ahead.slots.allocate = allocate_and_break  # type: ignore[method-assign]
    async with start_engine(ahead, min_decode_share=0.0, max_wait_ms=0.0) as engine:
        ended = await second_while_the_first_is_decoded(engine, ahead)
    assert [each.text for each in ended if isinstance(each, DoneEvent)] == [" good morning"] * 2
    assert ahead.slots.n_free == 4


async def test_a_window_that_arrives_before_a_translation_begins_launches_no_step(small_checkpoint: Checkpoint) -> None:
    """The translation has a slot then, but no prompt yet."""
    eot = small_checkpoint.tokenizer.eot
    runner = FakeRunner(small_checkpoint, lambda _: iter([400, 401, eot, *repeat(eot, 9)]), n_ahead=1)
    async with start_engine(runner, min_decode_share=0.0, max_wait_ms=0.0) as engine:
        runner.pause("collect").end()
        pause = runner.pause("collect")  # the second, which ends the text
        first = await begin(engine, window("a", language="de", translates=True))
        await pause.reached()
        second = await begin(engine, window("b"))
        pause.end()
        translated, decoded = [events[-1] for events in await asyncio.gather(*first, *second)]
    assert isinstance(translated, TranslatedEvent) and translated.done
    assert isinstance(decoded, DoneEvent) and runner.n_idle_steps == 0


async def test_no_step_is_launched_that_the_limit_makes_useless(small_checkpoint: Checkpoint) -> None:
    runner = FakeRunner(small_checkpoint, lambda _: count(300), n_ahead=1)
    (ended,) = await done(runner, window("a", max_tokens=6))
    assert (ended.is_truncated, ended.n_steps, runner.n_steps) == (True, 5, 5)


async def test_an_attempt_takes_no_step_of_the_one_before(runner: FakeRunner, ahead: FakeRunner) -> None:
    """The step in flight when the first attempt ended is not counted to the second."""
    sampling = Sampling(temperatures=(0.0, 0.4), logprob_threshold=0.0)
    (without,) = await done(runner, window("a", sampling=sampling))
    (with_ahead,) = await done(ahead, window("a", sampling=sampling))
    assert with_ahead.pieces == without.pieces
    assert with_ahead.n_steps == without.n_steps


def encoding_until_the_second_call(runner: FakeRunner) -> asyncio.Event:
    """Let the device encode until its second call. The event is set whenever the worker asks whether it still does."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def still_encodes() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return len(runner.encoded) < 2

    runner.still_encodes = still_encodes
    return asked


async def test_a_window_that_arrives_while_the_device_encodes_shares_the_prefill(ahead: FakeRunner) -> None:
    """One pass prefills both. Once the device has done, no other window is waited for."""
    ahead.n_filling, ahead.encode_s = 1, PATIENCE_S
    asked = encoding_until_the_second_call(ahead)
    async with start_engine(ahead, max_decode_stall_ms=10_000 * PATIENCE_S) as engine:
        first = asyncio.create_task(collect(engine, window("a")))
        await asked.wait()
        assert ahead.prefilled == []
        await asyncio.gather(first, collect(engine, window("b")))
    assert [len(windows) for windows in ahead.encoded] == [1, 1]
    assert ahead.prefill_sizes == [2]


async def test_finished_windows_are_emitted_in_small_groups(small_checkpoint: Checkpoint, good_morning: Script) -> None:
    """So that clients can answer while the rest is still being made."""
    runner = FakeRunner(small_checkpoint, good_morning, n_slots=64, n_ahead=1)
    n_ended: list[int] = []
    async with start_engine(runner, max_encode_batch=64, max_wait_ms=1000 * PATIENCE_S) as engine:
        assert engine._worker
        emitter = engine._worker._emitter
        deliver = emitter._deliver

        def count(items: list[tuple[object, object]]) -> None:
            n_ended.append(sum(isinstance(item, DoneEvent) for _, item in items))
            deliver(items)  # type: ignore[arg-type]

        emitter._deliver = count  # type: ignore[assignment]
        await asyncio.gather(*(collect(engine, window(f"s{index}")) for index in range(64)))
    assert (sum(n_ended), max(n_ended)) == (64, 8)
