"""Rounding to 4 bits, its gradients, and the file that comes out."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.adaptation.clips import Clips
from engine.adaptation.reader import Reader, load_whisper
from engine.adaptation.training import Trainer, Training
from engine.checkpoint.checkpoint import read_checkpoint
from engine.checkpoint.layout import read_json
from tests.engine.checkpoints import Shape, make_checkpoint
from training.four_bits import LEVELS, FourBitStudent, Matrix, is_rounded
from training.ggml import write_model

CPU = torch.device("cpu")
SHAPE = Shape("four-bits", languages=("en", "de"), d_model=256, encoder_layers=1, decoder_layers=1)


def random_matrix(seed: int = 0) -> Matrix:
    weight = torch.randn(16, 512, generator=torch.Generator().manual_seed(seed)) * 0.05
    return Matrix.of(weight.requires_grad_(True))


def rounded(matrix: Matrix) -> Tensor:
    matrix.prepare()
    return matrix.weight.detach().clone()


def test_every_number_becomes_the_nearest_level_of_its_block() -> None:
    matrix = random_matrix()
    _, scale = matrix.scales()
    possible = scale[:, :, None] * torch.tensor(LEVELS, dtype=torch.float32)
    nearest = (matrix.numbers.detach()[:, :, None] - possible).abs().amin(-1)
    error = (rounded(matrix).view_as(matrix.numbers) - matrix.numbers.detach()).abs()
    torch.testing.assert_close(error, nearest)
    # A block's levels are some 0.11 of its largest number apart.
    assert (error.square().mean().sqrt() / 0.05).item() < 0.09


def test_a_scale_grows_if_its_largest_number_needs_more() -> None:
    """The other blocks' scales stay."""
    matrix = random_matrix()
    with torch.no_grad():
        matrix.numbers[5, 0] = matrix.numbers[5].abs().max() * 3
    before = rounded(matrix).view_as(matrix.numbers)
    wanted = before.clone()
    wanted[5, 0] = matrix.numbers[5, 0].detach()
    matrix.weight.grad = (before - wanted).view_as(matrix.weight)
    matrix.collect()
    assert matrix.growth.grad is not None
    assert matrix.growth.grad[5] < 0
    assert not matrix.growth.grad[torch.arange(len(before)) != 5].any()
    assert matrix.weight.grad is None


def test_numbers_beyond_the_levels_have_no_gradient_of_their_own() -> None:
    matrix = random_matrix()
    with torch.no_grad():
        matrix.numbers[3, 7] = matrix.numbers[3].abs().max() * 9
    matrix.prepare()
    matrix.weight.grad = torch.ones_like(matrix.weight)
    matrix.collect()
    assert matrix.numbers.grad is not None
    assert matrix.numbers.grad[3, 7] == 0 and matrix.numbers.grad.mean() > 0.9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("original"), SHAPE)


def test_the_engine_reads_what_was_trained(folder: Path, tmp_path: Path) -> None:
    """Every weight is the student's, 8 bits of the small ones; positions that are left out are computed."""
    student = FourBitStudent(load_whisper(folder, CPU))
    with torch.no_grad():
        for matrix in student.matrices.values():
            matrix.growth += 0.004 * torch.randn_like(matrix.growth)
    student.prepare()
    write_model(student, read_json(folder / "config.json"), tmp_path / "ggml-model.bin")
    for name in ("tokenizer.json", "generation_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    checkpoint, original = read_checkpoint(str(tmp_path)), read_checkpoint(str(folder))
    assert (checkpoint.model, checkpoint.generation) == (original.model, original.generation)
    weights, n_rounded = checkpoint.weights(), 0
    for name, weight in student.model.named_parameters():
        read = np.concatenate([np.asarray(block).reshape(-1) for _, _, block in weights[name].blocks()])
        exact = is_rounded(name, weight)
        n_rounded += exact
        step = weight.detach().abs().max().item() / 127
        tolerance = 0.0 if exact or weight.ndim == 1 else 0.6 * step
        np.testing.assert_allclose(read, weight.detach().numpy().reshape(-1), rtol=0, atol=tolerance)
    assert n_rounded == len(student.matrices) > 10


def test_a_step_reaches_every_weight(folder: Path, tmp_path: Path) -> None:
    """Rounded numbers, scales and the small weights all move, and what the model computes with is rounded again."""
    model = load_whisper(folder, CPU)
    student = FourBitStudent(model)
    before = [weight.detach().clone() for weight in student.weights]
    noise = np.random.default_rng(0).normal(0, 0.1, 80_000).astype(np.float32)
    reader = Reader(model, read_checkpoint(str(folder)), ())
    trainer = Trainer(
        reader, student, Clips([noise], CPU, 0, 150), Training(steps=2, batch=2, learning_rate=1e-3), tmp_path
    )
    trainer.train(lambda _: None)
    assert all(not torch.equal(weight, old) for weight, old in zip(student.weights, before, strict=True))
    for matrix in student.matrices.values():
        assert torch.equal(matrix.weight, rounded(matrix))
    assert np.isfinite(trainer.losses).all()
