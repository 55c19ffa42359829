"""Trains all matrices of a Whisper in 4 bits, until the model says what its original says.

The form is IQ4_XS of ggml: 32 numbers share a scale of 6 bits, and 256 numbers a half-precision number that multiplies
the scales; a number is one of 16 levels that lie closer together near zero. Source: ggml-org/llama.cpp,
ggml/src/ggml-common.h, `block_iq4_xs`, and ggml/src/ggml-quants.c, `dequantize_row_iq4_xs`.

Rounded numbers have no gradient. That of a number passes to what it was rounded from, and that of a scale is what the
levels make of it, as in "Learned Step Size Quantization" (Esser et al., 2020).
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tutti_server.engine.adaptation.reader import encode

LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
BLOCK, BLOCKS = 32, 8
"""Numbers that share a scale, and scales that share a multiplier."""
LEAST_SCALE, MOST_SCALE = -32, 31
_HEADROOM = 30
"""The largest scale of a group begins with this number: it may still grow a little."""
_SCALE_RATE = 20.0
"""The logarithm of a scale changes this many times as fast as a weight."""
_TRIED = range(-20, 21, 2)


@dataclass(slots=True, kw_only=True)
class Matrix:
    """A weight whose numbers are stored in 4 bits: its blocks are rows of 32."""

    weight: Tensor
    """What the model computes with: the rounded numbers, in the weight's shape."""
    numbers: Tensor
    """`(blocks, 32)`: the numbers that are rounded."""
    growth: Tensor
    """`(blocks, 1)`: the logarithm of how much the scale has grown, divided by `_SCALE_RATE`."""
    first_scale: Tensor
    """`(blocks, 1)`"""
    multiplier: Tensor
    """`(blocks / 8, 1)`, a half-precision number in float32."""

    @classmethod
    def of(cls, weight: Tensor) -> "Matrix":
        """Round a weight as well as it goes without training."""
        numbers = weight.detach().float().reshape(-1, BLOCK).clone()
        scale = best_scales(numbers)
        groups = scale.view(-1, BLOCKS)
        largest = groups.gather(1, groups.abs().argmax(1, keepdim=True))
        multiplier = (-largest / _HEADROOM).half().float()
        return cls(
            weight=weight,
            numbers=numbers.requires_grad_(True),
            growth=torch.zeros_like(scale).requires_grad_(True),
            first_scale=scale,
            multiplier=multiplier,
        )

    @torch.no_grad()
    def scales(self) -> tuple[Tensor, Tensor]:
        """The scales as stored and as numbers: `(blocks, 1)` each."""
        wanted = self.first_scale * (_SCALE_RATE * self.growth).exp()
        multiplier = self.multiplier.repeat_interleave(BLOCKS, 0)
        stored = (wanted / torch.where(multiplier == 0, 1, multiplier)).round().clamp(LEAST_SCALE, MOST_SCALE)
        return stored, stored * multiplier

    @torch.no_grad()
    def prepare(self) -> None:
        """Round."""
        _, scale = self.scales()
        self.weight.data.copy_((levels(self.numbers.device)[codes(self.numbers, scale)] * scale).view_as(self.weight))

    @torch.no_grad()
    def collect(self) -> None:
        """Pass the gradient of the rounded numbers on to the numbers and the scales."""
        if self.weight.grad is None:
            return
        gradient = self.weight.grad.float().view_as(self.numbers)
        _, scale = self.scales()
        wanted = self.numbers / torch.where(scale == 0, 1, scale)
        is_inside = (wanted >= LEVELS[0]) & (wanted <= LEVELS[-1])
        error = levels(gradient.device)[codes(self.numbers, scale)] - torch.where(is_inside, wanted, 0)
        self.numbers.grad = gradient * is_inside
        self.growth.grad = _SCALE_RATE * scale * (gradient * error).sum(1, keepdim=True)
        self.weight.grad = None


def levels(device: torch.device) -> Tensor:
    """The 16 levels."""
    return torch.tensor(LEVELS, dtype=torch.float32, device=device)


def codes(numbers: Tensor, scale: Tensor) -> Tensor:
    """The nearest levels of numbers, 0 to 15: `(blocks, 32)` int64."""
    all_levels = levels(numbers.device)
    return torch.bucketize(numbers / torch.where(scale == 0, 1, scale), (all_levels[1:] + all_levels[:-1]) / 2)


@torch.no_grad()
def best_scales(numbers: Tensor) -> Tensor:
    """The scales with the least squared error of those that were tried: `(blocks, 32)` to `(blocks, 1)`."""
    largest = numbers.gather(1, numbers.abs().argmax(1, keepdim=True))
    best, best_gain = torch.zeros_like(largest), torch.zeros_like(largest)
    for end in (LEVELS[0], LEVELS[-1]):
        for more in _TRIED:
            level = levels(numbers.device)[codes(numbers, largest / (end + more))]
            product, square = (numbers * level).sum(1, keepdim=True), level.square().sum(1, keepdim=True)
            gain = product.square() / square
            best = torch.where(gain > best_gain, product / square, best)
            best_gain = torch.maximum(gain, best_gain)
    return best


class FourBitStudent:
    """A whole model whose matrices are rounded; the other weights are trained, too."""

    def __init__(self, model: Any) -> None:
        """Begin with the weights of a model of transformers, which stays as it is."""
        self.model = copy.deepcopy(model)
        self.matrices: dict[str, Matrix] = {}
        self.weights: list[Tensor] = []
        for name, weight in self.model.named_parameters():
            if name == "model.encoder.embed_positions.weight":
                continue
            weight.requires_grad_(True)
            if is_rounded(name, weight):
                self.matrices[name] = matrix = Matrix.of(weight)
                self.weights += [matrix.numbers, matrix.growth]
            else:
                self.weights.append(weight)
        self.prepare()

    def prepare(self) -> None:
        """Round all matrices."""
        for matrix in self.matrices.values():
            matrix.prepare()

    def collect(self) -> None:
        """Pass the gradients on to what is trained."""
        for matrix in self.matrices.values():
            matrix.collect()

    def states(self, features: Tensor, n_states: int) -> Tensor:
        """See `tutti_server.engine.adaptation.trainer.Student`."""
        return encode(self.model.model.encoder, features, n_states)

    def hidden(self, states: Tensor, tokens: Tensor) -> Tensor:
        """See `tutti_server.engine.adaptation.trainer.Student`."""
        output = self.model.model.decoder(input_ids=tokens, encoder_hidden_states=states, use_cache=False)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See `tutti_server.engine.adaptation.trainer.Student`."""
        logits: Tensor = self.model.proj_out(hidden)
        return logits


def is_rounded(name: str, weight: Tensor) -> bool:
    """Whether a weight is stored in 4 bits: the matrices of layers, and the token embedding."""
    return weight.ndim == 2 and "embed_positions" not in name and weight.shape[1] % (BLOCK * BLOCKS) == 0
