"""Linear layers, on a CPU with oneDNN's kernels on weights that lie in the order these want.

They give a row the same bits whatever its neighbours, and are faster than PyTorch's default (MKL) where there are
more than a few rows: twice as fast on an AMD EPYC, with AVX-512.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def can_pack(weight: Tensor) -> bool:
    """Whether there are such kernels for it: PyTorch must have been built with oneDNN."""
    has_kernels: bool = torch._C._has_mkldnn
    return has_kernels and weight.device.type == "cpu" and weight.dtype == torch.float32


class Product:
    """Multiplies with a weight, `(outputs, inputs)`; `pack` when its values have been read."""

    def __init__(self) -> None:
        self._packed: Tensor | None = None

    def pack(self, weight: Tensor) -> None:
        """Reorder a copy of the weight, which is used from now on in its place."""
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None) if can_pack(weight) else None

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False) -> Tensor:
        if self._packed is None:
            y = F.linear(x, weight, bias)
            return F.gelu(y) if with_gelu else y
        activation, algorithm = ("gelu", "none") if with_gelu else ("none", "")
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, activation, [], algorithm)
        return product


class Linear(nn.Linear):
    """`nn.Linear` whose weight can be packed, for inference."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self._product = Product()

    def pack(self) -> None:
        self._product.pack(self.weight)

    def forward(self, x: Tensor, *, with_gelu: bool = False) -> Tensor:
        """With an exact GELU behind it, if asked for."""
        return self._product(x, self.weight, self.bias, with_gelu=with_gelu)
