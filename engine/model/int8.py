"""Matrix products with weights of 8 bits, on a CPU. Every output and every row of the other matrix has its own scale.

A product is a sum of integers, which is exact in any order: a row gives the same bits whatever other rows are in the
batch, and with any number of threads. The kernels are those of FBGEMM, which comes with PyTorch on x86 processors with
AVX2 or newer, and for many rows those of oneDNN.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor

from tutti_server.engine.model.processor import has_tiles

INPUT_MAX = 127
"""The largest integer of a matrix, and with a minus the smallest."""
ZERO_POINT = 128
"""What the kernels add to the integers of a matrix, which they keep unsigned."""
WEIGHT_MAX = 64
"""The largest integer of a weight, and with a minus the smallest.

It is not 127, because processors without VNNI add two products in 16 bits: 2 x 255 x 64 is the most that fits. Where
there is VNNI, it would not matter; but then a model would give other words on other processors.
"""
FEW_ROWS = 64
"""Up to this many rows, their magnitudes stay in the cache: to store them is faster than to read the rows twice."""


class Int8Part(Enum):
    """The part of a model whose weights have 8 bits."""

    NOTHING = "nothing"
    DECODER = "decoder"
    """The decoder. The encoder, and the keys and values that the decoder makes of its states, are in bfloat16.

    The processor must have products in it of its own (AVX-512 BF16 or AMX).
    """
    ALL = "all"
    """The decoder and the layers of the encoder.

    The encoder's convolutions and attention are in bfloat16 where the processor has products in it of its own, else
    in float32. All between the products, and the decoder's attention, is in float32.
    """


def is_available() -> bool:
    """Return whether this machine has the kernels."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def best_part() -> Int8Part:
    """Return the part for which 8 bits are the fastest on this processor.

    Where it multiplies tiles (AMX), bfloat16 is faster for the encoder. In a trial before this module was written, on
    two cores of an Intel Xeon with AMX and with torch 2.11, base (random weights) encoded a full window in 279 ms with
    the encoder in bfloat16, in 509 ms with all in 8 bits, and in 660 ms in float32; a step took 13 ms in 8 bits, 19 ms
    in float32.
    """
    return Int8Part.DECODER if has_tiles() else Int8Part.ALL


class Int8Weight:
    """A weight in 8 bits, in the memory order of the kernels."""

    def __init__(self, weight: Tensor) -> None:
        """Quantise a weight, `(outputs, inputs)` float32. It is not kept."""
        self._packed = _packed(*quantise(weight))

    def multiply(self, x: Tensor) -> Tensor:
        """Compute `x @ weight.T` of a float32 matrix, `(..., inputs)`."""
        largest = _largest(x)
        # A row of zeros is divided by zero here. Its integers have no meaning, and are multiplied by zero below.
        product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / largest, 1.0 / INPUT_MAX, ZERO_POINT, self._packed
        )
        return product.mul_(largest)


class ManyRowsInt8Weight:
    """A weight in 8 bits for matrices of many rows, such as encoder states. It computes what `Int8Weight` does.

    oneDNN's kernels take 1.0 ms for 1,500 rows, 512 inputs and 512 outputs on two cores of an AMD EPYC with AVX-512
    and VNNI; its kernels for bfloat16 1.9 ms, and FBGEMM's for 8 bits 1.7 ms, which are the faster ones for few rows.
    """

    def __init__(self, weight: Tensor) -> None:
        """Quantise a weight, `(outputs, inputs)` float32. It is not kept."""
        integers, self._scales = quantise(weight)
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        self._packed = torch.ops.onednn.qlinear_prepack(integers, None)
        with _no_warning():
            _rounded(torch.zeros(1))  # the warning comes here then, and not in the first product

    def multiply(self, x: Tensor) -> Tensor:
        """Compute `x @ weight.T` of a float32 matrix, `(..., inputs)`."""
        largest = _largest(x)
        # What a row of zeros, divided by zero, becomes has no meaning; it is multiplied by zero below.
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            _rounded(x / largest),
            1.0 / INPUT_MAX,
            ZERO_POINT,
            self._packed,
            self._scales,
            self._zeros,
            None,  # bias
            1.0,  # scale and zero point of the output: it is not quantised
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return product.mul_(largest)


def _rounded(x: Tensor) -> Tensor:
    """Numbers from -1 to 1 in 8 bits with `ZERO_POINT`, as uint8."""
    # This is five times as fast as a conversion from float32 to uint8.
    rounded = torch.quantize_per_tensor(x, 1.0 / INPUT_MAX, ZERO_POINT, torch.quint8)
    # The same memory without the scale; `int_repr` would copy it.
    return torch.empty(0, dtype=torch.uint8).set_(rounded.untyped_storage(), 0, rounded.shape, rounded.stride())


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Bring a weight into 8 bits.

    Args:
        weight: `(outputs, inputs)` float32.

    Returns:
        Integers from -64 to 64, int8 of the same shape; and the scales to multiply them by, `(outputs,)`.
    """
    scales = (weight.abs().amax(-1) / WEIGHT_MAX).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales[:, None]).round().to(torch.int8), scales


def _packed(integers: Tensor, scales: Tensor) -> torch.ScriptObject:
    zeros = torch.zeros(len(scales), dtype=torch.long)
    with _no_warning():
        quantised = torch._make_per_channel_quantized_tensor(integers, scales.double(), zeros, 0)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"  # the kernels for which the weight is packed, and which then read it
    try:
        packed: torch.ScriptObject = torch.ops.quantized.linear_prepack(quantised, None)
    finally:
        torch.backends.quantized.engine = before
    return packed


@contextmanager
def _no_warning() -> Iterator[None]:
    """Hide that PyTorch is to remove tensors of this kind. It warns once; the kernels take no other form yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message=".*quantized tensor creation")
        yield


def _largest(x: Tensor) -> Tensor:
    if x.shape[:-1].numel() <= FEW_ROWS:
        return x.abs().amax(-1, keepdim=True)
    return torch.maximum(x.amax(-1, keepdim=True), x.amin(-1, keepdim=True).neg_())
