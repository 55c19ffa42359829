"""Keys and values in 8 bits, and the check of a cache. Without a GPU, Triton's interpreter runs the kernels."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL
from tests.engine.cuda.test_gpu import NAMES, last, read_clip
from tutti_server.engine.api import DecodeOptions, DoneEvent, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda import build, cross_cache
from tutti_server.engine.cuda.fused_model import HalfProducts
from tutti_server.engine.engine import Engine
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache, quantise
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill, random_checkpoint
from tutti_server.engine.model.whisper import Whisper
from tutti_server.engine.model.whisper import build as build_model

SIZES = replace(SMALL, decoder_layers=1, max_source_positions=24)
CPU = torch.device("cpu")
IN_8_BITS = EngineConfig(cross_cache="int8")


def test_numbers_lose_little_whatever_is_beside_them() -> None:
    """The largest number of a key has 127 steps; others have the same steps. Zeros stay zeros."""
    values = torch.randn(3, 5, 64) * torch.logspace(-4, 4, 5)[:, None]
    values[0, 0] = 0.0
    integers, scales = quantise(values)
    assert integers.dtype == torch.int8
    assert (integers.abs().amax(-1) == 127).sum() == 14
    assert not integers[0, 0].any()
    assert bool(((integers * scales[..., None] - values).abs() <= 0.51 * scales[..., None]).all())


@pytest.fixture(scope="module")
def model() -> Whisper:
    model = build_model(SIZES, DEVICE, torch.float32)
    fill(model)
    return model


@torch.inference_mode()
def test_a_window_reads_the_same_keys_alone_and_in_a_batch(model: Whisper) -> None:
    """No window's numbers depend on another's, in any slot."""
    samples = 0.01 * torch.randn(3, 24 * STATE_SAMPLES, device=DEVICE)
    samples[0] *= 50.0
    none = torch.zeros(0, dtype=torch.long)
    together, alone = (KVCache(SIZES, 4, DEVICE, torch.float32, has_int8_cross=True) for _ in range(2))
    EagerForward(model, together, none, none).encode(samples, [2, 0, 3], find_runs([24, 24, 16]))
    EagerForward(model, alone, none, none).encode(samples[1:2], [1], find_runs([24]))
    found = together.read_cross_attention(0, slice(0, 1), 24)
    # Sums of products of another number of rows differ in their last bits.
    expected = alone.read_cross_attention(0, slice(1, 2), 24)
    torch.testing.assert_close(found, expected, atol=float(expected.abs().max()) / 120, rtol=0)


@torch.inference_mode()
@pytest.mark.nightly
def test_a_checkpoint_is_compared_with_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = random_checkpoint("random:tiny")
    checkpoint = replace(checkpoint, model=replace(SIZES, vocab_size=checkpoint.model.vocab_size))
    model = build_model(checkpoint.model, DEVICE, torch.float32)
    fill(model)
    # Our own products are slow in Triton's interpreter, and have tests of their own.
    monkeypatch.setattr("tutti_server.engine.cuda.fused_model.MAX_TRITON_ROWS", 0)
    monkeypatch.setattr(cross_cache, "N_TOKENS", 4)
    monkeypatch.setattr(cross_cache, "sound", lambda: torch.randn(1, 24 * 320))
    error = cross_cache.check(checkpoint, model, HalfProducts(model.encoder), IN_8_BITS)
    assert 0 < error < 0.02
    monkeypatch.setattr(cross_cache, "MAX_ERROR", error / 2)
    with pytest.raises(CheckpointError, match=r"cross_cache int8: expected logits within .*, got 0"):
        cross_cache.check(checkpoint, model, HalfProducts(model.encoder), IN_8_BITS)


def test_flashinfers_steps_are_refused(small_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels do not know the format."""
    monkeypatch.setattr(build, "can_fuse", lambda *_: True)
    config = EngineConfig(cross_cache="int8", kernels="flashinfer")
    with pytest.raises(CheckpointError, match="cross_cache int8: expected kernels auto or triton, got flashinfer"):
        build.uses_fused_kernels(config, small_checkpoint.model, CPU, torch.bfloat16)


async def transcribe(config: EngineConfig, name: str) -> DoneEvent:
    window = Window(samples=read_clip(name), session=name, options=DecodeOptions(language="en"))
    async with Engine.start(config) as engine:
        return await last(engine, window)


@pytest.mark.nightly
async def test_the_small_model_says_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by the plain forward pass. Log-probabilities differ in the third digit."""
    config = EngineConfig(device="cpu", dtype="float32", n_slots=2)
    expected = [await transcribe(config, name) for name in NAMES]
    # A CPU gains nothing from it, and so refuses it.
    monkeypatch.setattr("tutti_server.engine.runner.uses_fused_kernels", lambda *_: False)
    found = [await transcribe(replace(config, cross_cache="int8"), name) for name in NAMES]
    assert [done.text for done in found] == [done.text for done in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.avg_logprob == pytest.approx(theirs.avg_logprob, abs=0.005)
        assert ours.avg_logprob != theirs.avg_logprob
