"""Linear layers. On a CPU they use oneDNN's kernels, with weights in the memory order that these kernels need.

The kernels compute the same bits for a row whatever other rows are in the batch. With more than a few rows they are
also faster than PyTorch's default (MKL): twice as fast on an AMD EPYC with AVX-512. Weights in 8 bits have other
kernels, of which the same is true: see `tutti_server.engine.model.int8`.
"""

from enum import Enum

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutti_server.engine.model.int8 import Int8Weight, ManyRowsInt8Weight
from tutti_server.engine.model.processor import has_int8


class Form(Enum):
    """How a weight is stored in the layout that its product's kernel reads."""

    SAME_BITS = "same bits"
    """oneDNN's order where its kernels give a row the same bits in any batch: for float32."""
    FASTEST = "fastest"
    """oneDNN's order for bfloat16 too. These kernels may round a row in another way among more rows."""
    INT8 = "int8"
    """8 bits. This needs `tutti_server.engine.model.int8.is_available`."""
    INT8_MANY_ROWS = "int8 for many rows"
    """8 bits, with the kernels that are faster for many rows where the processor has products of 8 bits."""


INT8_FORMS = (Form.INT8, Form.INT8_MANY_ROWS)


def can_pack(weight: Tensor, form: Form = Form.SAME_BITS) -> bool:
    """Whether oneDNN has kernels for this weight. PyTorch must have been built with oneDNN.

    Those for bfloat16 need a processor with AVX-512.
    """
    if not torch._C._has_mkldnn or weight.device.type != "cpu" or form in INT8_FORMS:
        return False
    if weight.dtype == torch.bfloat16 and form is Form.FASTEST:
        has_bfloat16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return has_bfloat16
    return weight.dtype == torch.float32


class Product:
    """Multiplies by a weight, `(outputs, inputs)`. Call `pack` once the weight has its values."""

    def __init__(self) -> None:
        self._packed: Tensor | None = None
        self._in_8_bits: Int8Weight | ManyRowsInt8Weight | None = None

    @property
    def is_packed(self) -> bool:
        """Whether the product has a copy of its own and does not read the weight any more."""
        return self._packed is not None or self._in_8_bits is not None

    def pack(self, weight: Tensor, form: Form = Form.SAME_BITS) -> None:
        """Make a copy of the weight in this form, and multiply by the copy from now on.

        Where oneDNN has no kernels for it, the product reads the weight, and any earlier copy is dropped.
        """
        self._in_8_bits = None
        if form in INT8_FORMS:
            is_for_many = form is Form.INT8_MANY_ROWS and has_int8() and torch._C._has_mkldnn
            self._in_8_bits = ManyRowsInt8Weight(weight) if is_for_many else Int8Weight(weight)
        is_reordered = can_pack(weight, form)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None) if is_reordered else None

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False) -> Tensor:
        """Compute `x @ weight.T + bias`, then the exact GELU if asked for."""
        if self._in_8_bits is not None:
            y = self._in_8_bits.multiply(x)
            y = y if bias is None else y.add_(bias)
            return F.gelu(y) if with_gelu else y
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

    def pack(self, form: Form = Form.SAME_BITS) -> None:
        """Bring the weight into the form for the kernels of this machine; see `Product.pack`. It can be done once.

        The copy takes the place of the weight, which would otherwise be in memory twice. `weight` keeps its
        shape, without values.
        """
        self._product.pack(self.weight, form)
        if self._product.is_packed:
            self.weight = nn.Parameter(torch.empty(self.weight.shape, device="meta"), requires_grad=False)

    def forward(self, x: Tensor, *, with_gelu: bool = False) -> Tensor:
        """Multiply, then compute the exact GELU if asked for."""
        return self._product(x, self.weight, self.bias, with_gelu=with_gelu)
