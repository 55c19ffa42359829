"""The products before and after attention to encoder states themselves: `states_attention.cu` beside this is between.

Queries are multiplied by the weights that would make keys of encoder states, and weighted states by those that would
make values. A bias of keys would change all scores of a query alike, so that it has no effect.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.cuda.kernels.launch import launch_options, wait_for_previous_kernel

_QUERY_TILE = (64, 128)
"""Tokens and numbers of a state that one program of `queries_of_states` computes."""
_VALUE_TOKENS = 16
"""Tokens of one program of `values_of_states`."""
_BLOCK_NUMBERS = 128
"""Numbers of a state that are loaded at a time. All widths are multiples of it."""


@triton.jit
def _queries_of_states(
    Q,
    W,
    OUT,
    n_entries,
    width,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply one head's part of some queries by some columns of the weights of the head's keys."""
    entries = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    columns = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    # Weights never change, so they are loaded before the previous kernel has ended.
    is_column = columns[None, :] < width
    weights = tl.load(W + (head * D + dims)[:, None] * width + columns[None, :], mask=is_column, other=0.0)
    wait_for_previous_kernel(PDL)
    is_entry = (entries < n_entries)[:, None]
    queries = tl.load(Q + entries.to(tl.int64)[:, None] * width + (head * D + dims)[None, :], mask=is_entry, other=0.0)
    out = tl.dot(queries, weights).to(OUT.dtype.element_ty)
    offsets = (entries.to(tl.int64)[:, None] * (width // D) + head) * width + columns[None, :]
    tl.store(OUT + offsets, out, mask=is_entry & is_column)


def queries_of_states(query: Tensor, weight: Tensor, n_heads: int) -> Tensor:
    """Multiply queries by the weights of keys, so that they can be compared with encoder states.

    Args:
        query: `(tokens, width)`, contiguous.
        weight: `(2 * width, width)`: the weights of keys, then those of values.

    Returns:
        `(tokens, heads, width)`.
    """
    n_entries, width = query.shape
    out = torch.empty((n_entries, n_heads, width), device=query.device, dtype=query.dtype)
    rows, columns = _QUERY_TILE
    _queries_of_states[(triton.cdiv(n_entries, rows), n_heads, triton.cdiv(width, columns))](
        query,
        weight,
        out,
        n_entries,
        width,
        D=width // n_heads,
        BLOCK_M=rows,
        BLOCK_N=columns,
        **launch_options(),
        num_warps=4,
    )
    return out


@triton.jit
def _values_of_states(
    PARTIALS,
    STATS,
    W,
    B,
    OUT,
    SLOTS,
    LENGTHS,
    n_entries,
    n_tokens,
    n_heads,
    width,
    SPLITS: tl.constexpr,
    SPLIT_STATES: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):
    """Combine the splits of one head of some tokens, and multiply the weighted states by the weights of its values."""
    wait_for_previous_kernel(PDL)
    entries = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    is_entry = entries < n_entries
    slots = tl.load(SLOTS + entries // n_tokens, mask=is_entry, other=0)
    lengths = tl.where(is_entry, tl.load(LENGTHS + slots), 0)
    splits, dims, numbers = tl.arange(0, SPLITS), tl.arange(0, D), tl.arange(0, BLOCK_K)
    places = (entries.to(tl.int64)[:, None] * SPLITS + splits[None, :]) * n_heads + head
    is_used = splits[None, :] * SPLIT_STATES < lengths[:, None]
    peaks = tl.load(STATS + 2 * places, mask=is_used, other=-1e30)
    totals = tl.load(STATS + 2 * places + 1, mask=is_used, other=0.0)
    shares = totals * tl.exp2(peaks - tl.max(peaks, 1)[:, None])
    shares = shares / tl.maximum(tl.sum(shares, 1), 1e-30)[:, None]
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for first in range(0, width, BLOCK_K):
        sources = PARTIALS + places[:, :, None] * width + (first + numbers)[None, None, :]
        means = tl.load(sources, mask=is_used[:, :, None], other=0.0)
        states = tl.sum(means.to(tl.float32) * shares[:, :, None], 1)
        weights = tl.load(W + (width + head * D + dims)[None, :] * width + (first + numbers)[:, None])
        acc = tl.dot(states.to(OUT.dtype.element_ty), weights, acc)
    acc += tl.load(B + width + head * D + dims).to(tl.float32)[None, :]
    offsets = entries.to(tl.int64)[:, None] * width + (head * D + dims)[None, :]
    tl.store(OUT + offsets, acc.to(OUT.dtype.element_ty), mask=is_entry[:, None])


def values_of_states(
    partials: Tensor,
    stats: Tensor,
    weight: Tensor,
    bias: Tensor,
    slots: Tensor,
    lengths: Tensor,
    n_tokens: int,
    split_states: int,
) -> Tensor:
    """Combine the weighted states of all splits, and multiply them by the weights of values.

    Args:
        partials: `(rows * n_tokens, splits, heads, width)`: the weighted mean of the states of each split.
        stats: `(rows * n_tokens, splits, heads, 2)` float32: the score whose weight is 1 in a split, and the sum of its
            weights.
        weight: `(2 * width, width)`: the weights of keys, then those of values.
        bias: `(2 * width,)`, in the same order.
        slots: `(rows,)`: the slot of each row.
        lengths: `(slots,)`: how many encoder states each slot holds.

    Returns:
        `(rows * n_tokens, width)`.
    """
    n_entries, n_splits, n_heads, width = partials.shape
    out = torch.empty((n_entries, width), device=partials.device, dtype=partials.dtype)
    _values_of_states[(triton.cdiv(n_entries, _VALUE_TOKENS), n_heads)](
        partials,
        stats,
        weight,
        bias,
        out,
        slots,
        lengths,
        n_entries,
        n_tokens,
        n_heads,
        width,
        SPLITS=n_splits,
        SPLIT_STATES=split_states,
        D=width // n_heads,
        BLOCK_M=_VALUE_TOKENS,
        BLOCK_K=_BLOCK_NUMBERS,
        **launch_options(),
        num_warps=8,
        num_stages=3,
    )
    return out
