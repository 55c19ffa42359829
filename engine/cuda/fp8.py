"""The encoder's matrix products in 8 bits (float8_e4m3fn): every row of both sides has a scale of its own.

Norms, attention, sums and what is kept between layers stay in 16 bits. Half the time of the products on cards that have
them, from compute capability 8.9 on, at an error of some hundredths in what the encoder says: `check` measures it.
"""

import torch
from torch import Tensor, nn

from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from engine.cuda import kernels
from engine.cuda.kernels import Scaled
from engine.errors import CheckpointError
from engine.model.linear import Linear
from engine.model.whisper import Whisper

LEAST_CAPABILITY = (8, 9)
MOST_ERROR = 0.15
"""Of the encoder's states, against those in 16 bits: the length of their difference over theirs."""


class Fp8Products:
    """`Products` for the layers of an encoder, and of a decoder that its states are given to."""

    def __init__(self, model: Whisper) -> None:
        layers = [module for module in model.encoder.modules() if isinstance(module, Linear)]
        layers += [module for name, module in model.decoder.named_modules() if name.endswith("encoder_attn.kv_proj")]
        self._weights = {layer: kernels.scaled(layer.weight.detach()) for layer in layers}

    def take(self, x: Tensor) -> Scaled:
        return kernels.scaled(x)

    def product(self, layer: Linear, x: Scaled) -> Tensor:
        return multiply(x, self._weights[layer], layer.bias, layer.weight.dtype)

    def normed(self, norm: nn.LayerNorm, x: Tensor, y: Tensor | None) -> tuple[Tensor, Scaled]:
        return kernels.layer_norm_scaled(x, y, norm.weight, norm.bias, norm.eps)

    def activated(self, layer: Linear, x: Scaled) -> Scaled:
        return kernels.scaled(self.product(layer, x), with_gelu=True)


def multiply(x: Scaled, weight: Scaled, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """`x @ weight.T + bias`: `(rows, outputs)` of `dtype`, from `(rows, inputs)` and `(outputs, inputs)`."""
    return torch._scaled_mm(
        x.values, weight.values.T, x.scales, weight.scales.T, bias=bias, out_dtype=dtype, use_fast_accum=True
    )


def require_device(device: torch.device) -> None:
    """Raises:
    CheckpointError: this device has no products in 8 bits.
    """
    found = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if found is None or found < LEAST_CAPABILITY:
        what = "no CUDA device" if found is None else f"{found[0]}.{found[1]} ({torch.cuda.get_device_name(device)})"
        least = ".".join(map(str, LEAST_CAPABILITY))
        raise CheckpointError(f"encoder_dtype fp8: expected a GPU of compute capability {least} or newer, got {what}")


def sound() -> Tensor:
    """Thirty seconds of what is spectrally like a voice, `(1, samples)` float32: pulses in syllables, and breath."""
    at_s = torch.arange(WINDOW_SAMPLES) / SAMPLE_RATE
    phase = 2 * torch.pi * (120 * at_s + 4 * torch.sin(2 * torch.pi * 0.7 * at_s))
    voice = sum(torch.sin(harmonic * phase) / harmonic for harmonic in range(1, 25))
    breath = torch.randn(WINDOW_SAMPLES, generator=torch.Generator().manual_seed(0))
    return (0.2 * (voice + 0.1 * breath) * torch.sin(2 * torch.pi * 2 * at_s).clamp(min=0.0))[None]


def check(found: Tensor, expected: Tensor) -> float:
    """The error of the encoder's states in 8 bits, of `sound`.

    Raises:
        CheckpointError: it is too large: weights or activations of this checkpoint do not fit into 8 bits.
    """
    error = float((found.float() - expected.float()).norm() / expected.float().norm())
    if not error <= MOST_ERROR:
        raise CheckpointError(
            f"encoder_dtype fp8: expected encoder states within {MOST_ERROR:g} of those in 16 bits, got {error:.3f}; "
            "use auto with this checkpoint"
        )
    return error
