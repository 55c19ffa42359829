"""Windows of different lengths share an encoder call."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.packing import find_runs, pack
from tutti_server.engine.model.whisper import Whisper, build

SIZES = ModelConfig(
    d_model=16,
    n_mels=8,
    encoder_layers=2,
    encoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_layers=1,
    decoder_attention_heads=2,
    decoder_ffn_dim=32,
    vocab_size=10,
    max_source_positions=50,
    max_target_positions=20,
)


@pytest.fixture(scope="module")
def model() -> Whisper:
    torch.manual_seed(0)
    model = build(SIZES, torch.device("cpu"), torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_runs_cover_all_windows_in_order(n_states: list[int]) -> None:
    """Packed windows are unpacked as they were."""
    runs = find_runs(n_states)
    windows = [torch.arange(length) + 100 * index for index, length in enumerate(n_states)]
    packed = torch.cat(windows)
    unpacked = [row for run in runs for row in run.unpack(packed)]
    assert all(torch.equal(row, window) for row, window in zip(unpacked, windows, strict=True))
    assert torch.equal(pack([run.unpack(packed) for run in runs]), packed)
    assert [index for run in runs for index in range(len(n_states))[run.windows]] == list(range(len(n_states)))
    assert all(left.n_states != right.n_states for left, right in pairwise(runs))


@torch.inference_mode()
@pytest.mark.parametrize("n_states", [[50, 50, 50], [20, 50, 20, 20, 7], [13]])
def test_a_window_is_encoded_in_a_batch_as_alone(model: Whisper, n_states: list[int]) -> None:
    """Neither its neighbours nor the frames after its end change it."""
    features = torch.randn(len(n_states), SIZES.n_mels, 100)
    runs = find_runs(n_states)
    packed = model.encoder(features, runs)
    together: list[Tensor] = [row for run in runs for row in run.unpack(packed)]
    for row, length, found in zip(features, n_states, together, strict=True):
        alone = model.encoder(row[None, :, : 2 * length], find_runs([length]))
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
