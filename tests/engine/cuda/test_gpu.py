"""The engine on an NVIDIA GPU. On a machine that has one, run `pytest -m gpu tests/engine/cuda/test_gpu.py`."""

import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.engines import done_of, read_clip
from tests.small_model import SMALL_MODEL
from tutti_server.engine.api import DecodeOptions, DoneEvent, Priority, Sampling, Window
from tutti_server.engine.config import AudioContext, Dtype, EngineConfig
from tutti_server.engine.engine import Engine
from tutti_server.engine.model.attention import encoder_attention
from tutti_server.engine.model.packing import find_runs

pytestmark = pytest.mark.gpu

HALF = EngineConfig(model=SMALL_MODEL, device="cuda", dtype="bfloat16", n_slots=64, max_encode_batch=16, max_wait_ms=20)
"""The engine as it runs on a GPU: in 16 bits, with fused kernels and CUDA graphs."""
SINGLE = EngineConfig(model=SMALL_MODEL, device="cuda", dtype="float32")
CPU = EngineConfig(model=SMALL_MODEL, device="cpu")


async def transcribe(config: EngineConfig, names: list[str], priority: Priority = Priority.FINAL) -> list[DoneEvent]:
    """The last event of each clip, if all are submitted at the same time."""
    options = DecodeOptions(language="en")
    windows = [
        Window(samples=read_clip(name), session=f"s{index}", priority=priority, options=options)
        for index, name in enumerate(names)
    ]
    async with Engine.start(config) as engine:
        done = await asyncio.gather(*(done_of(engine, window) for window in windows))
        assert engine.stats().running == 0
        return done


NAMES = ["hello", "train", "call"]


async def test_float32_on_the_gpu_decodes_as_on_the_cpu() -> None:
    """Tokens are the same, and so are words and times."""
    on_cpu = await transcribe(CPU, NAMES)
    on_gpu = await transcribe(SINGLE, NAMES)
    assert [done.pieces for done in on_gpu] == [done.pieces for done in on_cpu]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
async def test_half_precision_has_the_same_words(dtype: Dtype) -> None:
    on_cpu = await transcribe(CPU, NAMES)
    on_gpu = await transcribe(EngineConfig(model=SMALL_MODEL, device="cuda", dtype=dtype), NAMES)
    assert [done.text for done in on_gpu] == [done.text for done in on_cpu]


async def test_options_mix_on_the_gpu() -> None:
    """Drafts, sampling, beams, hotwords, word times, attention times and detected languages share a batch.

    Each gives what it gives alone.
    """
    config = EngineConfig(
        model=SMALL_MODEL, device="cuda", dtype="float32", n_slots=16, max_encode_batch=16, max_wait_ms=50
    )
    random_sampling = Sampling(temperatures=(0.8,), best_of=2)
    options = [
        DecodeOptions(language="en"),
        DecodeOptions(),
        DecodeOptions(language="en", timestamps=False, hotwords=("platform", "Okonkwo")),
        DecodeOptions(language="en", word_times=True),
        DecodeOptions(language="en", attention_times=True, previous_text="We are at the station."),
        DecodeOptions(language="en", sampling=random_sampling),
        DecodeOptions(language="en", sampling=Sampling(beam_size=3)),
        DecodeOptions(timestamps=False, hotwords=("platform",), sampling=Sampling(beam_size=2, patience=2.0)),
        DecodeOptions(language="en", sampling=Sampling(temperatures=(0.0, 0.4), logprob_threshold=0.0)),
    ]

    async def decode(engine: Engine, name: str, own: DecodeOptions) -> DoneEvent:
        return await done_of(engine, Window(samples=read_clip(name), session=f"{name} {own}", options=own))

    async with Engine.start(config) as engine:
        jobs = [(name, own) for own in options for name in NAMES]
        alone = [await decode(engine, *job) for job in jobs]
        together = await asyncio.gather(*(decode(engine, *job) for job in jobs))
        assert [done.pieces for done in together] == [done.pieces for done in alone]
        greedy = alone[: len(NAMES)]
        drafts = [tuple(token for piece in done.pieces for token in piece.tokens) for done in greedy]
        drafted = [
            await decode(engine, name, DecodeOptions(language="en", draft=(*draft[:6], 300, *draft[6:])))
            for name, draft in zip(NAMES, drafts, strict=True)
        ]
        assert [done.pieces for done in drafted] == [done.pieces for done in greedy]
        assert [done.n_steps for done in drafted] == [done.n_steps - 6 for done in greedy]


@pytest.mark.parametrize("config", [SINGLE, HALF], ids=["float32", "half"])
async def test_beams_find_what_they_find_on_the_cpu(config: EngineConfig) -> None:
    """The words are the same."""

    async def found(config: EngineConfig) -> list[str]:
        options = DecodeOptions(language="en", sampling=Sampling(beam_size=5))
        async with Engine.start(config) as engine:
            windows = [Window(samples=read_clip(name), session=name, options=options) for name in NAMES]
            return [done.text for done in await asyncio.gather(*(done_of(engine, window) for window in windows))]

    assert await found(config) == await found(CPU)


async def test_graphs_decode_as_the_kernels_alone() -> None:
    """Tokens and times are the same, whether graphs are replayed or kernels are launched one by one."""
    replayed = await transcribe(HALF, NAMES)
    launched = await transcribe(replace(HALF, cuda_graphs=False), NAMES)
    assert [done.pieces for done in replayed] == [done.pieces for done in launched]
    eager = await transcribe(replace(HALF, kernels="torch"), NAMES)
    assert [done.text for done in replayed] == [done.text for done in eager]
    for ours, theirs in zip(replayed, eager, strict=True):
        assert ours.avg_logprob == pytest.approx(theirs.avg_logprob, abs=0.02)
        assert ours.end_logprob == pytest.approx(theirs.end_logprob, abs=0.02)


def copy_as_untrained(model: str, folder: Path) -> str:
    """Copy a checkpoint into `folder` without the note that it was trained on short windows, and return its path."""
    copy = folder / "untrained"
    shutil.copytree(model, copy, copy_function=os.symlink)
    file = copy / "generation_config.json"
    config = json.loads(file.read_text())
    del config["tutti_audio_context"]
    file.unlink()
    file.write_text(json.dumps(config))
    return str(copy)


async def test_short_interims_have_the_same_words_with_and_without_graphs(tmp_path: Path) -> None:
    """The model is used as if it had been trained on full windows. Finals have the same words too."""
    config = replace(HALF, model=copy_as_untrained(SMALL_MODEL, tmp_path), audio_context="interims")
    finals = await transcribe(config, NAMES)
    names = [NAMES[index % 3] for index in range(24)]
    replayed = await transcribe(config, names, Priority.INTERIM)
    launched = await transcribe(replace(config, cuda_graphs=False), names, Priority.INTERIM)
    assert [done.text for done in replayed] == [done.text for done in launched]
    assert [done.text for done in replayed[:3]] == [done.text for done in finals]


@pytest.mark.parametrize("audio_context", ["auto", "full"])
async def test_a_window_decodes_alone_as_in_a_batch_in_half_precision(audio_context: AudioContext) -> None:
    """No token depends on the other windows."""
    config = replace(HALF, audio_context=audio_context)
    alone = {name: (await transcribe(config, [name]))[0].pieces for name in NAMES}
    names = [NAMES[index % 3] for index in range(64)]
    together = await transcribe(config, names)
    assert [done.pieces for done in together] == [alone[name] for name in names]


@pytest.mark.timeout(400)
async def test_flashinfer_decodes_as_our_kernels() -> None:
    """The words are the same. FlashInfer compiles its kernels at their first use, for minutes on a slow host."""
    pytest.importorskip("flashinfer")
    ours = await transcribe(replace(HALF, audio_context="full"), NAMES)
    theirs = await transcribe(replace(HALF, audio_context="full", kernels="flashinfer"), NAMES)
    assert [done.text for done in theirs] == [done.text for done in ours]


async def test_an_encoder_in_eight_bits_has_the_same_words() -> None:
    """So do windows that are only as long as their audio."""
    ours = await transcribe(HALF, NAMES)
    contexts: tuple[AudioContext, ...] = ("auto", "full")
    for context in contexts:
        coarse = await transcribe(replace(HALF, encoder_dtype="fp8", audio_context=context), NAMES)
        assert [done.text for done in coarse] == [done.text for done in ours]


async def test_a_cache_in_eight_bits_has_the_same_words() -> None:
    """So has a window alone and in a batch, to the bit. Log-probabilities differ in the third digit."""
    ours = await transcribe(HALF, NAMES)
    config = replace(HALF, cross_cache="int8")
    alone = {name: (await transcribe(config, [name]))[0] for name in NAMES}
    together = await transcribe(config, [NAMES[index % 3] for index in range(64)])
    assert [done.text for done in together[:3]] == [done.text for done in ours]
    for index, done in enumerate(together):
        assert done.pieces == alone[NAMES[index % 3]].pieces
        assert done.avg_logprob == pytest.approx(ours[index % 3].avg_logprob, abs=0.02)
    both = await transcribe(replace(config, encoder_dtype="fp8"), NAMES)
    assert [done.text for done in both] == [done.text for done in ours]


async def test_drafts_change_nothing_in_half_precision() -> None:
    """The correct draft tokens save a step each, and the pieces stay the same."""
    async with Engine.start(HALF) as engine:
        for name in NAMES:
            window = Window(samples=read_clip(name), session=name, options=DecodeOptions(language="en"))
            done = await done_of(engine, window)
            tokens = tuple(token for piece in done.pieces for token in piece.tokens)
            draft = DecodeOptions(language="en", draft=(*tokens[:6], 300, *tokens[6:]))
            drafted = await done_of(engine, replace(window, options=draft))
            assert drafted.pieces == done.pieces
            assert drafted.n_steps == done.n_steps - 6


async def test_cancelling_at_any_stage_frees_the_slot() -> None:
    """In the queue, after the first token, after a few more. Windows that are not cancelled decode as always."""
    async with Engine.start(HALF) as engine:
        window = Window(samples=read_clip("train"), session="kept", options=DecodeOptions(language="en"))
        expected = (await done_of(engine, window)).pieces

        async def cancel(index: int) -> None:
            async with engine.submit(replace(window, session=f"cancelled {index}")) as events:
                if index % 6:
                    await anext(events)
                    n_tokens = engine.stats().tokens_decoded + 3 * (index % 6 - 1)
                    while engine.stats().tokens_decoded < n_tokens:  # noqa: ASYNC110  # the engine has no event for it
                        await asyncio.sleep(0.001)

        for _ in range(5):
            cancelled = asyncio.gather(*(cancel(index) for index in range(60)))
            kept = await asyncio.gather(*(done_of(engine, window) for _ in range(4)))
            await cancelled
            assert all(done.pieces == expected for done in kept)
        assert_idle(engine)


async def test_ten_thousand_requests_leak_no_memory() -> None:
    """Device memory grows by 1 MiB at most, and no slot stays in use."""
    async with Engine.start(HALF) as engine:
        window = Window(samples=read_clip("hello"), session="", options=DecodeOptions(language="en", max_tokens=8))

        async def many(number: int, count: int) -> None:
            for _ in range(count):
                await done_of(engine, replace(window, session=f"s{number}"))

        await asyncio.gather(*(many(number, 4) for number in range(64)))
        before = allocated()
        await asyncio.gather(*(many(number, 157) for number in range(64)))
        assert allocated() <= before + 2**20
        assert_idle(engine)
        assert engine.stats().windows_done >= 10_000


def assert_idle(engine: Engine) -> None:
    stats = engine.stats()
    assert (stats.running, stats.waiting_finals, stats.waiting_interims) == (0, 0, 0)


def allocated() -> int:
    """Bytes of device memory in use."""
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize("n_states", [129, 256, 300, 1_500])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_our_attention_over_windows_is_pytorchs(n_states: int, dtype: torch.dtype) -> None:
    """Whether a window has less than a tile, whole blocks of keys or a part of one. Others beside it change nothing."""
    attention = pytest.importorskip("tutti_server.engine.cuda.kernels.window_attention")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for Hopper GPUs")
    generator = torch.Generator("cuda").manual_seed(n_states)
    packed = torch.randn((3 * n_states, 3, 20, 64), device="cuda", generator=generator).to(dtype)
    out = torch.full((3 * n_states, 20 * 64), torch.nan, device="cuda", dtype=dtype)
    attention.attend_to_windows(packed, out, n_states)
    expected = encoder_attention(packed.float(), find_runs([n_states] * 3))
    assert float((out.float() - expected).norm() / expected.norm()) < 4e-3
    alone = torch.full((n_states, 20 * 64), torch.nan, device="cuda", dtype=dtype)
    attention.attend_to_windows(packed[n_states : 2 * n_states].contiguous(), alone, n_states)
    assert torch.equal(alone, out[n_states : 2 * n_states])


async def test_an_engine_that_has_ended_gives_its_memory_back() -> None:
    """To others as well. Workspaces of cuBLAS stay, about 0.2 GiB of each engine. A second engine has as many slots."""
    config = EngineConfig(model="random:turbo", device="cuda", dtype="bfloat16")
    torch.zeros(1, device="cuda")
    free_before, _ = torch.cuda.mem_get_info()
    slots = set()
    for _ in range(2):
        async with Engine.start(config) as engine:
            slots.add(engine.info.n_slots)
        assert torch.cuda.mem_get_info()[0] >= free_before - 2**30
    assert len(slots) == 1


async def test_a_model_is_loaded_while_another_one_decodes() -> None:
    """What the thread of the other one asks of the GPU meanwhile does not end the capture of graphs."""
    window = Window(samples=read_clip("hello"), session="s", options=DecodeOptions(language="en"))
    async with Engine.start(HALF) as engine:
        text = (await done_of(engine, window)).text
        second = asyncio.create_task(transcribe(HALF, ["hello"]))
        while not second.done():
            assert (await done_of(engine, window)).text == text
        assert [done.text for done in await second] == [text]
