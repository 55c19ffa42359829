"""Matrix products of few rows, as in decode steps. Reading the weight takes the time, so each weight is read once.

A program computes one tile of the output: some rows times some outputs. With split-K, several programs share a tile:
each adds up a part of the inputs, and `layer_norm` adds the partial sums.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.cuda.kernels.launch import launch_options, wait_for_previous_kernel

N_SPLITS = 4
"""Parts into which split-K cuts the inputs, if each part is then a multiple of 64; else it cuts them into two."""


@triton.jit
def gelu(x):
    """Compute the exact GELU, with the error function to within 1e-7.

    1 minus the error function of `t` is nearly 2 to the power of this polynomial: fitted by least squares, with weights
    that even out the error, from 0 to 4. `kernels/row_step.cu` has the same one, so that both give the same bits; the
    error functions of Triton's and NVIDIA's compilers differ in the last bit.
    """
    t = tl.minimum(tl.abs(x) * 0.7071067811865476, 4.0)
    power = tl.fma(t, -4.5358371e-05, 4.4550523e-04)
    power = tl.fma(power, t, -1.4894322e-03)
    power = tl.fma(power, t, -7.7464717e-04)
    power = tl.fma(power, t, 2.8253699e-02)
    power = tl.fma(power, t, -1.4848162e-01)
    power = tl.fma(power, t, -9.1841638e-01)
    power = tl.fma(power, t, -1.6279086)
    erf = 1.0 - tl.exp2(power * t)
    return 0.5 * x * (1.0 + tl.where(x < 0.0, -erf, erf))


@triton.jit
def _linear(
    X,
    W,
    B,
    OUT,
    n_rows,
    n_outputs,
    HAS_BIAS: tl.constexpr,
    GELU: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    CHAINS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute one tile, `BLOCK_M` rows by `BLOCK_N` outputs, over `K / SPLITS` of the inputs.

    With two `CHAINS`, each half of these inputs has a sum of its own.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    inputs = split * (K // SPLITS) + tl.arange(0, BLOCK_K)
    x_pointers = X + rows.to(tl.int64)[:, None] * K + inputs[None, :]
    w_pointers = W + outputs.to(tl.int64)[None, :] * K + inputs[:, None]
    wait_for_previous_kernel(PDL)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    length: tl.constexpr = K // SPLITS // CHAINS
    if CHAINS == 1:
        for _ in range(0, length, BLOCK_K):
            x = tl.load(x_pointers, mask=rows[:, None] < n_rows, other=0.0)
            w = tl.load(w_pointers, mask=outputs[None, :] < n_outputs, other=0.0)
            acc = tl.dot(x, w, acc)
            x_pointers += BLOCK_K
            w_pointers += BLOCK_K
    else:
        second = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for _ in range(0, length, BLOCK_K):
            x = tl.load(x_pointers, mask=rows[:, None] < n_rows, other=0.0)
            w = tl.load(w_pointers, mask=outputs[None, :] < n_outputs, other=0.0)
            acc = tl.dot(x, w, acc)
            x = tl.load(x_pointers + length, mask=rows[:, None] < n_rows, other=0.0)
            w = tl.load(w_pointers + length, mask=outputs[None, :] < n_outputs, other=0.0)
            second = tl.dot(x, w, second)
            x_pointers += BLOCK_K
            w_pointers += BLOCK_K
        acc += second
    if HAS_BIAS:
        acc += tl.load(B + outputs, mask=outputs < n_outputs, other=0.0).to(tl.float32)[None, :]
    if GELU:
        # The reference stores the product in 16 bits before the GELU; so this rounds first.
        acc = gelu(acc.to(X.dtype.element_ty).to(tl.float32))
    offsets = (split * n_rows + rows).to(tl.int64)[:, None] * n_outputs + outputs[None, :]
    is_inside = (rows[:, None] < n_rows) & (outputs[None, :] < n_outputs)
    tl.store(OUT + offsets, acc.to(OUT.dtype.element_ty), mask=is_inside)


class Tile(NamedTuple):
    """The block of a product that one program computes, and how it is compiled."""

    rows: int
    outputs: int
    inputs: int
    """Inputs that are loaded at a time."""
    warps: int
    stages: int
    """Depth of the software pipeline: blocks of inputs whose loads are in flight at the same time."""


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """Compute `x @ weight.T + bias` for few rows, then the GELU if asked for.

    Args:
        x: `(rows, inputs)`, contiguous; `inputs` is a multiple of 64.
        weight: `(outputs, inputs)`.
        dtype: of the result; that of `x` by default.

    Returns:
        `(rows, outputs)`.
    """
    out = torch.empty((x.shape[0], weight.shape[0]), device=x.device, dtype=dtype or x.dtype)
    return _launch_linear(x, weight, bias, out, with_gelu, 1)


def linear_split_k(x: Tensor, weight: Tensor) -> Tensor:
    """Compute `x @ weight.T` as partial sums, which `layer_norm` adds up together with the bias.

    Each partial sum covers a part of the inputs, so that many programs read the weight even if it has few outputs.

    Returns:
        `(splits, rows, outputs)` float32.
    """
    n_splits = N_SPLITS if weight.shape[1] % (N_SPLITS * 64) == 0 else 2
    out = torch.empty((n_splits, x.shape[0], weight.shape[0]), device=x.device, dtype=torch.float32)
    return _launch_linear(x, weight, None, out, False, n_splits)


def _launch_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, with_gelu: bool, n_splits: int
) -> Tensor:
    n_rows, n_inputs = x.shape
    n_outputs = weight.shape[0]
    tile = choose_tile(n_rows, n_inputs // n_splits, n_outputs, n_splits)
    chains = n_chains(n_inputs // n_splits)
    _linear[(triton.cdiv(n_rows, tile.rows), triton.cdiv(n_outputs, tile.outputs), n_splits)](
        x,
        weight,
        bias if bias is not None else x,
        out,
        n_rows,
        n_outputs,
        HAS_BIAS=bias is not None,
        GELU=with_gelu,
        K=n_inputs,
        SPLITS=n_splits,
        CHAINS=chains,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.outputs,
        BLOCK_K=tile.inputs // 2 if chains == 2 and tile.inputs == 128 else tile.inputs,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **launch_options(),
    )
    return out


def n_chains(n_inputs: int) -> int:
    """Into how many sums a program divides the inputs of its split. It depends on nothing else."""
    return 2 if n_inputs >= 1024 and n_inputs % 256 == 0 else 1


_TILES = (
    Tile(64, 16, 128, 4, 5),
    Tile(64, 32, 128, 4, 5),
    Tile(64, 64, 128, 4, 5),
    Tile(64, 128, 128, 4, 4),
    Tile(128, 128, 128, 8, 3),
)
"""From small to large: the fastest way to compile each on an H200, for the products of large-v3 and 64 to 256 rows."""
_MOST_PROGRAMS = 132
"""The programs that an H100 or H200 runs at the same time: one on each multiprocessor."""


def choose_tile(n_rows: int, n_inputs: int, n_outputs: int, n_splits: int) -> Tile:
    """Return the smallest tile with which all programs of a product run at the same time.

    In steps of 192 rows of large-v3, products take 0.7 of the time that they take with the tiles for 64 rows. Of many
    outputs, those of the vocabulary, no tile is large enough; then weights are read best in large ones.

    Args:
        n_rows: of the product.
        n_inputs: of one split.
        n_outputs: of the product.
        n_splits: the parts of the inputs that have a program each.
    """
    is_few = n_rows <= 16
    if n_outputs > 16_384:
        return Tile(16, 32, 64, 4, 3) if is_few else Tile(64, 128, 128, 4, 4)
    for tile in _TILES[2 if n_splits > 1 else int(is_few) :]:
        n_programs = math.ceil(n_rows / tile.rows) * math.ceil(n_outputs / tile.outputs) * n_splits
        if n_programs <= _MOST_PROGRAMS:
            break
    return tile if n_inputs % 128 == 0 and n_inputs >= 640 else tile._replace(inputs=64)
