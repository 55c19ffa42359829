"""Attention of the decoder over the slots of the caches: to its own tokens, and to the encoder states of a window.

Both kernels keep a running softmax: they read keys block by block and never hold all scores of a row. Cross-attention
also splits a window's keys among programs (flash decoding), and a second kernel combines their results.

The caches are `(slots, heads, positions, head_dim)`, contiguous: the keys, or the values, of one layer. Those of
cross-attention may be in 8 bits, with a scale for each key and value: `engine/model/kv_cache.py`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.cuda.kernels.int8_attention import LOG2_E, attend_in_8_bits
from tutti_server.engine.cuda.kernels.launch import launch_options, wait_for_previous_kernel
from tutti_server.engine.model.kv_cache import INT8_MAX, MIN_SCALE

SPLIT_STATES = 192
"""Encoder states that one program of cross-attention reads. A full window has eight splits, whatever the batch size, so
that sums run in the same order for every batch."""
_BLOCK_KEYS = 64
"""Keys that are loaded at a time."""


@triton.jit
def _add_to_softmax(scores, is_visible, values, value_scales, peak, total, acc):
    """Add a block of keys to a running softmax: its largest score, the sum of its weights, its weighted values.

    A value counts with its weight times its scale. When a larger score comes, what was summed before is scaled down to
    it.

    Source of the idea: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    scores = tl.where(is_visible, scores, -1e30)
    new_peak = tl.maximum(peak, tl.max(scores, 1))
    weights = tl.where(is_visible, tl.exp2(scores - new_peak[:, None]), 0.0)
    shrink = tl.exp2(peak - new_peak)
    total = total * shrink + tl.sum(weights, 1)
    acc = acc * shrink[:, None] + tl.dot((weights * value_scales).to(values.dtype), values)
    return new_peak, total, acc


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
    """Attend from a block of a row's new tokens, in one head, to all of the row's tokens up to each.

    With `APPENDS`, all new tokens of the row are in this block, and the program stores their keys and values itself.
    """
    wait_for_previous_kernel(PDL)
    row, head = tl.program_id(0) // n_heads, tl.program_id(0) % n_heads
    slot = tl.load(SLOTS + row).to(tl.int64)
    start = tl.load(STARTS + row)
    tokens = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, D)
    width = n_heads * D
    q_pointers = QKV + (row * n_tokens + tokens).to(tl.int64)[:, None] * (3 * width) + head * D + dims[None, :]
    is_token = (tokens < n_tokens)[:, None]
    base = (slot * n_heads + head) * n_positions * D
    if APPENDS:
        new_keys = tl.load(q_pointers + width, mask=is_token, other=0.0)
        new_values = tl.load(q_pointers + 2 * width, mask=is_token, other=0.0)
        new_offsets = base + (start + tokens)[:, None] * D + dims[None, :]
        fits = is_token & (start + tokens < n_positions)[:, None]
        tl.store(KEYS + new_offsets, new_keys, mask=fits)
        tl.store(VALUES + new_offsets, new_values, mask=fits)
        # The loop below loads these keys again, with other threads of the program.
        tl.debug_barrier()
    query = tl.load(q_pointers, mask=is_token, other=0.0)
    peak = tl.full([BLOCK_Q], -1e30, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    end = tl.minimum(start + tl.minimum((tl.program_id(1) + 1) * BLOCK_Q, n_tokens), n_positions)
    first = 0
    while first < end:
        positions = first + tl.arange(0, BLOCK_K)
        exists = (positions < end)[:, None]
        offsets = base + positions[:, None] * D + dims[None, :]
        keys = tl.load(KEYS + offsets, mask=exists, other=0.0)
        values = tl.load(VALUES + offsets, mask=exists, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        is_visible = positions[None, :] <= (start + tokens)[:, None]
        peak, total, acc = _add_to_softmax(scores, is_visible, values, 1.0, peak, total, acc)
        first += BLOCK_K
    out = acc / tl.maximum(total, 1e-30)[:, None]
    out_offsets = (row * n_tokens + tokens).to(tl.int64)[:, None] * width + head * D + dims[None, :]
    tl.store(OUT + out_offsets, out.to(OUT.dtype.element_ty), mask=is_token)


@triton.jit
def _append_to_cache(
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
    """Store the keys and values of one new token, for all heads."""
    wait_for_previous_kernel(PDL)
    row, token = tl.program_id(0) // n_tokens, tl.program_id(0) % n_tokens
    slot = tl.load(SLOTS + row).to(tl.int64)
    position = tl.load(STARTS + row) + token
    columns = tl.arange(0, WIDTH)
    width = n_heads * D
    is_inside = columns < tl.where(position < n_positions, width, 0)
    source = QKV + tl.program_id(0).to(tl.int64) * (3 * width) + columns
    offsets = ((slot * n_heads + columns // D) * n_positions + position) * D + columns % D
    tl.store(KEYS + offsets, tl.load(source + width, mask=is_inside), mask=is_inside)
    tl.store(VALUES + offsets, tl.load(source + 2 * width, mask=is_inside), mask=is_inside)


def append_to_cache(qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, starts: Tensor, n_tokens: int) -> None:
    """Store the keys and values of new tokens in the slots of their rows.

    The arguments are those of `self_attention`, which calls this where it must.
    """
    n_heads, n_positions, head_dim = keys.shape[1:]
    _append_to_cache[(qkv.shape[0],)](
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
        **launch_options(),
        num_warps=4,
    )


def self_attention(qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, starts: Tensor, n_tokens: int) -> Tensor:
    """Store the keys and values of new tokens in the slots of their rows, and attend to all tokens up to each.

    Args:
        qkv: `(rows * n_tokens, 3 * width)`, contiguous: queries, keys and values of the new tokens.
        keys: cache of one layer's keys. A token beyond its last position is not stored.
        values: cache of the same layer's values.
        slots: `(rows,)`: the slot of each row.
        starts: `(rows,)`: the position of each row's first new token.

    Returns:
        `(rows * n_tokens, width)`.
    """
    n_heads, n_positions, head_dim = keys.shape[1:]
    n_rows, width = slots.shape[0], n_heads * head_dim
    out = torch.empty((qkv.shape[0], width), device=qkv.device, dtype=qkv.dtype)
    block_q = 16 if n_tokens <= 16 else 32
    # One program must not read keys that another one still writes: rows of several blocks are stored first.
    fits_one_block = n_tokens <= block_q
    if not fits_one_block:
        append_to_cache(qkv, keys, values, slots, starts, n_tokens)
    _self_attention[(n_rows * n_heads, triton.cdiv(n_tokens, block_q))](
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
        APPENDS=fits_one_block,
        BLOCK_Q=block_q,
        BLOCK_K=_BLOCK_KEYS,
        D=head_dim,
        **launch_options(),
        num_warps=4,
        num_stages=2,
    )
    return out


@triton.jit
def _cross_attention(
    Q,
    KEYS,
    VALUES,
    KEY_SCALES,
    VALUE_SCALES,
    PARTIALS,
    STATS,
    SLOTS,
    LENGTHS,
    SHARERS,
    n_tokens,
    n_heads,
    n_states,
    scale,
    SPLITS: tl.constexpr,
    SPLIT_STATES: tl.constexpr,
    SCALED: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attend from a block of a row's tokens, in one head, to one split of the encoder states of the row's slot.

    Stores the weighted values to `PARTIALS`, and the running softmax (largest score, sum of weights) to `STATS`. With
    `SHARED`, rows have one token, and the row of the slot that holds a window attends for all rows that share it.
    """
    wait_for_previous_kernel(PDL)
    # The splits come first in the grid: programs that run at the same time read neighbouring keys.
    split = tl.program_id(0)
    row, head = tl.program_id(1) // n_heads, tl.program_id(1) % n_heads
    slot = tl.load(SLOTS + row).to(tl.int64)
    length = tl.load(LENGTHS + slot)
    begin = split * SPLIT_STATES
    if begin >= length:
        return
    end = tl.minimum(begin + SPLIT_STATES, length)
    dims = tl.arange(0, D)
    width = n_heads * D
    if SHARED:
        queries = tl.load(SHARERS + row.to(tl.int64) * BLOCK_Q + tl.arange(0, BLOCK_Q))
        if tl.max(queries, 0) < 0:
            return
        is_query = queries >= 0
    else:
        tokens = tl.program_id(2) * BLOCK_Q + tl.arange(0, BLOCK_Q)
        queries = (row * n_tokens + tokens).to(tl.int64)
        is_query = tokens < n_tokens
    is_token = is_query[:, None]
    q_offsets = queries[:, None] * width + head * D + dims[None, :]
    query = tl.load(Q + q_offsets, mask=is_token, other=0.0)
    base = (slot * n_heads + head) * n_states
    peak = tl.full([BLOCK_Q], -1e30, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for first in range(0, SPLIT_STATES, BLOCK_K):
        states = begin + first + tl.arange(0, BLOCK_K)
        exists = states < end
        offsets = (base + states)[:, None] * D + dims[None, :]
        keys = tl.load(KEYS + offsets, mask=exists[:, None], other=0)
        values = tl.load(VALUES + offsets, mask=exists[:, None], other=0)
        if SCALED:
            # Integers of 8 bits are exact in 16 bits.
            key_scales = tl.load(KEY_SCALES + base + states, mask=exists, other=0.0).to(tl.float32)
            value_scales = tl.load(VALUE_SCALES + base + states, mask=exists, other=0.0).to(tl.float32)
            scores = tl.dot(query, tl.trans(keys.to(query.dtype))) * (key_scales * scale)[None, :]
            peak, total, acc = _add_to_softmax(
                scores, exists[None, :], values.to(query.dtype), value_scales[None, :], peak, total, acc
            )
        else:
            scores = tl.dot(query, tl.trans(keys)) * scale
            peak, total, acc = _add_to_softmax(scores, exists[None, :], values, 1.0, peak, total, acc)
    entry = (queries * n_heads + head) * SPLITS + split
    tl.store(PARTIALS + entry[:, None] * D + dims[None, :], acc, mask=is_token)
    tl.store(STATS + 2 * entry, peak, mask=is_query)
    tl.store(STATS + 2 * entry + 1, total, mask=is_query)


@triton.jit
def _combine_splits(
    PARTIALS,
    STATS,
    OUT,
    SLOTS,
    LENGTHS,
    n_tokens,
    n_heads,
    SPLITS: tl.constexpr,
    SPLIT_STATES: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    """Combine the splits of one token and head: scale each to the largest score of all, then divide by all weights."""
    wait_for_previous_kernel(PDL)
    entry = tl.program_id(0).to(tl.int64)
    row = entry // (n_heads * n_tokens)
    length = tl.load(LENGTHS + tl.load(SLOTS + row))
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, D)
    is_used = splits * SPLIT_STATES < length
    peak = tl.load(STATS + 2 * (entry * SPLITS + splits), mask=is_used, other=-1e30)
    total = tl.load(STATS + 2 * (entry * SPLITS + splits) + 1, mask=is_used, other=0.0)
    partials = tl.load(
        PARTIALS + (entry * SPLITS + splits)[:, None] * D + dims[None, :], mask=is_used[:, None], other=0.0
    )
    shrink = tl.exp2(peak - tl.max(peak, 0))
    out = tl.sum(partials * shrink[:, None], 0) / tl.maximum(tl.sum(total * shrink, 0), 1e-30)
    tl.store(OUT + entry * D + dims, out.to(OUT.dtype.element_ty))


def cross_attention(
    query: Tensor,
    keys_values: Tensor,
    scales: Tensor | None,
    slots: Tensor,
    lengths: Tensor,
    n_tokens: int,
    sharers: Tensor | None = None,
) -> Tensor:
    """Attend to the encoder states of each row's slot.

    Args:
        query: `(rows * n_tokens, width)`, contiguous.
        keys_values: `(2, slots, heads, states, head_dim)`: the caches of one layer's keys and values.
        scales: `(2, slots, heads, states)`: their scales, if they are in 8 bits.
        slots: `(rows,)`: the slot of each row.
        lengths: `(slots,)`: how many encoder states each slot holds. A row whose slot holds none gets zeros.
        sharers: `(slots, MAX_SHARERS)`: the slots that attend to the window of each slot, if a row is that of the slot
            of its number, with one token: `KVCache.sharers`. In 16 bits its keys and values are then read once for all.

    Returns:
        `(rows * n_tokens, width)`.
    """
    n_heads, n_states, head_dim = keys_values.shape[2:]
    n_rows = slots.shape[0]
    out = torch.empty_like(query)
    # A power of two, because the second kernel loads all splits of an entry as one block.
    n_splits = triton.next_power_of_2(triton.cdiv(n_states, SPLIT_STATES))
    n_entries = n_rows * n_tokens * n_heads
    partials = torch.empty((n_entries, n_splits, head_dim), device=query.device, dtype=torch.float32)
    stats = torch.empty((n_entries, n_splits, 2), device=query.device, dtype=torch.float32)
    if scales is not None and n_tokens == 1:
        attend_in_8_bits(query, keys_values, scales, slots, lengths, partials, stats, SPLIT_STATES)
    else:
        block_q = 16 if n_tokens <= 16 else 32
        n_blocks = triton.cdiv(n_tokens, block_q)
        _cross_attention[(triton.cdiv(n_states, SPLIT_STATES), n_rows * n_heads, n_blocks)](
            query,
            *keys_values,
            # Pointers that the kernel does not use still need a tensor.
            *(keys_values if scales is None else scales),
            partials,
            stats,
            slots,
            lengths,
            slots if sharers is None else sharers,
            n_tokens,
            n_heads,
            n_states,
            LOG2_E / head_dim**0.5,
            SPLITS=n_splits,
            SPLIT_STATES=SPLIT_STATES,
            SCALED=scales is not None,
            SHARED=sharers is not None,
            BLOCK_Q=block_q,
            BLOCK_K=_BLOCK_KEYS,
            D=head_dim,
            **launch_options(),
            num_warps=4,
            num_stages=3,
        )
    _combine_splits[(n_entries,)](
        partials,
        stats,
        out,
        slots,
        lengths,
        n_tokens,
        n_heads,
        SPLITS=n_splits,
        SPLIT_STATES=SPLIT_STATES,
        D=head_dim,
        **launch_options(),
        num_warps=1,
    )
    return out


@triton.jit
def _store_in_heads(
    x, CACHE, SCALES, entries, is_inside, SCALED: tl.constexpr, LARGEST: tl.constexpr, LEAST: tl.constexpr
):
    """Store the key or value of each head, `(heads, head_dim)`, at the entries of a cache; in 8 bits with its scale."""
    dims = tl.arange(0, x.shape[1])
    places = CACHE + entries[:, None] * x.shape[1] + dims[None, :]
    if SCALED:
        scales = tl.maximum(tl.max(tl.abs(x.to(tl.float32)), 1) / LARGEST, LEAST).to(SCALES.dtype.element_ty)
        tl.store(SCALES + entries, scales, mask=is_inside)
        integers = tl.floor(x.to(tl.float32) / scales.to(tl.float32)[:, None] + 0.5)
        x = tl.minimum(tl.maximum(integers, -LARGEST), LARGEST).to(tl.int8)
    tl.store(places, x, mask=is_inside[:, None])


@triton.jit
def _store_cross_attention(
    STATES,
    KEYS,
    VALUES,
    KEY_SCALES,
    VALUE_SCALES,
    SLOTS,
    POSITIONS,
    n_heads,
    n_positions,
    SCALED: tl.constexpr,
    LARGEST: tl.constexpr,
    LEAST: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PDL: tl.constexpr,
):
    """Store the keys and values of one encoder state, for all heads."""
    wait_for_previous_kernel(PDL)
    slot = tl.load(SLOTS + tl.program_id(0)).to(tl.int64)
    heads = tl.arange(0, HEADS)
    is_inside = heads < n_heads
    width = n_heads * D
    source = STATES + tl.program_id(0).to(tl.int64) * (2 * width) + heads[:, None] * D + tl.arange(0, D)[None, :]
    entries = (slot * n_heads + heads) * n_positions + tl.load(POSITIONS + tl.program_id(0))
    keys = tl.load(source, mask=is_inside[:, None], other=0.0)
    _store_in_heads(keys, KEYS, KEY_SCALES, entries, is_inside, SCALED, LARGEST, LEAST)
    values = tl.load(source + width, mask=is_inside[:, None], other=0.0)
    _store_in_heads(values, VALUES, VALUE_SCALES, entries, is_inside, SCALED, LARGEST, LEAST)


def store_cross_attention(
    projected: Tensor, keys_values: Tensor, scales: Tensor | None, slots: Tensor, positions: Tensor
) -> None:
    """Store one layer's keys and values of encoder states in the slots of their windows.

    Args:
        projected: `(states, 2 * width)`, contiguous: the keys and values.
        keys_values: `(2, slots, heads, states, head_dim)`: the caches of one layer's keys and values.
        scales: `(2, slots, heads, states)`: their scales, if they are in 8 bits.
        slots: `(states,)`: the slot of each state.
        positions: `(states,)`: its place among the states of its window.
    """
    n_heads, n_positions, head_dim = keys_values.shape[2:]
    _store_cross_attention[(projected.shape[0],)](
        projected,
        *keys_values,
        # Pointers that the kernel does not use still need a tensor.
        *(keys_values if scales is None else scales),
        slots,
        positions,
        n_heads,
        n_positions,
        SCALED=scales is not None,
        LARGEST=INT8_MAX,
        LEAST=MIN_SCALE,
        HEADS=triton.next_power_of_2(n_heads),
        D=head_dim,
        **launch_options(),
        num_warps=4,
    )
