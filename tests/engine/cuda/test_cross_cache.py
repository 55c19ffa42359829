"""Keys and values in 8 bits, and the check of a cache. Without a GPU, Triton's interpreter runs the kernels."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL
from tutti_server.engine.cuda import cross_cache
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.forward import EagerForward
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill, random_checkpoint
from tutti_server.engine.model.whisper import Whisper
from tutti_server.engine.model.whisper import build as build_model

SIZES = replace(SMALL, decoder_layers=1, max_source_positions=24)
CPU = torch.device("cpu")


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


@pytest.mark.nightly
@pytest.mark.usefixtures("plain_products")
def test_a_checkpoint_is_compared_with_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one dimension of each head is very large, 8 bits have nothing left for the others."""
    checkpoint = random_checkpoint("random:tiny")
    checkpoint = replace(checkpoint, model=replace(SIZES, vocab_size=checkpoint.model.vocab_size))
    model = build_model(checkpoint.model, DEVICE, torch.float32)
    fill(model)
    monkeypatch.setattr(cross_cache, "N_TOKENS", 4)
    monkeypatch.setattr(cross_cache, "sound", lambda: torch.randn(1, 24 * 320))
    assert 0 < cross_cache.check(checkpoint, model, "int8") < 0.01
    cross = next(iter(model.decoder.layers)).encoder_attn
    n_heads, size = checkpoint.model.decoder_attention_heads, checkpoint.model.d_model
    with torch.no_grad():
        cross.kv_proj.weight.view(2, n_heads, -1, size)[:, :, 0] *= 1000
        cross.q_proj.weight.view(n_heads, -1, size)[:, 0] /= 1000
        cross.out_proj.weight.view(size, n_heads, -1)[:, :, 0] /= 1000
    with pytest.raises(CheckpointError, match=r"cross_cache int8: expected each layer.s attention within .*, got 0"):
        cross_cache.check(checkpoint, model, "int8")
