"""Linear layers. On a CPU they use oneDNN's kernels, with weights in the memory order that these kernels need.

The kernels compute the same bits for a row whatever other rows are in the batch. With more than a few rows they are
also faster than PyTorch's default (MKL): twice as fast on an AMD EPYC with AVX-512.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN has kernels for this weight. PyTorch must have been built with oneDNN."""
    has_kernels: bool = torch._C._has_mkldnn
    return has_kernels and weight.device.type == "cpu" and weight.dtype == torch.float32


class Product:
    """Multiplies by a weight, `(outputs, inputs)`. Call `pack` once the weight has its values."""

    def __init__(self) -> None:
        self._packed: Tensor | None = None

    @property
    def is_packed(self) -> bool:
        """Whether the product has a copy of its own and does not read the weight any more."""
        return self._packed is not None

    def pack(self, weight: Tensor) -> None:
        """Reorder a copy of the weight, and multiply by the copy from now on. Without oneDNN, drop any earlier copy."""
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None) if can_pack(weight) else None

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False) -> Tensor:
        """Compute `x @ weight.T + bias`, then the exact GELU if asked for."""
        if self._packed is None:
            y = F.linear(x, weight, bias)
            return F.gelu(y) if with_gelu else y
        activation, algorithm = ("gelu", "none") if with_gelu else ("none", "")
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, activation, [], algorithm)
        return product


class Linear(nn.Linear):
    """An `nn.Linear` for inference, whose weight can be packed."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self._product = Product()

    def pack(self) -> None:
        """Reorder the weight for the kernels of this machine; see `Product.pack`. It can be done once.

        The reordered copy takes the place of the weight, which would otherwise be in memory twice. `weight` keeps its
        shape, without values.
        """
        self._product.pack(self.weight)
        if self._product.is_packed:
            self.weight = nn.Parameter(torch.empty(self.weight.shape, device="meta"), requires_grad=False)

    def forward(self, x: Tensor, *, with_gelu: bool = False) -> Tensor:
        """Multiply, then compute the exact GELU if asked for."""
        return self._product(x, self.weight, self.bias, with_gelu=with_gelu)
