"""Attention to encoder states themselves. The kernel runs on a GPU only: without one, PyTorch stands in for it."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL, encode, numbers
from tests.engine.cuda.test_gpu import HALF, NAMES, transcribe
from tests.engine.cuda.test_row_step import struct
from tests.engine.engines import read_clip
from tutti_server.engine.api import DecodeOptions, SegmentEvent, Window
from tutti_server.engine.cuda import cross_cache, states_attention
from tutti_server.engine.cuda.fused_model import FusedDecoder
from tutti_server.engine.cuda.kernels.int8_attention import LOG2_E
from tutti_server.engine.cuda.nvrtc import CudaError
from tutti_server.engine.cuda.states_attention import CrossAttentionToStates, StatesKernel, shared_memory
from tutti_server.engine.engine import Engine
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import SIZES, fill, random_checkpoint
from tutti_server.engine.model.whisper import Whisper
from tutti_server.engine.model.whisper import build as build_model

CPU = torch.device("cpu")
N_SLOTS = 4


def attend_plainly(
    cache: KVCache, queries: Tensor, slots: Tensor, n_tokens: int, partials: Tensor, stats: Tensor
) -> None:
    """Compute what the kernel computes."""
    split_states, scale = states_attention.SPLIT_STATES, LOG2_E / math.sqrt(queries.shape[2] // queries.shape[1])
    for entry, query in enumerate(queries):
        slot = int(slots[entry // n_tokens])
        own = states_attention.states_of(cache)[slot, : int(cache.lengths[slot])].float()
        for split in range(math.ceil(len(own) / split_states)):
            part = own[split * split_states : (split + 1) * split_states]
            scores = query.float() @ part.T * scale
            peaks = scores.amax(1)
            weights = torch.exp2(scores - peaks[:, None])
            totals = weights.sum(1)
            partials[entry, split] = (weights @ part / totals[:, None]).to(partials.dtype)
            stats[entry, split] = torch.stack([peaks, totals], 1)


@pytest.fixture(scope="module")
def model() -> Whisper:
    """Its keys have biases, which must not matter."""
    model = build_model(replace(SMALL, encoder_layers=1), DEVICE, torch.float32)
    fill(model)
    for parameter in model.decoder.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.fixture
def without_kernel(monkeypatch: pytest.MonkeyPatch, plain_products: None) -> None:
    """Small splits, so that windows of 60 states have several, and PyTorch in place of the kernel."""
    monkeypatch.setattr(states_attention, "SPLIT_STATES", 24)
    monkeypatch.setattr(states_attention, "StatesKernel", lambda cache: partial(attend_plainly, cache))


def make_caches(model: Whisper) -> tuple[KVCache, KVCache]:
    """Keys and values, and the states of the same two windows: in slot 2, and a shorter one in slot 0."""
    plain = KVCache(SMALL, N_SLOTS, DEVICE, torch.float32)
    cache = KVCache(SMALL, N_SLOTS, DEVICE, torch.float32, project_states=model.decoder.cross_keys_values)
    lengths, slots = [60, 40], [2, 0]
    states = encode(model, plain, lengths, slots, fused=False)
    cache.write_states(slots, states, find_runs(lengths))
    for slot, length in zip(slots, lengths, strict=True):
        cache.set_length(slot, length)
    cache.update()
    assert cache.cross_attention.numel() == 0
    return plain, cache


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels in 32 bits need more shared memory than a GPU has")
@torch.inference_mode()
def test_a_decoder_over_states_gives_what_one_over_keys_and_values_gives(model: Whisper, without_kernel: None) -> None:
    """For prompts and for steps, of rows in any slots. A row whose slot has no window is finite."""
    plain, cache = make_caches(model)
    tokens, slots = torch.randint(0, 300, (3, 3), device=DEVICE), numbers(2, 0, 1)
    for part, start in ((tokens[:, :2], 0), (tokens[:, 2:], 2)):
        starts = torch.full((3,), start, device=DEVICE)
        expected, found = (FusedDecoder(model.decoder, each)(part, starts, slots) for each in (plain, cache))
        torch.testing.assert_close(found[:2], expected[:2], atol=5e-3, rtol=5e-3)
        assert bool(found.isfinite().all())


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels in 32 bits need more shared memory than a GPU has")
@torch.inference_mode()
def test_many_tokens_are_cut_into_launches(
    model: Whisper, without_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cache = make_caches(model)
    attend, layer = CrossAttentionToStates(cache), next(iter(model.decoder.layers)).encoder_attn
    query = torch.randn(3 * 5, SMALL.d_model, device=DEVICE)
    slots = numbers(2, 0, 2)
    launches: list[int] = []
    kernel = attend._attend

    def counted(queries: Tensor, *others: Any) -> None:
        launches.append(len(queries))
        kernel(queries, *others)

    monkeypatch.setattr(attend, "_attend", counted)
    expected = attend(layer, query, slots, 5)
    for most, sizes in ((10, [10, 5]), (3, [5, 5, 5])):
        launches.clear()
        monkeypatch.setattr(states_attention, "MAX_TOKENS", most)
        torch.testing.assert_close(attend(layer, query, slots, 5), expected)
        assert launches == sizes


@torch.inference_mode()
def test_windows_are_stored_as_the_plain_pass_stores_them(model: Whisper, without_kernel: None) -> None:
    _, expected = make_caches(model)
    found = KVCache(SMALL, N_SLOTS, DEVICE, torch.float32, project_states=model.decoder.cross_keys_values)
    encode(model, found, [60, 40], [2, 0], fused=True)
    assert expected.encoder_states is not None and found.encoder_states is not None
    torch.testing.assert_close(found.encoder_states, expected.encoder_states, atol=5e-3, rtol=5e-3)
    assert found.encoder_lengths == expected.encoder_lengths


@torch.inference_mode()
def test_the_plain_pass_makes_keys_and_values_when_it_reads_them(model: Whisper) -> None:
    """It is asked for attention weights, on a GPU, too."""
    plain, cache = make_caches(model)
    heads = [(0, 1), (1, 0)]
    expected, found = (
        EagerForward(model, each, numbers(), numbers()).prefill_with_attention([[5, 6, 7], [8]], [2, 0], heads)
        for each in (plain, cache)
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=5e-3)


def test_a_device_without_the_kernel_is_refused(model: Whisper) -> None:
    """Whatever serves in its place would be slower than what was asked for."""
    cache = KVCache(SMALL, 1, CPU, torch.float32, project_states=model.decoder.cross_keys_values)
    with pytest.raises(CudaError, match=r"expected a GPU of compute capability 9\.0 or newer, got no CUDA device"):
        StatesKernel(cache)


@pytest.mark.usefixtures("without_kernel")
def test_the_refusal_names_the_option(model: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cache: KVCache) -> None:
        raise CudaError("expected another GPU")

    checkpoint = replace(random_checkpoint("random:tiny"), model=replace(SMALL, max_source_positions=24))
    monkeypatch.setattr(states_attention, "StatesKernel", refuse)
    monkeypatch.setattr(cross_cache, "sound", lambda: torch.zeros(1, 24 * 320))
    monkeypatch.setattr(cross_cache, "_added_by_layers", lambda *args: FusedDecoder(model.decoder, args[-1]))
    with pytest.raises(CheckpointError, match="cross_cache states: expected another GPU"):
        cross_cache.check(checkpoint, model, "states")


def test_arguments_are_in_the_order_of_the_kernels_source() -> None:
    names = [name for name, *_ in states_attention._Arguments._fields_]
    assert names == struct(states_attention.SOURCE, "Arguments")


@pytest.mark.parametrize("name", ["tiny", "base", "small", "medium", "large-v3"])
def test_shared_memory_of_an_h100_holds_what_the_kernel_needs(name: str) -> None:
    """And every warp has whole blocks of 16 numbers of a state."""
    size = SIZES[name]
    n_stages, n_bytes = shared_memory(size.d_model, size.decoder_attention_heads, 232_448)
    assert 4 <= n_stages <= 8
    assert n_bytes <= 232_448
    assert size.d_model % (16 * states_attention.warps(size.d_model)) == 0


@pytest.mark.parametrize(("n_entries", "expected"), [(1, 1), (33, 1), (64, 2), (128, 4), (192, 2), (384, 4), (512, 4)])
def test_blocks_have_more_splits_where_rows_fill_the_gpu(n_entries: int, expected: int) -> None:
    assert states_attention.block_splits(n_entries, 4, 132) == expected
    assert states_attention.block_splits(n_entries, 1, 132) == 1


def test_the_drivers_structures_have_its_sizes() -> None:
    """As in its header: an attribute has 72 bytes, of which the value begins after 8."""
    from tutti_server.engine.cuda.nvrtc import _Attribute, _Launch

    assert ctypes.sizeof(_Attribute) == 72
    assert _Attribute.value.offset == 8
    assert ctypes.sizeof(_Launch) == 56


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "dtype"), [("large-v3", torch.bfloat16), ("medium", torch.float16), ("tiny", torch.bfloat16)]
)
@torch.inference_mode()
def test_the_kernel_computes_what_it_should(name: str, dtype: torch.dtype) -> None:
    """For windows of any length, for one token and several; the same bits by all blocks; nothing else is written."""
    config, device = replace(SIZES[name], decoder_layers=1), torch.device("cuda")
    lengths = [1500, 384, 385, 700, 31, 1, 0]
    cache = KVCache(config, len(lengths), device, dtype, project_states=lambda *_: torch.empty(0))
    states = states_attention.states_of(cache)
    states.normal_().add_(torch.randn(config.d_model, device=device)).mul_(0.5)
    for slot, length in enumerate(lengths):
        cache.set_length(slot, length)
    cache.update()
    kernels, slots = [StatesKernel(cache) for _ in range(3)], torch.tensor([3, 0, 1, 2, 6, 4, 5], device=device)
    for kernel, n_processors in zip(kernels, (132, 7, 3), strict=True):  # a block has 1, 4 and 2 splits for 7 rows
        kernel._n_processors = n_processors
    n_heads = config.decoder_attention_heads
    for n_tokens in (1, 3):
        queries = torch.randn(len(slots) * n_tokens, n_heads, config.d_model, device=device).to(dtype)
        results = []
        attends: list[Callable[..., None]] = [*kernels, partial(attend_plainly, cache)]
        for attend in attends:
            partials = torch.full((len(queries), 4, n_heads, config.d_model), torch.nan, device=device, dtype=dtype)
            stats = torch.full((len(queries), 4, n_heads, 2), torch.nan, device=device)
            attend(queries, slots, n_tokens, partials, stats)
            results.append((partials, stats))
        (found, found_stats), *others, (expected, expected_stats) = results
        for other, other_stats in others:
            assert torch.equal(found.nan_to_num(), other.nan_to_num())
            assert torch.equal(found_stats.nan_to_num(), other_stats.nan_to_num())
        assert torch.equal(found.isnan(), expected.isnan())
        difference = (found.float() - expected.float()).nan_to_num()
        assert float(difference.norm() / expected.float().nan_to_num().norm()) < 2e-3
        # A peak need not be the largest score, but the sum of weights goes with it.
        ours, theirs = (stats[..., 0] + stats[..., 1].log2() for stats in (found_stats, expected_stats))
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3, equal_nan=True)


@pytest.mark.gpu
async def test_states_have_the_same_words_alone_and_in_a_batch() -> None:
    """Each window has the same tokens, to the bit; also with an encoder in 8 bits, and where all is launched singly."""
    ours = await transcribe(HALF, NAMES)
    config = replace(HALF, cross_cache="states")
    alone = {name: (await transcribe(config, [name]))[0] for name in NAMES}
    together = await transcribe(config, [NAMES[index % 3] for index in range(64)])
    assert [done.text for done in together[:3]] == [done.text for done in ours]
    for index, done in enumerate(together):
        assert done.pieces == alone[NAMES[index % 3]].pieces
        assert done.avg_logprob == pytest.approx(ours[index % 3].avg_logprob, abs=0.02)
    for changed in (replace(config, encoder_dtype="fp8"), replace(config, cuda_graphs=False)):
        assert [done.text for done in await transcribe(changed, NAMES)] == [done.text for done in ours]


@pytest.mark.gpu
async def test_word_times_come_from_states() -> None:
    """They are read by the plain pass."""
    window = Window(samples=read_clip("train"), session="", options=DecodeOptions(language="en", word_times=True))
    words = []
    for config in (HALF, replace(HALF, cross_cache="states")):
        async with Engine.start(config) as engine, engine.submit(window) as events:
            segments = [event.segment async for event in events if isinstance(event, SegmentEvent)]
        words.append([word for segment in segments for word in segment.words or ()])
    assert [word.text for word in words[0]] == [word.text for word in words[1]] != []
    for ours, theirs in zip(*words, strict=True):
        assert ours.start_s == pytest.approx(theirs.start_s, abs=0.1)
