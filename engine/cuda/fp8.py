"""The encoder's matrix products in 8 bits (float8_e4m3fn). Every row of both operands has its own scale.

Layer norms, attention, sums, and the tensors between layers stay in 16 bits. On GPUs that support it (compute
capability 8.9 and later) the products take half the time. The encoder states then differ by a few hundredths:
`check` measures by how much.
"""

import torch
from torch import Tensor, nn

from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from tutti_server.engine.cuda.kernels.norm import Scaled, layer_norm, layer_norm_scaled, scale_rows
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.linear import Linear
from tutti_server.engine.model.whisper import Whisper

MIN_CAPABILITY = (8, 9)
"""The lowest compute capability that has products in 8 bits."""
MAX_ERROR = 0.15
"""The largest error that is accepted of encoder states, relative to those in 16 bits: the norm of the difference,
divided by the norm of the states."""


class Fp8Products:
    """`Products` in 8 bits, for the encoder and for the decoder's projections of encoder states."""

    def __init__(self, model: Whisper) -> None:
        layers = [module for module in model.encoder.modules() if isinstance(module, Linear)]
        layers += [module for name, module in model.decoder.named_modules() if name.endswith("encoder_attn.kv_proj")]
        self._weights = {layer: scale_rows(layer.weight.detach()) for layer in layers}

    def to_operand(self, x: Tensor) -> Scaled:
        """Bring a matrix into 8 bits."""
        return scale_rows(x)

    def product(self, layer: Linear, x: Scaled) -> Tensor:
        """Multiply, and return the product in the model's dtype."""
        return multiply(x, self._weights[layer], layer.bias, layer.weight.dtype)

    def activated(self, layer: Linear, x: Scaled) -> Scaled:
        """Return the GELU of a product in 8 bits."""
        return scale_rows(self.product(layer, x), with_gelu=True)

    def begin(self, x: Tensor) -> "Fp8Sum":
        """Begin a sum."""
        return Fp8Sum(x, self)


class Fp8Sum:
    """`ResidualSum` in 16 bits, with layer norms in 8 bits. Each norm adds the product before it."""

    def __init__(self, x: Tensor, products: Fp8Products) -> None:
        self._x = x
        self._products = products
        self._product: Tensor | None = None

    def normed(self, norm: nn.LayerNorm) -> Scaled:
        """Return the layer norm of the sum in 8 bits."""
        self._x, out = layer_norm_scaled(self._x, self._product, norm.weight, norm.bias, norm.eps)
        self._product = None
        return out

    def add(self, layer: Linear, x: Scaled) -> None:
        """Add a product."""
        self._product = self._products.product(layer, x)

    def states(self, norm: nn.LayerNorm) -> Tensor:
        """Return the layer norm of the sum in 16 bits."""
        return layer_norm(self._x, self._product, None, norm.weight, norm.bias, norm.eps)[1]


def multiply(x: Scaled, weight: Scaled, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Compute `x @ weight.T + bias`: `(rows, outputs)` of `dtype`, from `(rows, inputs)` and `(outputs, inputs)`."""
    return torch._scaled_mm(
        x.values, weight.values.T, x.scales, weight.scales.T, bias=bias, out_dtype=dtype, use_fast_accum=True
    )


def require_device(device: torch.device) -> None:
    """Check that a device has products in 8 bits.

    Raises:
        CheckpointError: it has none.
    """
    found = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if found is None or found < MIN_CAPABILITY:
        what = "no CUDA device" if found is None else f"{found[0]}.{found[1]} ({torch.cuda.get_device_name(device)})"
        least = ".".join(map(str, MIN_CAPABILITY))
        raise CheckpointError(f"encoder_dtype fp8: expected a GPU of compute capability {least} or newer, got {what}")


def sound() -> Tensor:
    """Thirty seconds with the spectrum of a voice, `(1, samples)` float32: syllables of voiced sound and breath."""
    at_s = torch.arange(WINDOW_SAMPLES) / SAMPLE_RATE
    phase = 2 * torch.pi * (120 * at_s + 4 * torch.sin(2 * torch.pi * 0.7 * at_s))
    voice = sum(torch.sin(harmonic * phase) / harmonic for harmonic in range(1, 25))
    breath = torch.randn(WINDOW_SAMPLES, generator=torch.Generator().manual_seed(0))
    return (0.2 * (voice + 0.1 * breath) * torch.sin(2 * torch.pi * 2 * at_s).clamp(min=0.0))[None]


def check(found: Tensor, expected: Tensor) -> float:
    """Compare the encoder states of `sound` in 8 bits with those in 16 bits, and return the relative error.

    Raises:
        CheckpointError: the error is too large, because weights or activations of this checkpoint do not fit 8 bits.
    """
    error = float((found.float() - expected.float()).norm() / expected.float().norm())
    # Written this way so that an error of NaN is too large.
    if not error <= MAX_ERROR:
        raise CheckpointError(
            f"encoder_dtype fp8: expected encoder states within {MAX_ERROR:g} of those in 16 bits, got {error:.3f}; "
            "use auto with this checkpoint"
        )
    return error
