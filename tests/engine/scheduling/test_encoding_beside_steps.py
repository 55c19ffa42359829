"""Windows are encoded in a thread of their own while others are decoded, as on a CPU."""

import asyncio
from itertools import count

import pytest
import torch

from tests.engine.engines import begin, collect, done_of, kinds, noise, prefill, start_engine, window
from tests.engine.fakes import FakeRunner, Script
from tutti_server.engine.api import DoneEvent
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.runner import Runner


@pytest.fixture
def beside(runner: FakeRunner) -> FakeRunner:
    runner.encodes_beside_steps = True
    return runner


async def test_a_window_is_decoded_to_its_end_while_another_is_encoded(beside: FakeRunner) -> None:
    """Between steps, it would have waited for the encoder."""
    async with start_engine(beside) as engine:
        stepping = beside.pause("step")
        (first,) = await begin(engine, window("first"))
        await stepping.reached()
        encoding = beside.pause("encode")
        (second,) = await begin(engine, window("second"))
        stepping.end()
        assert kinds(await first)[-1] is DoneEvent
        assert not second.done()
        encoding.end()
        assert kinds(await second)[-1] is DoneEvent
    assert beside.slots.n_free == 4


async def test_no_decoded_window_waits_for_an_encoder_call(small_checkpoint: Checkpoint, good_morning: Script) -> None:
    """Also where more of them end in a step than are handed out after it."""
    runner = FakeRunner(small_checkpoint, good_morning, n_slots=16)
    runner.encodes_beside_steps = True
    async with start_engine(runner, max_encode_batch=12) as engine:
        first_call, second_call, third_call = (runner.pause("encode") for _ in range(3))
        (first,) = await begin(engine, window("first"))
        await first_call.reached()
        many = await begin(engine, *(window(f"s{index}") for index in range(12)))
        first_call.end()
        await second_call.reached()
        (another,) = await begin(engine, window("another"))
        second_call.end()
        assert {kinds(events)[-1] for events in await asyncio.gather(first, *many)} == {DoneEvent}
        third_call.end()
        assert kinds(await another)[-1] is DoneEvent
    # A call that was paused for too long would have failed, and been repeated.
    assert [len(windows) for windows in runner.encoded] == [1, 12, 1]


async def test_a_window_that_is_cancelled_during_its_call_frees_its_slot_after_it(beside: FakeRunner) -> None:
    """Not before: the encoder writes to the slot. Windows that come meanwhile share the next call."""
    async with start_engine(beside) as engine:
        encoding = beside.pause("encode")
        cancel = engine.begin(window("cancelled"), lambda _: None)
        await encoding.reached()
        cancel()
        later = await begin(engine, window("later"), window("with it"))
        assert beside.slots.n_free == 3
        encoding.end()
        await asyncio.gather(*later)
    assert beside.slots.n_free == 4
    assert [len(windows) for windows in beside.encoded] == [1, 2]
    assert beside.prefill_sizes == [2]


@pytest.mark.parametrize("stage", ["encode", "step"])
async def test_windows_are_decoded_again_after_a_failure(beside: FakeRunner, stage: str) -> None:
    """Of the encoder, and of a step while the encoder works."""
    async with start_engine(beside) as engine:
        stepping = beside.pause("step")
        first = await begin(engine, window("first"))
        await stepping.reached()
        second = await begin(engine, window("second"))
        beside.fail_once(stage, RuntimeError("out of memory"))
        stepping.end()
        assert [kinds(events)[-1] for events in await asyncio.gather(*first, *second)] == [DoneEvent] * 2
    assert beside.slots.n_free == 4


async def test_closing_waits_for_the_call_and_fails_its_windows(beside: FakeRunner) -> None:
    async with start_engine(beside) as engine:
        encoding = beside.pause("encode")
        (first,) = await begin(engine, window("first"))
        await encoding.reached()
        asyncio.get_running_loop().call_later(0.01, encoding.end)
    with pytest.raises(EngineFailed):
        await first
    assert beside.slots.n_free == 4


async def test_endless_windows_leave_the_encoder_to_others(small_checkpoint: Checkpoint) -> None:
    """Their steps never end by themselves, and yet new windows are encoded at once."""
    runner = FakeRunner(small_checkpoint, lambda _: count(300))
    runner.encodes_beside_steps = True
    async with start_engine(runner) as engine, engine.submit(window("endless")) as endless:
        await anext(endless)
        done = [await done_of(engine, window(f"s{index}", max_tokens=3)) for index in range(3)]
    assert all(each.is_truncated for each in done)


def tokens_of(runner: Runner, slot: int, n_steps: int) -> list[int]:
    return [runner.collect(runner.launch())[slot].token for _ in range(n_steps)]


def test_steps_beside_the_encoder_change_no_token(random_runner: Runner) -> None:
    """The window that is encoded meanwhile lies in a lower slot, whose row every step computes."""
    runner, prompt = random_runner, Prompt(tokens=(random_runner.checkpoint.tokenizer.sot,), sot_index=0)
    lower, slot = runner.slots.allocate(), runner.slots.allocate()

    def begin() -> None:
        runner.encode([noise(1)], [slot])
        prefill(runner, [slot], [prompt], [Draw()])

    begin()
    alone = tokens_of(runner, slot, 20)
    begin()
    runner.begin_encoding([noise(2)], [lower], [False])
    beside = tokens_of(runner, slot, 20)
    runner.finish_encoding()
    assert beside == alone
    prefill(runner, [lower], [prompt], [Draw()])
    written = tokens_of(runner, lower, 10)
    runner.encode([noise(2)], [lower])
    prefill(runner, [lower], [prompt], [Draw()])
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


def test_a_second_model_has_all_threads(random_runner: Runner) -> None:
    """A new thread finds the number that was set last: that of the first model's steps."""
    torch.set_num_threads(random_runner._n_threads + 1)
    second = Runner(random_runner.checkpoint, EngineConfig(n_slots=1))
    assert second._n_threads == torch.get_num_threads() == random_runner._n_threads


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


async def test_work_counts_by_its_part_of_the_cores(beside: FakeRunner) -> None:
    """Calls and steps run at the same time: otherwise a busy device would do more than a second of work in a second."""
    beside.encode_device_share, beside.step_device_share = 0.75, 0.25
    async with start_engine(beside) as engine:
        await asyncio.gather(*(collect(engine, window(f"s{index}")) for index in range(5)))
        stats = engine.stats()
    assert stats.busy_s == pytest.approx(0.75 * stats.encode_s.total + 0.25 * stats.step_s.total)
    assert 0 < stats.final_busy_s < stats.busy_s
