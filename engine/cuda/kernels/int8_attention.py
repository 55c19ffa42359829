"""Cross-attention of one new token over keys and values in 8 bits, as in decode steps of many rows.

Steps read all keys and values of all rows, so half the bytes could take half the time. But turning each of them into a
floating-point number takes as long as reading it. So scores are sums of products of integers, four at a time (`dp4a`),
and values are added up in pairs of 16 bits. Words of 32 bits hold four keys or values, or two sums.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.cuda.kernels.launch import launch_options, wait_for_previous_kernel

LOG2_E = 1.4426950408889634
"""Scores are multiplied by it, because GPUs compute powers of two faster than powers of e."""
BLOCK_KEYS = 32
"""Keys of one round: a program has one warp, in which four threads share a key."""
_ZERO_POINT = tl.constexpr(0x64806480)
"""Twice 1152 in 16 bits, which is 1024 + 128."""
_VALUE_FACTOR = tl.constexpr(8.0)
"""What values are multiplied by while they are added up in 16 bits, so that small ones keep their precision."""


@triton.jit
def _dot4(x, y, PTX: tl.constexpr):
    """Multiply the four integers of each word of `x` and `y`, and add up the products."""
    if PTX:
        return tl.inline_asm_elementwise(
            "{ .reg .s32 none; mov.s32 none, 0; dp4a.s32.s32 $0, $1, $2, none; }",
            constraints="=r,r,r",
            args=[x, y],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    total = _integer(x, 0) * _integer(y, 0) + _integer(x, 1) * _integer(y, 1)
    return total + _integer(x, 2) * _integer(y, 2) + _integer(x, 3) * _integer(y, 3)


@triton.jit
def _add_values(first, second, values, weights, shrink, PTX: tl.constexpr):
    """Multiply sums of values by `shrink`, and add the four values of each word with their weight.

    `first` and `second` hold the sums of two values each; `weights` and `shrink` hold one number twice. A byte under
    the exponent of 1024 is a number of 16 bits, from which 1152 is taken away; so bytes need no conversion.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            """
            {
            .reg .b32 unsigned, low, high;
            xor.b32 unsigned, $4, 0x80808080;
            prmt.b32 low, unsigned, 0x64646464, 0x4140;
            prmt.b32 high, unsigned, 0x64646464, 0x4342;
            sub.f16x2 low, low, $7;
            sub.f16x2 high, high, $7;
            mul.f16x2 $0, $2, $6;
            mul.f16x2 $1, $3, $6;
            fma.rn.f16x2 $0, low, $5, $0;
            fma.rn.f16x2 $1, high, $5, $1;
            }
            """,
            constraints="=&r,=&r,r,r,r,r,r,r",
            args=[first, second, values, weights, shrink, _ZERO_POINT],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    weight, factor = _half(weights, 0), _half(shrink, 0)
    first_low = _half(first, 0) * factor + _integer(values, 0) * weight
    first_high = _half(first, 1) * factor + _integer(values, 1) * weight
    second_low = _half(second, 0) * factor + _integer(values, 2) * weight
    second_high = _half(second, 1) * factor + _integer(values, 3) * weight
    return _pair(first_low, first_high), _pair(second_low, second_high)


@triton.jit
def _times(x, y, PTX: tl.constexpr):
    """Products that no version of the compiler joins with a sum, so that `row_step.cu` can add them up alike."""
    if PTX:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;",
            constraints="=f,f,f",
            args=[x, y],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return x * y


@triton.jit
def _integer(words, INDEX: tl.constexpr):
    return (words << (24 - 8 * INDEX)) >> 24


@triton.jit
def _half(pairs, INDEX: tl.constexpr):
    """One of the two numbers of each word, as float32."""
    return (pairs >> (16 * INDEX)).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _pair(low, high):
    """Words that hold two numbers in 16 bits."""
    low_bits = low.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low_bits | (high.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def _pack(x):
    """`(words, 4)` whole numbers of 8 bits to `(words,)`."""
    return tl.sum((x.to(tl.int32) & 0xFF) << (tl.arange(0, 4) * 8)[None, :], 1)


@triton.jit
def _in_two_parts(query):
    """A query as a sum of two in 8 bits, the second 254 times finer, so that it loses nothing; and its scale.

    `(words, 4)` to `(words,)`, `(words,)` and one number.
    """
    scale = tl.maximum(tl.max(tl.max(tl.abs(query), 1), 0) * (1.0 / 127.0), 1e-30)
    # Rounded as IEEE 754 says, so that no compiler joins it with the sums that follow.
    query = tl.div_rn(query, scale)
    coarse = tl.floor(query + 0.5)
    fine = tl.floor((query - coarse) * 254.0 + 0.5)
    return _pack(coarse), _pack(fine), scale


@triton.jit
def _store_sums(places, first, second, shares, PTX: tl.constexpr):
    """Add up the sums of all keys by their shares, and store the four of each word beside one another."""
    tl.store(places, tl.sum(_times(_half(first, 0), shares[:, None], PTX), 0))
    tl.store(places + 1, tl.sum(_times(_half(first, 1), shares[:, None], PTX), 0))
    tl.store(places + 2, tl.sum(_times(_half(second, 0), shares[:, None], PTX), 0))
    tl.store(places + 3, tl.sum(_times(_half(second, 1), shares[:, None], PTX), 0))


@triton.jit
def _cross_attention_in_8_bits(
    Q,
    KEYS,
    VALUES,
    KEY_SCALES,
    VALUE_SCALES,
    PARTIALS,
    STATS,
    SLOTS,
    LENGTHS,
    n_heads,
    n_states,
    scale,
    SPLITS: tl.constexpr,
    SPLIT_STATES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr,
    PTX: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attend from a row's token, in one head, to one split of the encoder states of the row's slot.

    Stores what `kernels.attention._cross_attention` stores. Each key of a block has its own running softmax; they are
    combined at the end.
    """
    wait_for_previous_kernel(PDL)
    split = tl.program_id(0)
    row, head = tl.program_id(1) // n_heads, tl.program_id(1) % n_heads
    slot = tl.load(SLOTS + row).to(tl.int64)
    length = tl.load(LENGTHS + slot)
    begin = split * SPLIT_STATES
    if begin >= length:
        return
    end = tl.minimum(begin + SPLIT_STATES, length)
    words = tl.arange(0, WORDS)
    dims = words[:, None] * 4 + tl.arange(0, 4)[None, :]
    query = tl.load(Q + (row * n_heads + head) * (4 * WORDS) + dims).to(tl.float32)
    coarse, fine, query_scale = _in_two_parts(query)
    base = (slot * n_heads + head) * n_states
    key_words = KEYS.to(tl.pointer_type(tl.int32))
    value_words = VALUES.to(tl.pointer_type(tl.int32))
    peak = tl.full([BLOCK_K], -1e30, tl.float32)
    total = tl.zeros([BLOCK_K], tl.float32)
    first = tl.zeros([BLOCK_K, WORDS], tl.int32)
    second = tl.zeros([BLOCK_K, WORDS], tl.int32)
    for block in range(0, SPLIT_STATES, BLOCK_K):
        states = begin + block + tl.arange(0, BLOCK_K)
        exists = states < end
        offsets = (base + states)[:, None] * WORDS + words[None, :]
        keys = tl.load(key_words + offsets, mask=exists[:, None], other=0)
        values = tl.load(value_words + offsets, mask=exists[:, None], other=0)
        key_scales = tl.load(KEY_SCALES + base + states, mask=exists, other=0.0).to(tl.float32)
        value_scales = tl.load(VALUE_SCALES + base + states, mask=exists, other=0.0).to(tl.float32)
        coarse_scores = tl.sum(_dot4(keys, coarse[None, :], PTX), 1).to(tl.float32)
        fine_scores = tl.sum(_dot4(keys, fine[None, :], PTX), 1).to(tl.float32)
        scores = (coarse_scores + fine_scores * (1.0 / 254.0)) * (key_scales * (scale * query_scale))
        scores = tl.where(exists, scores, -1e30)
        new_peak = tl.maximum(peak, scores)
        weights = tl.where(exists, tl.exp2(scores - new_peak), 0.0)
        shrink = tl.exp2(peak - new_peak)
        peak = new_peak
        total = total * shrink + weights
        scaled = weights * value_scales * _VALUE_FACTOR
        first, second = _add_values(
            first, second, values, _pair(scaled, scaled)[:, None], _pair(shrink, shrink)[:, None], PTX
        )
    largest = tl.max(peak, 0)
    shares = tl.exp2(peak - largest)
    entry = ((row * n_heads + head) * SPLITS + split).to(tl.int64)
    _store_sums(PARTIALS + (entry * WORDS + words) * 4, first, second, shares / _VALUE_FACTOR, PTX)
    tl.store(STATS + 2 * entry, largest)
    tl.store(STATS + 2 * entry + 1, tl.sum(_times(total, shares, PTX), 0))


def attend_in_8_bits(
    query: Tensor,
    keys_values: Tensor,
    scales: Tensor,
    slots: Tensor,
    lengths: Tensor,
    partials: Tensor,
    stats: Tensor,
    split_states: int,
) -> None:
    """Attend from one token of each row to splits of the encoder states of its slot.

    Args:
        query: `(rows, width)`, contiguous.
        keys_values: `(2, slots, heads, states, head_dim)` int8; `head_dim` is a multiple of 16.
        scales: `(2, slots, heads, states)`.
        slots: `(rows,)`.
        lengths: `(slots,)`: how many encoder states each slot holds.
        partials: `(rows * heads, splits, head_dim)` float32: the weighted values of each split are stored there.
        stats: `(rows * heads, splits, 2)` float32: so are its largest score and the sum of its weights.
        split_states: encoder states of one split, a multiple of `BLOCK_KEYS`.
    """
    n_heads, n_states, head_dim = keys_values.shape[2:]
    _cross_attention_in_8_bits[(triton.cdiv(n_states, split_states), slots.shape[0] * n_heads)](
        query,
        *keys_values,
        *scales,
        partials,
        stats,
        slots,
        lengths,
        n_heads,
        n_states,
        LOG2_E / head_dim**0.5,
        SPLITS=partials.shape[1],
        SPLIT_STATES=split_states,
        BLOCK_K=BLOCK_KEYS,
        WORDS=head_dim // 4,
        PTX=torch.cuda.is_available(),
        **launch_options(),
        num_warps=1,
    )
