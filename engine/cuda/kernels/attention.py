"""Triton kernels of the path on NVIDIA GPUs, each with its twin in plain PyTorch: the layers of `whisper.py`.

What a row comes out as never depends on its neighbours: no kernel divides a sum by how many rows there are, and sums
over weights and keys always run in the same order. So a sequence decodes to the same tokens alone and among many.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2_E = 1.4426950408889634
SPLIT = 192
"""Keys of cross-attention that one program reads; a full window has eight such parts, whatever the batch."""
_KEYS = 64
"""Keys at a time."""


@triton.jit
def _begin(PDL: tl.constexpr):
    """Wait for what the kernel before has written, and let the next one be set up already."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@cache
def _overlaps() -> bool:
    """Whether a kernel may be set up while the one before it still runs: from compute capability 9.0 on.

    Source: NVIDIA, CUDA programming guide, programmatic dependent launch.
    """
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


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
    PARTS: tl.constexpr,
    QUANTIZES: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_columns
    weight = tl.load(WEIGHT + columns, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + columns, mask=inside, other=0.0).to(tl.float32)
    _begin(PDL)
    at = row * n_columns + columns
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        y = tl.load(Y + at, mask=inside, other=0.0).to(tl.float32)
        if PARTS > 1:
            for part in tl.static_range(1, PARTS):
                y += tl.load(Y + part * n_rows * n_columns + at, mask=inside, other=0.0)
            y += tl.load(Y_BIAS + columns, mask=inside, other=0.0).to(tl.float32)
        # Rounded as the sum that is kept, which is what the reference normalises.
        x = (x + y).to(X.dtype.element_ty)
        tl.store(SUM + at, x, mask=inside)
        x = x.to(tl.float32)
    mean = tl.sum(x, 0) / n_columns
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n_columns + eps)
    normed = centred * scale * weight + bias
    if QUANTIZES:
        _store_scaled(normed, OUT + at, SCALES + row, inside)
    else:
        tl.store(OUT + at, normed.to(OUT.dtype.element_ty), mask=inside)


@triton.jit
def _store_scaled(x, OUT, SCALE, inside):
    """A row in 8 bits, of which 448 is the largest number, and what to multiply it with."""
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-12) / 448.0
    tl.store(SCALE, scale)
    tl.store(OUT, (x / scale).to(OUT.dtype.element_ty), mask=inside)


class Scaled(NamedTuple):
    """A matrix in 8 bits, each row with a scale of its own."""

    values: Tensor
    """`(rows, columns)` float8_e4m3fn."""
    scales: Tensor
    """`(rows, 1)` float32."""


def layer_norm(
    x: Tensor, y: Tensor | None, y_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """`x + y`, or `x` itself without a `y`, and its layer norm: `(rows, columns)` each, contiguous.

    Args:
        y: as `x`; or `(parts, rows, columns)` float32, which are added up, and `y_bias` with them.
    """
    out = torch.empty_like(x)
    return _norm(x, y, y_bias, weight, bias, eps, out, None), out


def layer_norm_scaled(x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Scaled]:
    """`x + y`, or `x` itself without a `y`, in 16 bits, and its layer norm in 8."""
    out = _empty_scaled(x)
    return _norm(x, y, None, weight, bias, eps, out.values, out.scales), out


def _norm(
    x: Tensor,
    y: Tensor | None,
    y_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    out: Tensor,
    scales: Tensor | None,
) -> Tensor:
    """Writes to `out` and `scales`; returns the sum."""
    rows, columns = x.shape
    total = x if y is None else torch.empty_like(x)
    _layer_norm[(rows,)](
        x,
        x if y is None else y,
        x if y_bias is None else y_bias,
        total,
        out,
        x if scales is None else scales,
        weight,
        bias,
        rows,
        columns,
        eps,
        PARTS=0 if y is None else 1 if y.dim() == 2 else y.shape[0],
        QUANTIZES=scales is not None,
        BLOCK=triton.next_power_of_2(columns),
        PDL=_overlaps(),
        num_warps=4,
        **_launch(),
    )
    return total


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def _scale_rows(X, OUT, SCALES, n_columns, GELU: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    _begin(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_columns
    at = row * n_columns + columns
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        x = _gelu(x)
    _store_scaled(x, OUT + at, SCALES + row, inside)


def scaled(x: Tensor, *, with_gelu: bool = False) -> Scaled:
    """`x`, or its GELU, in 8 bits. Args: x: `(rows, columns)`, contiguous."""
    out = _empty_scaled(x)
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    _scale_rows[(rows,)](
        x,
        out.values,
        out.scales,
        columns,
        GELU=with_gelu,
        BLOCK=block,
        PDL=_overlaps(),
        num_warps=8 if block > 2_048 else 4,
        **_launch(),
    )
    return out


def _empty_scaled(x: Tensor) -> Scaled:
    values = torch.empty(x.shape, device=x.device, dtype=torch.float8_e4m3fn)
    return Scaled(values, torch.empty((len(x), 1), device=x.device, dtype=torch.float32))


def _launch() -> dict[str, bool]:
    return {"launch_pdl": True} if _overlaps() else {}


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
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    inputs = part * (K // PARTS) + tl.arange(0, BLOCK_K)
    x_at = X + rows.to(tl.int64)[:, None] * K + inputs[None, :]
    w_at = W + outputs.to(tl.int64)[None, :] * K + inputs[:, None]
    _begin(PDL)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, K // PARTS, BLOCK_K):
        x = tl.load(x_at, mask=rows[:, None] < n_rows, other=0.0)
        w = tl.load(w_at, mask=outputs[None, :] < n_outputs, other=0.0)
        acc = tl.dot(x, w, acc)
        x_at += BLOCK_K
        w_at += BLOCK_K
    if HAS_BIAS:
        acc += tl.load(B + outputs, mask=outputs < n_outputs, other=0.0).to(tl.float32)[None, :]
    if GELU:
        acc = _gelu(acc.to(X.dtype.element_ty).to(tl.float32))
    at = (part * n_rows + rows).to(tl.int64)[:, None] * n_outputs + outputs[None, :]
    tl.store(OUT + at, acc.to(OUT.dtype.element_ty), mask=(rows[:, None] < n_rows) & (outputs[None, :] < n_outputs))


class Tile(NamedTuple):
    """How a product is cut."""

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    """`x @ weight.T + bias` for few rows, where reading the weight is what takes the time.

    Args:
        x: `(rows, inputs)`, contiguous; `inputs` is a multiple of 64.
        weight: `(outputs, inputs)`.
        dtype: of the result; that of `x` unless given.

    Returns:
        `(rows, outputs)`.
    """
    out = torch.empty((x.shape[0], weight.shape[0]), device=x.device, dtype=dtype or x.dtype)
    return _multiply(x, weight, bias, out, with_gelu, 1)


def linear_parts(x: Tensor, weight: Tensor) -> Tensor:
    """The same in parts that are still to be added up, by `layer_norm`: `(parts, rows, outputs)` float32.

    Each part takes some of the inputs, so that weights of few outputs are read by many programs, too.
    """
    parts = PARTS if weight.shape[1] % (PARTS * 64) == 0 else 2
    out = torch.empty((parts, x.shape[0], weight.shape[0]), device=x.device, dtype=torch.float32)
    return _multiply(x, weight, None, out, False, parts)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, with_gelu: bool, parts: int) -> Tensor:
    rows, inputs = x.shape
    outputs = weight.shape[0]
    tile = tile_of(rows, inputs // parts, outputs, parts)
    _linear[(triton.cdiv(rows, tile.rows), triton.cdiv(outputs, tile.outputs), parts)](
        x,
        weight,
        bias if bias is not None else x,
        out,
        rows,
        outputs,
        HAS_BIAS=bias is not None,
        GELU=with_gelu,
        K=inputs,
        PARTS=parts,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.outputs,
        BLOCK_K=tile.inputs,
        PDL=_overlaps(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **_launch(),
    )
    return out


PARTS = 4


def tile_of(rows: int, inputs: int, outputs: int, parts: int) -> Tile:
    """Of one of the parts; measured on an H200 for the sizes of large-v3."""
    is_few = rows <= 16
    if outputs > 16_384:
        return Tile(16 if is_few else 64, 32, 64 if is_few else 128, 4, 3)
    block_k = 128 if inputs % 128 == 0 and inputs >= 640 else 64
    if outputs >= 4_096:
        return Tile(64, 64, block_k, 8, 4)
    if outputs > 2_048:
        return Tile(64, 32, block_k, 4, 5)
    if parts == 1:
        return Tile(64, 32 if is_few else 16, block_k, 4, 5)
    return Tile(64, 64, block_k, 4, 5)


@triton.jit
def _take_in(scores, seen, values, best, total, acc):
    """Add some more keys to a softmax that is under way: its largest score, the sum of its weights, what they add up.

    Source of the idea: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    scores = tl.where(seen, scores, -1e30)
    new_best = tl.maximum(best, tl.max(scores, 1))
    weights = tl.where(seen, tl.exp2(scores - new_best[:, None]), 0.0)
    shrink = tl.exp2(best - new_best)
    total = total * shrink + tl.sum(weights, 1)
    acc = acc * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
    return new_best, total, acc


@triton.jit
def _self_attention(
    QKV,
    KEYS,
    VALUES,
    OUT,
    SLOTS,
    STARTS,
    n_tokens,
    n_heads,
    n_positions,
    scale,
    APPENDS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    _begin(PDL)
    row, head = tl.program_id(0) // n_heads, tl.program_id(0) % n_heads
    slot = tl.load(SLOTS + row).to(tl.int64)
    start = tl.load(STARTS + row)
    tokens = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, D)
    width = n_heads * D
    q_at = QKV + (row * n_tokens + tokens).to(tl.int64)[:, None] * (3 * width) + head * D + dims[None, :]
    is_token = (tokens < n_tokens)[:, None]
    base = (slot * n_heads + head) * n_positions * D
    if APPENDS:
        new_keys = tl.load(q_at + width, mask=is_token, other=0.0)
        new_values = tl.load(q_at + 2 * width, mask=is_token, other=0.0)
        stored = base + (start + tokens)[:, None] * D + dims[None, :]
        fits = is_token & (start + tokens < n_positions)[:, None]
        tl.store(KEYS + stored, new_keys, mask=fits)
        tl.store(VALUES + stored, new_values, mask=fits)
        tl.debug_barrier()
    query = tl.load(q_at, mask=is_token, other=0.0)
    best = tl.full([BLOCK_Q], -1e30, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    until = tl.minimum(start + tl.minimum((tl.program_id(1) + 1) * BLOCK_Q, n_tokens), n_positions)
    first = 0
    while first < until:
        places = first + tl.arange(0, BLOCK_K)
        exists = (places < until)[:, None]
        cached = base + places[:, None] * D + dims[None, :]
        keys = tl.load(KEYS + cached, mask=exists, other=0.0)
        values = tl.load(VALUES + cached, mask=exists, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        seen = places[None, :] <= (start + tokens)[:, None]
        best, total, acc = _take_in(scores, seen, values, best, total, acc)
        first += BLOCK_K
    out = acc / tl.maximum(total, 1e-30)[:, None]
    at = (row * n_tokens + tokens).to(tl.int64)[:, None] * width + head * D + dims[None, :]
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=is_token)


@triton.jit
def _append(
    QKV,
    KEYS,
    VALUES,
    SLOTS,
    STARTS,
    n_tokens,
    n_heads,
    n_positions,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    _begin(PDL)
    row, token = tl.program_id(0) // n_tokens, tl.program_id(0) % n_tokens
    slot = tl.load(SLOTS + row).to(tl.int64)
    place = tl.load(STARTS + row) + token
    columns = tl.arange(0, WIDTH)
    width = n_heads * D
    inside = columns < tl.where(place < n_positions, width, 0)
    source = QKV + tl.program_id(0).to(tl.int64) * (3 * width) + columns
    at = ((slot * n_heads + columns // D) * n_positions + place) * D + columns % D
    tl.store(KEYS + at, tl.load(source + width, mask=inside), mask=inside)
    tl.store(VALUES + at, tl.load(source + 2 * width, mask=inside), mask=inside)


def append(qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, starts: Tensor, n_tokens: int) -> None:
    """Store new tokens' keys and values in the slots of their rows; see `self_attention`."""
    n_heads, n_positions, head_dim = keys.shape[1:]
    _append[(qkv.shape[0],)](
        qkv,
        keys,
        values,
        slots,
        starts,
        n_tokens,
        n_heads,
        n_positions,
        WIDTH=triton.next_power_of_2(n_heads * head_dim),
        D=head_dim,
        PDL=_overlaps(),
        **_launch(),
        num_warps=4,
    )


def self_attention(qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, starts: Tensor, n_tokens: int) -> Tensor:
    """Store new tokens' keys and values in the slots of their rows, and attend to all up to each token.

    Args:
        qkv: `(rows * n_tokens, 3 * width)`, contiguous.
        keys, values: `(slots, heads, positions, head_dim)`, contiguous: one layer of the cache.
        slots, starts: `(rows,)`: a row's slot, and where its first token stands. Tokens beyond the last position are
            lost.

    Returns:
        `(rows * n_tokens, width)`.
    """
    n_heads, n_positions, head_dim = keys.shape[1:]
    rows, width = slots.shape[0], n_heads * head_dim
    out = torch.empty((qkv.shape[0], width), device=qkv.device, dtype=qkv.dtype)
    block_q = 16 if n_tokens <= 16 else 32
    in_one = n_tokens <= block_q
    if not in_one:
        append(qkv, keys, values, slots, starts, n_tokens)
    _self_attention[(rows * n_heads, triton.cdiv(n_tokens, block_q))](
        qkv,
        keys,
        values,
        out,
        slots,
        starts,
        n_tokens,
        n_heads,
        n_positions,
        LOG2_E / head_dim**0.5,
        APPENDS=in_one,
        BLOCK_Q=block_q,
        BLOCK_K=_KEYS,
        D=head_dim,
        PDL=_overlaps(),
        **_launch(),
        num_warps=4,
        num_stages=2,
    )
    return out


@triton.jit
def _cross_attention(
    Q,
    KEYS,
    VALUES,
    PARTS,
    MARKS,
    SLOTS,
    LENGTHS,
    n_tokens,
    n_heads,
    n_states,
    scale,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    _begin(PDL)
    # Programs that run together read keys that lie together.
    split = tl.program_id(0)
    row, head = tl.program_id(1) // n_heads, tl.program_id(1) % n_heads
    slot = tl.load(SLOTS + row).to(tl.int64)
    length = tl.load(LENGTHS + slot)
    begin = split * SPLIT
    if begin >= length:
        return
    end = tl.minimum(begin + SPLIT, length)
    tokens = tl.program_id(2) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, D)
    width = n_heads * D
    is_token = (tokens < n_tokens)[:, None]
    q_at = (row * n_tokens + tokens).to(tl.int64)[:, None] * width + head * D + dims[None, :]
    query = tl.load(Q + q_at, mask=is_token, other=0.0)
    base = (slot * n_heads + head) * n_states * D
    best = tl.full([BLOCK_Q], -1e30, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for first in range(0, SPLIT, BLOCK_K):
        states = begin + first + tl.arange(0, BLOCK_K)
        exists = states < end
        at = base + states[:, None] * D + dims[None, :]
        keys = tl.load(KEYS + at, mask=exists[:, None], other=0.0)
        values = tl.load(VALUES + at, mask=exists[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        best, total, acc = _take_in(scores, exists[None, :], values, best, total, acc)
    entry = ((row * n_tokens + tokens) * n_heads + head) * SPLITS + split
    tl.store(PARTS + entry.to(tl.int64)[:, None] * D + dims[None, :], acc, mask=is_token)
    tl.store(MARKS + 2 * entry, best, mask=tokens < n_tokens)
    tl.store(MARKS + 2 * entry + 1, total, mask=tokens < n_tokens)


@triton.jit
def _join_parts(
    PARTS,
    MARKS,
    OUT,
    SLOTS,
    LENGTHS,
    n_tokens,
    n_heads,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    _begin(PDL)
    entry = tl.program_id(0).to(tl.int64)
    row = entry // (n_heads * n_tokens)
    length = tl.load(LENGTHS + tl.load(SLOTS + row))
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, D)
    used = splits * SPLIT < length
    best = tl.load(MARKS + 2 * (entry * SPLITS + splits), mask=used, other=-1e30)
    total = tl.load(MARKS + 2 * (entry * SPLITS + splits) + 1, mask=used, other=0.0)
    parts = tl.load(PARTS + (entry * SPLITS + splits)[:, None] * D + dims[None, :], mask=used[:, None], other=0.0)
    shrink = tl.exp2(best - tl.max(best, 0))
    out = tl.sum(parts * shrink[:, None], 0) / tl.maximum(tl.sum(total * shrink, 0), 1e-30)
    tl.store(OUT + entry * D + dims, out.to(OUT.dtype.element_ty))


def cross_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, lengths: Tensor, n_tokens: int
) -> Tensor:
    """Rows against the encoder states of their slots.

    Args:
        query: `(rows * n_tokens, width)`, contiguous.
        keys, values: `(slots, heads, states, head_dim)`, contiguous: one layer of the cache.
        slots: `(rows,)`.
        lengths: encoder states of every slot; rows of a slot that has none come out as zeros.

    Returns:
        `(rows * n_tokens, width)`.
    """
    n_heads, n_states, head_dim = keys.shape[1:]
    rows = slots.shape[0]
    out = torch.empty_like(query)
    splits = triton.next_power_of_2(triton.cdiv(n_states, SPLIT))
    entries = rows * n_tokens * n_heads
    parts = torch.empty((entries, splits, head_dim), device=query.device, dtype=torch.float32)
    marks = torch.empty((entries, splits, 2), device=query.device, dtype=torch.float32)
    block_q = 16 if n_tokens <= 16 else 32
    _cross_attention[(triton.cdiv(n_states, SPLIT), rows * n_heads, triton.cdiv(n_tokens, block_q))](
        query,
        keys,
        values,
        parts,
        marks,
        slots,
        lengths,
        n_tokens,
        n_heads,
        n_states,
        LOG2_E / head_dim**0.5,
        SPLITS=splits,
        SPLIT=SPLIT,
        BLOCK_Q=block_q,
        BLOCK_K=_KEYS,
        D=head_dim,
        PDL=_overlaps(),
        **_launch(),
        num_warps=4,
        num_stages=3,
    )
    _join_parts[(entries,)](
        parts,
        marks,
        out,
        slots,
        lengths,
        n_tokens,
        n_heads,
        SPLITS=splits,
        SPLIT=SPLIT,
        D=head_dim,
        PDL=_overlaps(),
        num_warps=1,
        **_launch(),
    )
    return out


@triton.jit
def _store_cross(
    STATES,
    KEYS,
    VALUES,
    SLOTS,
    n_states,
    n_heads,
    n_positions,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    _begin(PDL)
    window, state = tl.program_id(0) // n_states, tl.program_id(0) % n_states
    slot = tl.load(SLOTS + window).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    width = n_heads * D
    inside = columns < width
    source = STATES + tl.program_id(0).to(tl.int64) * (2 * width) + columns
    at = ((slot * n_heads + columns // D) * n_positions + state) * D + columns % D
    tl.store(KEYS + at, tl.load(source, mask=inside), mask=inside)
    tl.store(VALUES + at, tl.load(source + width, mask=inside), mask=inside)


def store_cross(keys_values: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Put a layer's keys and values, `(windows * states, 2 * width)`, into slots of the cache, laid out as above."""
    n_heads, n_positions, head_dim = keys.shape[1:]
    n_states = keys_values.shape[0] // slots.shape[0]
    _store_cross[(keys_values.shape[0],)](
        keys_values,
        keys,
        values,
        slots,
        n_states,
        n_heads,
        n_positions,
        WIDTH=triton.next_power_of_2(n_heads * head_dim),
        D=head_dim,
        PDL=_overlaps(),
        **_launch(),
        num_warps=4,
    )
