"""Row-wise kernels: layer norm of a sum, and rows scaled to 8 bits. One program handles one row."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.cuda.kernels.launch import launch_options, wait_for_previous_kernel


class Scaled(NamedTuple):
    """A matrix in 8 bits. Each row has its own scale."""

    values: Tensor
    """`(rows, columns)` float8_e4m3fn."""
    scales: Tensor
    """`(rows, 1)` float32. A row's numbers are its values times its scale."""


@triton.jit
def _inverse_scale(largest, SCALE):
    """Store the scale of a row whose largest number is `largest`, and return what brings its numbers into 8 bits."""
    # float8_e4m3fn ends at 448. One multiplication for each number takes less time than one division.
    largest = tl.maximum(largest, 1e-12)
    tl.store(SCALE, largest / 448.0)
    return 448.0 / largest


@triton.jit
def _layer_norm(
    X,
    Y,
    Y_BIAS,
    SUM,
    OUT,
    SCALES,
    WEIGHT,
    BIAS,
    n_rows,
    n_columns,
    eps,
    Y_SPLITS: tl.constexpr,
    SHIFTS: tl.constexpr,
    QUANTIZES: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add `X` and `Y`, store the sum, and store its layer norm.

    `Y_SPLITS` is 0 without a `Y`, 1 for a plain `Y`, and more for the partial sums of `linear_split_k`. With `SHIFTS`,
    there is no `Y`, and the norm is that of `X` and a bias.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < n_columns
    # Weights never change, so they are loaded before the previous kernel has ended.
    weight = tl.load(WEIGHT + columns, mask=is_inside, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + columns, mask=is_inside, other=0.0).to(tl.float32)
    wait_for_previous_kernel(PDL)
    offsets = row * n_columns + columns
    x = tl.load(X + offsets, mask=is_inside, other=0.0).to(tl.float32)
    if Y_SPLITS > 0:
        y = tl.load(Y + offsets, mask=is_inside, other=0.0).to(tl.float32)
        if Y_SPLITS > 1:
            for split in tl.static_range(1, Y_SPLITS):
                y += tl.load(Y + split * n_rows * n_columns + offsets, mask=is_inside, other=0.0)
            y += tl.load(Y_BIAS + columns, mask=is_inside, other=0.0).to(tl.float32)
        # The reference normalises the sum as it is kept, in 16 bits; so this rounds before it normalises.
        x = (x + y).to(X.dtype.element_ty)
        tl.store(SUM + offsets, x, mask=is_inside)
        x = x.to(tl.float32)
    elif SHIFTS:
        x += tl.load(Y_BIAS + columns, mask=is_inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / n_columns
    centred = tl.where(is_inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n_columns + eps)
    normed = centred * scale * weight + bias
    if QUANTIZES:
        largest = tl.max(tl.where(is_inside, tl.abs(normed), 0.0), 0)
        normed *= _inverse_scale(largest, SCALES + row)
    tl.store(OUT + offsets, normed.to(OUT.dtype.element_ty), mask=is_inside)


def layer_norm(
    x: Tensor, y: Tensor | None, y_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Add a layer's output to its input, and normalise the sum for the next layer.

    Args:
        x: `(rows, columns)`, contiguous.
        y: as `x`; or `(splits, rows, columns)` float32, which are added up together with `y_bias`; or nothing.
        y_bias: `(columns,)`. Without a `y`, it is added before the norm alone, and not to the sum.

    Returns:
        `x + y` (`x` itself without a `y`) and its layer norm, `(rows, columns)` each.
    """
    out = torch.empty_like(x)
    return _launch_layer_norm(x, y, y_bias, weight, bias, eps, out, None), out


def layer_norm_scaled(x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Scaled]:
    """Do the same as `layer_norm`, and return the sum in 16 bits and the layer norm in 8 bits."""
    out = _empty_scaled(x)
    return _launch_layer_norm(x, y, None, weight, bias, eps, out.values, out.scales), out


def _launch_layer_norm(
    x: Tensor,
    y: Tensor | None,
    y_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    out: Tensor,
    scales: Tensor | None,
) -> Tensor:
    """Write to `out`, and to `scales` if they are given; return the sum."""
    n_rows, n_columns = x.shape
    total = x if y is None else torch.empty_like(x)
    # A pointer that the kernel does not use still needs a tensor: `x` stands in for it.
    _layer_norm[(n_rows,)](
        x,
        x if y is None else y,
        x if y_bias is None else y_bias,
        total,
        out,
        x if scales is None else scales,
        weight,
        bias,
        n_rows,
        n_columns,
        eps,
        Y_SPLITS=0 if y is None else 1 if y.dim() == 2 else y.shape[0],
        SHIFTS=y is None and y_bias is not None,
        QUANTIZES=scales is not None,
        BLOCK=triton.next_power_of_2(n_columns),
        num_warps=4,
        **launch_options(),
    )
    return total


@triton.jit
def _fast_gelu(x):
    """Compute the approximation of GELU with tanh, as cuBLASLt does in 16 bits."""
    # 1 + tanh(u) is 2 / (1 + exp(-2 u)), and u is sqrt(2 / pi) * (x + 0.044715 x^3). The limit keeps 2^126 finite.
    return x / (1.0 + tl.exp2(tl.minimum(-2.302208198 * (x + 0.044715 * x * x * x), 126.0)))


@triton.jit
def _load_part(X, columns, n_columns, GELU: tl.constexpr):
    x = tl.load(X + columns, mask=columns < n_columns, other=0.0).to(tl.float32)
    return _fast_gelu(x) if GELU else x


@triton.jit
def _scale_rows(
    X, OUT, SCALES, n_columns, GELU: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, PDL: tl.constexpr
):
    """Bring one row into 8 bits. Its first `HEAD` columns are one block, and the `TAIL` columns after them another.

    The sizes of blocks are powers of two. One block would have up to twice the columns of a row.
    """
    wait_for_previous_kernel(PDL)
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = X + row * n_columns, OUT + row * n_columns
    head_columns, tail_columns = tl.arange(0, HEAD), HEAD + tl.arange(0, TAIL)
    head = _load_part(x_row, head_columns, n_columns, GELU)
    tail = _load_part(x_row, tail_columns, n_columns, GELU)
    largest = tl.maximum(tl.max(tl.abs(head), 0), tl.max(tl.abs(tail), 0))
    inverse = _inverse_scale(largest, SCALES + row)
    tl.store(out_row + head_columns, (head * inverse).to(OUT.dtype.element_ty), mask=head_columns < n_columns)
    tl.store(out_row + tail_columns, (tail * inverse).to(OUT.dtype.element_ty), mask=tail_columns < n_columns)


def scale_rows(x: Tensor, *, with_gelu: bool = False) -> Scaled:
    """Bring a contiguous matrix, `(rows, columns)`, or its GELU, into 8 bits."""
    out = _empty_scaled(x)
    n_rows, n_columns = x.shape
    head = triton.next_power_of_2(n_columns) // 2
    _scale_rows[(n_rows,)](
        x,
        out.values,
        out.scales,
        n_columns,
        GELU=with_gelu,
        HEAD=head,
        TAIL=triton.next_power_of_2(n_columns - head),
        num_warps=8 if head > 1_024 else 4,
        **launch_options(),
    )
    return out


def _empty_scaled(x: Tensor) -> Scaled:
    values = torch.empty(x.shape, device=x.device, dtype=torch.float8_e4m3fn)
    return Scaled(values, torch.empty((len(x), 1), device=x.device, dtype=torch.float32))
