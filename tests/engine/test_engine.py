"""The engine from outside: events, queueing, cancelling, failing. The runner is a script."""

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, count, cycle, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.engines import Samples, begin, collect, done_of, kinds, start_engine, window
from tests.engine.fakes import PATIENCE_S, FakeRunner, Script
from tutti_server.engine import engine as engine_module
from tutti_server.engine.api import (
    MAX_HOTWORD_BYTES,
    MAX_HOTWORDS,
    WINDOW_SAMPLES,
    DoneEvent,
    Priority,
    Sampling,
    SegmentEvent,
    StartedEvent,
    SupersededEvent,
    Window,
)
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine, EngineHangs
from tutti_server.engine.errors import CheckpointError, EngineFailed, InvalidWindow
from tutti_server.engine.runner import Runner, load_runner
from tutti_server.engine.scheduling import memory_return

pytestmark = pytest.mark.usefixtures("patience", "no_pauses")

N_SAMPLES = 16_000
"""Of a window."""


@pytest.fixture
def endless_runner(small_checkpoint: Checkpoint) -> FakeRunner:
    """Every window goes on until the token limit, without repeating itself."""
    return FakeRunner(small_checkpoint, lambda _: count(300))


async def test_events_tell_the_whole_story_in_order(runner: FakeRunner) -> None:
    """Started first, then the segment at its closing timestamp, done last; a reader that goes on finds nothing."""
    async with start_engine(runner) as engine:
        async with engine.submit(window()) as reading:
            events = [event async for event in reading]
            assert [event async for event in reading] == []
        assert (engine.stats().windows_done, engine.stats().windows_cancelled) == (1, 0)
    started, segment, done = events
    assert isinstance(started, StartedEvent) and started.batch_size == 1 and started.queued_s >= 0
    assert isinstance(segment, SegmentEvent) and isinstance(done, DoneEvent)
    assert done.text == segment.segment.text == " good morning"
    assert done.text == "".join([piece.text for piece in done.pieces])
    assert (segment.segment.start_s, segment.segment.end_s) == (0.0, 0.5)
    assert done.segments == (segment.segment,)
    assert (done.language, segment.language) == ("en", "en")
    assert not done.is_truncated


async def test_a_function_receives_the_error_that_ends_its_window(runner: FakeRunner) -> None:
    """What cannot be queued is refused at once; what is queued ends with the engine, unless it was cancelled before."""
    runner.faults["step"] = RuntimeError("device-side assert")
    pause, received = runner.pause("encode"), asyncio.Queue[Any]()
    async with start_engine(runner) as engine:
        with pytest.raises(InvalidWindow):
            engine.begin(window(language="xx"), received.put_nowait)
        engine.begin(window("open"), received.put_nowait)
        await pause.reached()
        cancel = engine.begin(window("cancelled"), lambda _: pytest.fail("it was cancelled"))
        cancel()
        pause.end()
        while not isinstance(item := await received.get(), EngineFailed):
            assert isinstance(item, StartedEvent | SegmentEvent)
        with pytest.raises(EngineFailed):
            engine.begin(window(), received.put_nowait)


async def test_waiting_windows_share_an_encoder_call(runner: FakeRunner) -> None:
    """Windows that came while the engine was busy are encoded together, and the counters show it."""
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        busy = await begin(engine, window("busy"))
        await pause.reached()
        others = await begin(engine, *(window(f"session {index}") for index in range(3)))
        assert engine.stats().waiting_finals == 3
        pause.end()
        first_events = [events[0] for events in await asyncio.gather(*busy, *others)]
        assert [len(batch) for batch in runner.encoded] == [1, 3]
        assert [event.batch_size for event in first_events if isinstance(event, StartedEvent)] == [1, 3, 3, 3]
        stats = engine.stats()
    assert (stats.encode_batch.total, sum(stats.encode_batch.counts)) == (4, 2)
    assert sum(stats.final_queue_s.counts) == stats.windows_done == 4
    assert stats.audio_s == pytest.approx(4 * N_SAMPLES / 16_000)
    assert stats.decode_batch.total + 4 == stats.tokens_decoded
    assert stats.running == stats.waiting_finals == 0


async def test_work_that_waits_is_given_in_seconds(runner: FakeRunner) -> None:
    """Of encoding and decoding. Before a final comes what was begun and the finals that wait, not the interims."""
    async with start_engine(runner) as engine:
        assert engine.stats().work_waiting_s == 0
        pause = runner.pause("encode")
        busy = await begin(engine, window("busy"))
        await pause.reached()
        begun_s = engine.stats().work_waiting_s
        assert engine.stats().final_work_waiting_s == begun_s > 0
        others = await begin(engine, window("a"), window("b", priority=Priority.INTERIM))
        stats = engine.stats()
        assert stats.work_waiting_s - stats.final_work_waiting_s == pytest.approx(stats.final_work_waiting_s - begun_s)
        pause.end()
        await asyncio.gather(*busy, *others)
        after = engine.stats()
    assert after.work_waiting_s == after.final_work_waiting_s == 0
    assert after.window_decode_s != stats.window_decode_s


async def test_a_repetition_is_stopped_and_its_first_round_kept(small_checkpoint: Checkpoint) -> None:
    """The text before it stays; the open segment ends where its last word was spoken, not with the audio."""
    tokenizer = small_checkpoint.tokenizer
    first, round_ = tokenizer.first_timestamp, tokenizer.encode(" thank you very much")
    script = [first, *tokenizer.encode(" good morning"), first + 10, first + 10]
    runner = FakeRunner(small_checkpoint, lambda _: chain(script, cycle(round_)))
    async with start_engine(runner) as engine:
        done = await done_of(engine, window(language="en"))
        again = await done_of(engine, window(language="en", word_times=True, previous_text="Before."))
    assert done.is_repetitive and not done.is_truncated
    assert done.text == " good morning thank you very much"
    assert done.n_steps < 40
    last = done.segments[-1]
    assert (len(done.segments), last.text) == (2, " thank you very much")
    assert last.end_s == min(0.1 * (len(script) + len(round_) - 1) + 0.3, 1.0)
    assert again.text == done.text
    assert [word.text for word in again.segments[-1].words or ()] == [" thank", " you", " very", " much"]


async def test_a_text_that_the_token_limit_ends_ends_with_its_last_word(endless_runner: FakeRunner) -> None:
    """Not with the audio: what is spoken after it has no text, and the service decodes it again.

    A caller that limits tokens does not pay for it unasked.
    """
    audio = np.full(WINDOW_SAMPLES, 0.1, np.float32)
    limit = endless_runner.checkpoint.model.max_target_positions // 2
    ends_s = []
    async with start_engine(endless_runner) as engine:
        for each in (window(), window(max_tokens=5), window(max_tokens=5, word_times=True)):
            done = await done_of(engine, replace(each, samples=audio))
            assert done.is_truncated
            ends_s.append([segment.end_s for segment in done.segments])
    assert ends_s == [[pytest.approx(0.1 * (limit - 1) + 0.3)], [30.0], [pytest.approx(0.1 * 4 + 0.3)]]


async def test_a_timestamp_that_ends_the_text_too_early_is_checked_if_it_is_asked_for(
    small_checkpoint: Checkpoint,
) -> None:
    """The segment goes out with the timestamp, at once; the last event says what attention has found."""
    tokenizer = small_checkpoint.tokenizer
    first = tokenizer.first_timestamp
    script = [first, *tokenizer.encode(" good morning"), first + 10, tokenizer.eot]
    async with start_engine(FakeRunner(small_checkpoint, lambda _: iter(script))) as engine:
        dones = [await done_of(engine, window(language="en", latest_end_s=each)) for each in (None, 0.2, 0.5)]
    assert [done.segments[0].end_s for done in dones] == [0.2] * 3
    assert [done.text_end_s for done in dones] == [None, None, pytest.approx(0.1 * (len(script) - 2))]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_repetition_keeps_the_forced_prefix(small_checkpoint: Checkpoint, goes_on: bool) -> None:
    """Text that was shown as stable is not taken back, though it repeats itself; and it may end there."""
    tokenizer = small_checkpoint.tokenizer
    (word,) = tokenizer.encode(" the")
    runner = FakeRunner(small_checkpoint, lambda _: repeat(word if goes_on else tokenizer.eot))
    async with start_engine(runner) as engine:
        done = await done_of(engine, window(timestamps=False, prefix=(word,) * 30))
    assert (done.text, done.is_repetitive) == (" the" * 30, goes_on)


async def test_newer_interim_supersedes_a_waiting_one(runner: FakeRunner) -> None:
    """The older interim ends without being decoded; another channel's stays."""
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        await begin(engine, window("busy"))
        await pause.reached()
        older, newer, other = await begin(
            engine,
            window("live", Priority.INTERIM),
            window("live", Priority.INTERIM),
            window("live", Priority.INTERIM, channel=1),
        )
        assert kinds(await older) == [SupersededEvent]
        assert engine.stats().waiting_interims == 2
        pause.end()
        assert isinstance((await newer)[-1], DoneEvent)
        assert isinstance((await other)[-1], DoneEvent)
        assert engine.stats().windows_superseded == 1


async def test_cancelled_while_waiting(runner: FakeRunner) -> None:
    """Leaving before the window was taken removes it from the queue."""
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        (busy,) = await begin(engine, window("busy"))
        await pause.reached()
        async with engine.submit(window("leaves")):
            assert engine.stats().waiting_finals == 1
        assert engine.stats().waiting_finals == 0
        pause.end()
        await busy
        assert engine.stats().windows_cancelled == 1
    assert len(runner.encoded) == 1


@pytest.mark.parametrize("stage", ["encode", "prefill", "step"])
async def test_cancelled_at_a_stage_frees_the_slot(endless_runner: FakeRunner, stage: str) -> None:
    """Leaving while the window is encoded, prefilled or decoded frees its slot after that step."""
    runner = endless_runner
    async with start_engine(runner) as engine:
        pause = runner.pause(stage)
        async with engine.submit(window()):
            await pause.reached()
            assert runner.slots.n_free == 3
        pause.end()
        await let_pass(engine)
        assert (engine.stats().windows_cancelled, engine.stats().running) == (1, 0)
        assert runner.slots.n_free == 4
    assert runner.n_steps <= 1


@pytest.mark.parametrize("stage", ["encode", "prefill", "step"])
async def test_dying_thread_fails_all(runner: FakeRunner, stage: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever breaks in the engine's thread ends every open and later submission, with its cause, and is logged."""
    fault = RuntimeError("out of memory")
    async with start_engine(runner, max_encode_batch=1) as engine:
        pause = runner.pause(stage)
        submitted = await begin(engine, *(window(f"session {index}") for index in range(3)))
        await pause.reached()
        runner.faults[stage] = fault
        pause.end()
        for result in await asyncio.gather(*submitted, return_exceptions=True):
            assert isinstance(result, EngineFailed) and result.__cause__ is fault
        assert not engine.is_alive
        with pytest.raises(EngineFailed) as later:
            await collect(engine, window())
        assert later.value.__cause__ is fault
        assert engine.is_lost
        assert (await engine.ended()).__cause__ is fault
    assert runner.slots.n_free == 4
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors[-1].startswith("the engine has died; it had windows of session ")


@pytest.mark.parametrize("stage", ["encode", "prefill", "step", "collect"])
async def test_a_step_that_fails_once_is_repeated(runner: FakeRunner, stage: str) -> None:
    """Memory was short once. Every final gets all its events, each of them once; interims end as superseded."""
    async with start_engine(runner) as engine:
        expected = kinds(await collect(engine, window()))
        runner.fail_once(stage, MemoryError("no memory"))
        pause = runner.pause(stage)
        finals = await begin(engine, *(window(f"session {index}") for index in range(2)))
        await pause.reached()
        interims = await begin(engine, window("live", Priority.INTERIM))
        pause.end()
        assert [kinds(events) for events in await asyncio.gather(*finals)] == [expected] * 2
        assert kinds((await asyncio.gather(*interims))[0])[-1] in (SupersededEvent, DoneEvent)
        assert engine.is_alive and not engine.is_lost
        assert kinds(await collect(engine, window())) == expected
    assert runner.slots.n_free == 4


@pytest.mark.parametrize("priority", [Priority.INTERIM, Priority.SPECULATIVE])
@pytest.mark.parametrize("stage", ["encode", "prefill", "step", "collect"])
async def test_what_may_be_dropped_is_superseded_by_a_failed_step(
    runner: FakeRunner, stage: str, priority: Priority
) -> None:
    """Also where its session has heard that it had begun."""
    async with start_engine(runner) as engine:
        runner.fail_once(stage, MemoryError("no memory"))
        assert kinds(await collect(engine, window("live", priority))) == [StartedEvent, SupersededEvent]
        assert engine.is_alive


@pytest.mark.parametrize(("again", "last"), [(" good morning", DoneEvent), (" good evening", EngineFailed)])
async def test_segments_that_were_sent_before_a_failure_are_neither_sent_again_nor_taken_back(
    small_checkpoint: Checkpoint, again: str, last: type
) -> None:
    """The window is decoded from its beginning. If it is decoded differently then, it ends with one error."""
    tokenizer = small_checkpoint.tokenizer
    first = tokenizer.first_timestamp
    failures, received = [MemoryError("no memory")], asyncio.Queue[Any]()

    def decode(_: Samples) -> Iterator[int]:
        yield from (first, *tokenizer.encode(" good morning" if failures else again), first + 25)
        if failures:
            raise failures.pop()
        yield from repeat(tokenizer.eot, 9)

    async with start_engine(FakeRunner(small_checkpoint, decode)) as engine:
        engine.begin(window(language="en"), received.put_nowait)
        assert kinds([await received.get() for _ in range(3)]) == [StartedEvent, SegmentEvent, last]
        await let_pass(engine)
    assert received.empty() and not failures


async def test_only_the_window_that_makes_steps_fail_fails(
    small_checkpoint: Checkpoint, good_morning: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """The others were in the same batch; each is decoded again alone. The log names the sessions."""

    def decode(samples: Samples) -> Iterator[int]:
        if samples[0] > 0.5:
            raise ValueError("a window that nothing can decode")
        return good_morning(samples)

    runner = FakeRunner(small_checkpoint, decode)
    async with start_engine(runner) as engine:
        pause = runner.pause("encode")
        busy = await begin(engine, window("busy"))
        await pause.reached()
        bad = replace(window("bad"), samples=np.full(N_SAMPLES, 0.9, np.float32))
        others = await begin(engine, window("one"), bad, window("two"))
        pause.end()
        results = await asyncio.gather(*busy, *others, return_exceptions=True)
        assert [isinstance(result, EngineFailed) for result in results] == [False, False, True, False]
        assert "failed 3 times with this window" in str(results[2])
        assert "[bad] a window fails: the engine has failed 3 times" in caplog.text
        assert "its windows are decoded again, of bad, busy, one, two" in caplog.text
        await done_of(engine, window("later"))
    assert runner.slots.n_free == 4


async def test_an_engine_that_hangs_is_given_up(
    runner: FakeRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    engines_before: set[threading.Thread],
) -> None:
    """All open windows fail, and closing the engine does not wait for its thread. An idle engine does not hang."""
    monkeypatch.setattr(engine_module, "PROGRESS_CHECK_S", 1e-9)
    monkeypatch.setattr(engine_module, "SLOWEST_STEP", 0.0)
    pause = runner.pause("step")
    async with start_engine(runner, max_encode_batch=1) as engine:
        monkeypatch.setattr(engine_module, "HANGS_AFTER_S", 3e-9)
        for _ in range(100):
            await asyncio.sleep(0)
        assert engine.is_alive
        monkeypatch.setattr(engine_module, "HANGS_AFTER_S", PATIENCE_S)
        submitted = await begin(engine, *(window(f"session {index}") for index in range(3)))
        await pause.reached()
        monkeypatch.setattr(engine_module, "HANGS_AFTER_S", 3e-9)
        for result in await asyncio.gather(*submitted, return_exceptions=True):
            assert isinstance(result, EngineFailed) and str(result) == "the engine has died: EngineHangs"
        assert engine.is_lost and isinstance((await engine.ended()).__cause__, EngineHangs)
        (thread,) = engine_threads() - engines_before
    assert thread.is_alive()
    pause.end()
    await asyncio.to_thread(thread.join)
    assert str(await engine.ended()) == "the engine has died: EngineHangs"
    assert "the engine has begun no step for" in caplog.text and "in hold" in caplog.text


async def test_a_failure_to_clean_up_keeps_no_caller_waiting(runner: FakeRunner) -> None:
    """Even freeing a slot may fail, and then again while the engine gives up."""
    fault = RuntimeError("cannot free")
    async with start_engine(runner) as engine:
        runner.faults["release"] = fault
        with pytest.raises(EngineFailed) as failed:
            await collect(engine, window())
        assert failed.value.__cause__ is fault
        assert not engine.is_alive


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "tutti-engine"}


@pytest.fixture
def engines_before() -> set[threading.Thread]:
    """Of servers that other tests share."""
    return engine_threads()


async def test_closing_fails_what_is_open(endless_runner: FakeRunner, engines_before: set[threading.Thread]) -> None:
    """Leaving the engine ends its thread and fails windows that wait or run."""
    runner, loop = endless_runner, asyncio.get_running_loop()
    async with start_engine(runner, max_encode_batch=1) as engine:
        pause = runner.pause("encode")
        submitted = await begin(engine, window("runs"), window("waits"))
        await pause.reached()
        # This runs one turn of the event loop after the one that closes the engine, which must not run on until then.
        loop.call_soon(loop.call_soon, pause.end)
    results = await asyncio.gather(*submitted, return_exceptions=True)
    assert all(isinstance(result, EngineFailed) and result.__cause__ is None for result in results)
    assert not engine.is_alive
    assert engine_threads() == engines_before


class PanicException(BaseException):
    """What libraries in Rust raise is no `Exception`."""


def panic(_: EngineConfig) -> Runner:
    raise PanicException("no such folder")


@pytest.mark.parametrize(("load", "error"), [(load_runner, CheckpointError), (panic, PanicException)])
async def test_failing_to_load_is_raised_on_start(
    load: Callable[[EngineConfig], Runner], error: type[BaseException], engines_before: set[threading.Thread]
) -> None:
    """A checkpoint that cannot be loaded stops the start, and no thread stays."""
    with pytest.raises(error, match="no such folder"):
        async with Engine.start(EngineConfig(model="./nowhere"), load):
            pytest.fail("started without a model")
    assert engine_threads() == engines_before


async def test_cancelled_while_loading_ends_the_thread(
    runner: FakeRunner, engines_before: set[threading.Thread]
) -> None:
    """Cancelled during the start, the engine still ends its thread."""
    is_loading, may_load = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def load(_: EngineConfig) -> FakeRunner:
        loop.call_soon_threadsafe(is_loading.set)
        assert may_load.wait(PATIENCE_S)
        return runner

    async def start() -> None:
        async with Engine.start(EngineConfig(), load=load):  # type: ignore[arg-type]
            pytest.fail("the start was cancelled")

    task = asyncio.create_task(start())
    await is_loading.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_load.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine_threads() == engines_before


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        (replace(window(), samples=np.zeros(0, np.float32)), "samples"),
        (replace(window(), samples=np.zeros(WINDOW_SAMPLES + 1, np.float32)), "samples"),
        (replace(window(), samples=np.zeros(16_000, np.float64)), "samples"),
        (replace(window(), samples=np.zeros((16_000, 2), np.float32)), "samples"),
        (replace(window(), samples=np.array([0.0, np.nan], np.float32)), "samples"),
        (replace(window(), samples=np.array([0.0, 32_767.0], np.float32)), "samples"),
        (replace(window(), samples=[0.0]), "samples"),  # type: ignore[arg-type]
        (window(language="tlh"), "language"),
        (window(languages=("en", "tlh")), "languages"),
        (window(language_bias=(("tlh", 1.0),)), "language_bias"),
        (window(languages=("en",), language_bias=(("de", 1.0),)), "language_bias"),
        (window(language_bias=(("en", float("nan")),)), "language_bias"),
        (window(language="en", language_bias=(("en", 1.0),)), "language_bias"),
        (window(task="summarise"), "task"),
        (window(max_tokens=0), "max_tokens"),
        (window(prefix=(3072,)), "prefix"),
        (window(prefix=(-1,)), "prefix"),
        (window(prefix=(4681,)), "prefix"),
        (window(prefix=(5,) * 224), "prefix"),
        (window(prefix=(5, 6), max_tokens=2), "prefix"),
        (window(hotwords=("",)), "hotwords"),
        (window(hotwords=("x" * (MAX_HOTWORD_BYTES + 1),)), "hotwords"),
        (window(hotwords=("a",) * (MAX_HOTWORDS + 1)), "hotwords"),
        (window(sampling=Sampling(temperatures=())), "temperatures"),
        (window(sampling=Sampling(temperatures=(0.0, -0.1))), "temperatures"),
        (window(sampling=Sampling(temperatures=(float("nan"),))), "temperatures"),
        (window(sampling=Sampling(temperatures=(0.1,) * 9)), "temperatures"),
        (window(sampling=Sampling(best_of=0)), "best_of"),
        (window(sampling=Sampling(best_of=11)), "best_of"),
        (window(sampling=Sampling(beam_size=0)), "beam_size"),
        (window(sampling=Sampling(beam_size=11)), "beam_size"),
        (window(sampling=Sampling(beam_size=5)), "beam_size"),
        (window(sampling=Sampling(beam_size=2, patience=0.2)), "patience"),
        (window(sampling=Sampling(beam_size=2, patience=float("nan"))), "patience"),
        (window(sampling=Sampling(patience=2.0)), "patience"),
        (window(sampling=Sampling(sure_logprob=-1.0)), "sure_logprob"),
        (window(sampling=Sampling(beam_size=2, sure_logprob=0.0)), "sure_logprob"),
        (window(sampling=Sampling(beam_size=2, length_penalty=float("inf"))), "length_penalty"),
        (window(sampling=Sampling(length_penalty=1.0)), "length_penalty"),
    ],
)
async def test_what_cannot_be_decoded_is_refused(runner: FakeRunner, refused: Window, field: str) -> None:
    """The error names the field and what was expected; nothing is accepted and ignored."""
    async with start_engine(runner) as engine:
        with pytest.raises(InvalidWindow, match=f"{field}: expected") as error:
            await collect(engine, refused)
        assert error.value.field == field and engine.is_alive


async def test_info_describes_what_is_loaded(runner: FakeRunner) -> None:
    """Name, languages in the checkpoint's order, tasks, and the sizes that limit batches. The operator names it."""
    runner.checkpoint = replace(runner.checkpoint, name="somebody/whisper")
    async with start_engine(runner, max_encode_batch=3) as engine:
        info = engine.info
    assert (info.name, info.device, info.dtype) == ("somebody/whisper", "cpu", "float32")
    assert (info.is_multilingual, info.languages[:3], len(info.languages)) == (True, ("en", "zh", "de"), 100)
    assert info.tasks == ("transcribe", "translate")
    assert (info.n_slots, info.max_encode_batch) == (4, 3)
    assert info.adaptive_endpointing
    async with start_engine(runner, served_names=("calls", "whisper", "legal")) as engine:
        assert (engine.info.name, engine.info.aliases) == ("calls", ("whisper", "legal"))


async def test_a_model_in_a_folder_has_the_name_of_the_folder(
    runner: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients see no paths. A link keeps its name, `.` is the folder, and the hub's cache knows the hub's name."""
    (tmp_path / "whisper-7").mkdir()
    (tmp_path / "newest").symlink_to(tmp_path / "whisper-7")
    cached = tmp_path / "models--some-one--whisper-9" / "snapshots" / ("0" * 40)
    cached.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "whisper-7")
    checkpoint = runner.checkpoint
    for given, name in (
        (f"{tmp_path}/whisper-7/", "whisper-7"),
        (f"{tmp_path}/newest", "newest"),
        (".", "whisper-7"),
        (str(cached), "some-one/whisper-9"),
    ):
        runner.checkpoint = replace(checkpoint, name=given)
        async with start_engine(runner) as engine:
            assert engine.info.name == name


@pytest.mark.parametrize(
    ("name", "n_languages", "tasks"),
    [
        ("distil-whisper/distil-large-v3", 1, ("transcribe",)),
        ("openai/whisper-large-v3-turbo", 100, ("transcribe",)),
        ("openai/whisper-large-v3", 100, ("transcribe", "translate")),
    ],
)
async def test_info_names_no_more_than_the_model_was_trained_for(
    runner: FakeRunner, name: str, n_languages: int, tasks: tuple[str, ...]
) -> None:
    """A vocabulary may hold languages and tasks that the model was not trained for."""
    runner.checkpoint = replace(runner.checkpoint, name=name)
    async with start_engine(runner) as engine:
        assert (len(engine.info.languages), engine.info.tasks) == (n_languages, tasks)


async def let_pass(engine: Engine) -> None:
    """Wait until the engine has gone through at least one more step."""
    await collect(engine, window("passes", max_tokens=1))


FALLBACK = Sampling(temperatures=(0.0, 0.4), compression_ratio_threshold=2.4)


@pytest.fixture
def second_time_lucky(small_checkpoint: Checkpoint) -> FakeRunner:
    """Every window gives a repetition in its first attempt, and `good morning` in the second."""
    tokenizer = small_checkpoint.tokenizer
    first = tokenizer.first_timestamp
    good = [first, *tokenizer.encode(" good morning"), first + 25, tokenizer.eot]
    repetition = [first, *tokenizer.encode(" la") * 40, first + 25, tokenizer.eot]
    scripts = cycle([repetition, good])
    return FakeRunner(small_checkpoint, lambda _: iter([*next(scripts), *repeat(tokenizer.eot, 9)]))


async def test_a_bad_attempt_is_followed_by_another_in_the_same_slot(second_time_lucky: FakeRunner) -> None:
    """Nothing of the bad attempt is handed out, and the window is encoded once."""
    async with start_engine(second_time_lucky) as engine:
        events = await collect(engine, window(sampling=FALLBACK, previous_text="Before."))
        assert engine.stats().windows_done == 1
    # The first retry drops the previous text; that one is good.
    (first, draw), (second, second_draw) = second_time_lucky.prefilled
    assert len(first.tokens) > len(second.tokens)
    assert (draw.temperature, second_draw.temperature) == (0.0, 0.0)
    assert kinds(events) == [StartedEvent, SegmentEvent, DoneEvent]
    segment, done = events[-2:]
    assert isinstance(segment, SegmentEvent) and isinstance(done, DoneEvent)
    assert segment.segment.text == " good morning"
    assert (done.text, done.is_repetitive, done.temperature) == (" good morning", False, 0.0)
    assert len(second_time_lucky.encoded) == 1
    assert second_time_lucky.slots.n_free == 4
    async with start_engine(second_time_lucky) as engine:
        done = await done_of(engine, window(language="en", sampling=FALLBACK, word_times=True))
    # Without a previous text, the retry has the next temperature.
    assert done.segments[0].temperature == done.temperature == 0.4
    assert [word.text for word in done.segments[0].words or ()] == [" good", " morning"]


@pytest.mark.parametrize("sampling", [FALLBACK, Sampling()], ids=["file", "live"])
async def test_a_bad_attempt_in_a_detected_language_is_followed_by_one_in_the_next_language(
    second_time_lucky: FakeRunner, sampling: Sampling
) -> None:
    """Both have the same temperature. The reported probabilities of the two languages are exchanged."""
    languages = second_time_lucky.checkpoint.generation.languages
    async with start_engine(second_time_lucky) as engine:
        done = await done_of(engine, window(sampling=sampling))
    first, second = ([*prompt.tokens] for prompt, _ in second_time_lucky.prefilled)
    assert (languages["en"] in first, languages["de"] in second) == (True, True)
    assert (done.text, done.language, done.temperature) == (" good morning", "de", 0.0)
    assert done.language_probabilities == {"en": 0.25, "de": 0.75}


async def test_interims_and_forced_prefixes_are_decoded_in_one_language(runner: FakeRunner) -> None:
    """The next interim comes soon, and a prefix has a language."""
    runner.logprob = -3.0
    prefix = tuple(runner.checkpoint.tokenizer.encode(" good"))
    async with start_engine(runner) as engine:
        for each, n_attempts in (
            (window(), 2),
            (replace(window(), priority=Priority.INTERIM), 1),
            (window(prefix=prefix), 1),
        ):
            await done_of(engine, each)
            assert len(runner.prefilled) == n_attempts
            runner.prefilled.clear()


async def test_doubtful_outputs_are_judged_by_their_log_probability(runner: FakeRunner) -> None:
    """All outputs are doubtful: every temperature is tried, `best_of` times where it is above 0."""
    runner.logprob = -3.0
    async with start_engine(runner) as engine:
        sampling = Sampling(temperatures=(0.0, 0.5, 1.0), best_of=2)
        done = await done_of(engine, window(language="en", sampling=sampling))
    assert [draw.temperature for _, draw in runner.prefilled] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert done.avg_logprob == -3.0


@pytest.mark.parametrize(
    ("options", "language", "probabilities"),
    [
        ({}, "en", {"en": 0.75, "de": 0.25}),
        ({"language": "de"}, "de", None),
        ({"language": "de", "languages": ("en", "de")}, "de", {"en": 0.75, "de": 0.25}),
        # The odds are 3 to 1, so a bias of 1 is too small and one of 2 is enough.
        ({"language_bias": (("de", 1.0),)}, "en", {"en": 0.75, "de": 0.25}),
        ({"language_bias": (("de", 2.0),)}, "de", {"en": 0.75, "de": 0.25}),
    ],
)
async def test_languages_come_with_their_probabilities(
    runner: FakeRunner, options: dict[str, Any], language: str, probabilities: dict[str, float] | None
) -> None:
    """None where the language was given, unless candidates were named, too. They do not contain the bias."""
    async with start_engine(runner) as engine:
        _, segment, done = await collect(engine, window(**options))
    assert isinstance(segment, SegmentEvent) and isinstance(done, DoneEvent)
    assert segment.language == done.language == language
    assert done.language_probabilities == probabilities
    assert segment.language_probability == (probabilities or {}).get(language)


async def test_an_engine_that_has_ended_holds_no_model(small_folder: Path) -> None:
    """Although somebody still holds the engine, and asks for its counters."""
    models: list[weakref.ref[torch.nn.Module]] = []

    def load(config: EngineConfig) -> Runner:
        runner = load_runner(config)
        models.append(weakref.ref(runner.model))
        return runner

    async with Engine.start(EngineConfig(model=str(small_folder), n_slots=2), load) as engine:
        await collect(engine, window())
    gc.collect()
    assert models[0]() is None
    assert engine.stats().windows_done == 1
    with pytest.raises(EngineFailed, match="closed"):
        await collect(engine, window())


async def test_memory_is_given_back_after_each_load(runner: FakeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no window has come for a while; a window that comes at that moment is decoded."""
    monkeypatch.setattr(memory_return, "IDLE_S", 0.0)
    async with start_engine(runner) as engine:
        for _ in range(2):
            pause = runner.pause("return_free_memory")
            await collect(engine, window())
            await pause.reached()
            (late,) = await begin(engine, window())
            pause.end()
            assert kinds(await late)[-1] is DoneEvent


@pytest.mark.parametrize(
    ("interval", "stage"), [("SLOTS_EVERY_S", "return_unused_slots"), ("RETURN_EVERY_S", "return_free_memory")]
)
async def test_memory_is_given_back_during_a_load(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, interval: str, stage: str
) -> None:
    """While a window is still being decoded: that of slots which are not used any more, and later that of the rest."""
    monkeypatch.setattr(memory_return, "IDLE_S", 1000.0)
    monkeypatch.setattr(memory_return, interval, 0.0)
    async with start_engine(runner) as engine:
        pause = runner.pause(stage)
        (running,) = await begin(engine, window())
        await pause.reached()
        assert engine.stats().running == 1
        pause.end()
        assert kinds(await running)[-1] is DoneEvent


async def test_an_engine_that_shares_its_device_begins_with_its_part_of_the_speed(
    small_checkpoint: Checkpoint, good_morning: Script
) -> None:
    """When it starts, a server does not promise the same time twice."""
    times_s = {}
    for share in (1.0, 0.5):
        async with start_engine(FakeRunner(small_checkpoint, good_morning), gpu_share=share) as engine:
            stats = engine.stats()
        times_s[share] = np.array((stats.utterance_encode_s, stats.window_decode_s))
    assert times_s[0.5] == pytest.approx(2 * times_s[1.0])
