"""The forward passes in plain PyTorch."""

import pytest
import torch

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.forward import EagerForward, n_rows_of, pad
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill
from tutti_server.engine.model.whisper import build

CPU = torch.device("cpu")
SIZES = ModelConfig(
    d_model=32,
    n_mels=8,
    encoder_layers=1,
    encoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_layers=2,
    decoder_attention_heads=2,
    decoder_ffn_dim=64,
    vocab_size=50,
    max_source_positions=20,
    max_target_positions=16,
)
HEADS = [(0, 1), (1, 0)]
SLOTS = [2, 0]


@pytest.fixture
def forward() -> EagerForward:
    """Two windows are encoded, in the first and the third slot."""
    model = build(SIZES, CPU, torch.float32)
    fill(model)
    tokens, positions = torch.tensor([7, 8, 9]), torch.tensor([2, 0, 3])
    forward = EagerForward(model, KVCache(SIZES, 3, CPU, torch.float32), tokens, positions)
    samples = 0.1 * torch.randn(2, 20 * STATE_SAMPLES, generator=torch.Generator().manual_seed(0))
    forward.encode(samples, SLOTS, find_runs([20, 20]))
    return forward


def test_rows_are_padded_with_zeros() -> None:
    assert pad([[1, 2], (), [3]], 2) == [[1, 2], [0, 0], [3, 0]]


def test_rows_reach_up_to_the_highest_slot() -> None:
    assert n_rows_of({4: 0, 1: 0}) == 5


@torch.inference_mode()
def test_attention_weights_do_not_change_the_forward_pass(forward: EagerForward) -> None:
    """Prefills and steps give the same with them, and the weights of each head sum to 1."""
    hidden = forward.prefill([[1, 2, 3], [4, 5]], SLOTS)
    recorded, weights = forward.prefill_with_attention([[1, 2, 3], [4, 5]], SLOTS, HEADS)
    torch.testing.assert_close(recorded, hidden)
    assert weights.shape == (2, len(HEADS), 3, 20)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))

    logits = forward.step({2: 3, 0: 2})
    recorded, weights = forward.step_with_attention({2: 3, 0: 2}, HEADS)
    torch.testing.assert_close(recorded[SLOTS], logits[SLOTS])
    assert weights.shape == (3, len(HEADS), 1, 20)


@torch.inference_mode()
def test_a_step_continues_a_prefill(forward: EagerForward) -> None:
    """Its logits are those of a prefill that has the same tokens."""
    forward.prefill([[1, 2, 3], [4, 5]], SLOTS)
    logits = forward.step({2: 3, 0: 2})
    expected = forward.logits(forward.prefill([[1, 2, 3, 9]], [2])[:, 3])
    torch.testing.assert_close(logits[2:], expected)
