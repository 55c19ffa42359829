"""Windows of different lengths in one pass of the encoder. Without a GPU, Triton's interpreter runs the kernels."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from tests.engine.cuda.test_fused_model import DEVICE, SMALL, assert_close, numbers
from tutti_server.engine.cuda.fused_model import FusedEncoder, HalfProducts
from tutti_server.engine.cuda.packed_windows import PackedWindows, places_of
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.random_weights import fill
from tutti_server.engine.model.whisper import Whisper, build

LENGTHS = [16, 32, 24]
LONGEST = 32


@pytest.fixture(scope="module")
def model() -> Whisper:
    """Its biases matter."""
    model = build(replace(SMALL, encoder_layers=1), DEVICE, torch.float32)
    fill(model)
    for parameter in model.encoder.parameters():
        parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE))
    return model


def audio() -> torch.Tensor:
    """Windows with noise and 0.1 s of silence after it; the last is not there."""
    samples = torch.zeros(len(LENGTHS) + 1, LONGEST * STATE_SAMPLES)
    generator = torch.Generator().manual_seed(1)
    for row, length in zip(samples, LENGTHS, strict=False):
        row[: length * STATE_SAMPLES - 1_600] = 0.1 * torch.randn(length * STATE_SAMPLES - 1_600, generator=generator)
    return samples.to(DEVICE)


@pytest.mark.usefixtures("plain_products")
@torch.inference_mode()
def test_windows_are_encoded_as_each_alone(model: Whisper) -> None:
    """What is left over of the states is finite."""
    samples, encoder = audio(), FusedEncoder(model.encoder, HalfProducts(model.encoder))
    packed = PackedWindows(numbers(*LENGTHS, 0), 80, LONGEST)
    found = encoder.encode_packed(model.log_mel(samples), packed)
    alone = [
        model.encoder(model.log_mel(samples[[row], : length * STATE_SAMPLES]), find_runs([length]))
        for row, length in enumerate(LENGTHS)
    ]
    assert_close(found[: sum(LENGTHS)], torch.cat(alone))
    assert bool(found.isfinite().all())


def test_every_state_has_its_place() -> None:
    """Those of no window go to the last slot. A window that is not there takes none, wherever it stands."""
    packed = PackedWindows(numbers(2, 0, 3), 8, 4)
    places = packed.places(numbers(7, 5, 6, 9))
    assert places.slots.tolist() == [7, 7, 6, 6, 6, 9, 9, 9]
    assert places.positions.tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    nothing = PackedWindows(numbers(0, 0), 6, 4).places(numbers(1, 2, 3))
    assert nothing.slots.tolist() == [3] * 6
    assert nothing.positions.tolist() == [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("slots", [(3,), (2, 0)])
def test_windows_of_one_length_lie_side_by_side(slots: tuple[int, ...]) -> None:
    """Kernels read the places one after another, so that they may not be one number that is looked at many times."""
    places = places_of(numbers(*slots), 3)
    assert places.slots.tolist() == [slot for slot in slots for _ in range(3)]
    assert places.positions.tolist() == [0, 1, 2] * len(slots)
    assert all(each.is_contiguous() for each in places)


@pytest.mark.gpu
@torch.inference_mode()
def test_the_kernel_attends_within_windows() -> None:
    """It takes the bounds from the device. The mask is that of the machines without the kernel."""
    packed = PackedWindows(numbers(200, 0, 300, 1000), 1_600, 1_000)
    trial = torch.randn(1_600, 3, 20, 64, device="cuda", dtype=torch.bfloat16)
    found, expected = packed._attend_with_kernel(trial), packed._attend_with_mask(trial.float())
    assert float((found[:1500].float() - expected[:1500]).norm() / expected[:1500].norm()) < 4e-3
