"""The encoder in 8 bits. Without a GPU, its 8-bit numbers are multiplied in 32 bits."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL
from tests.small_model import SMALL_MODEL
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda import fp8
from tutti_server.engine.cuda.fused_model import FusedEncoder, HalfProducts
from tutti_server.engine.cuda.kernels.norm import Scaled
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.log_mel import log_mel, mel_filters
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill
from tutti_server.engine.model.whisper import Whisper, build
from tutti_server.engine.runner import load_runner

TINY = replace(SMALL, encoder_layers=1, decoder_layers=1, max_source_positions=24)

DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32


def multiply(x: Scaled, weight: Scaled, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    product = (x.values.float() * x.scales) @ (weight.values.float() * weight.scales).T
    return (product if bias is None else product + bias).to(dtype)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, exact_eight_bits: None, plain_products: None) -> Whisper:
    if DEVICE.type == "cpu":
        monkeypatch.setattr(fp8, "multiply", multiply)
    model = build(TINY, DEVICE, DTYPE)
    fill(model)
    return model


def states(model: Whisper, products: HalfProducts | fp8.Fp8Products) -> Tensor:
    n_states = TINY.max_source_positions
    filters = mel_filters(TINY.n_mels).to(DEVICE)
    features = log_mel(fp8.sound()[:, : 320 * n_states].to(DEVICE), filters).to(DTYPE)
    return FusedEncoder(model.encoder, products)(features, find_runs([n_states]))


@torch.inference_mode()
@pytest.mark.nightly
def test_states_are_close_to_those_in_sixteen_bits(model: Whisper) -> None:
    expected = states(model, HalfProducts(model.encoder))
    error = fp8.check(states(model, fp8.Fp8Products(model)), expected)
    assert 0.001 < error < 0.1


@torch.inference_mode()
def test_weights_that_do_not_fit_are_refused(model: Whisper) -> None:
    expected = states(model, HalfProducts(model.encoder))
    with pytest.raises(CheckpointError, match=r"encoder states within 0\.15 of those in 16 bits, got \d"):
        fp8.check(expected + expected.std() * torch.randn_like(expected), expected)
    with pytest.raises(CheckpointError, match="got nan"):
        fp8.check(expected * torch.nan, expected)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="this machine has a GPU")
def test_a_cpu_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"compute capability 8\.9 or newer, got no CUDA device"):
        fp8.require_device(torch.device("cpu"))
    with pytest.raises(
        CheckpointError, match="encoder_dtype fp8: expected 16 bits and our own kernels on a CUDA device"
    ):
        load_runner(EngineConfig(model=SMALL_MODEL, device="cpu", encoder_dtype="fp8"))
