"""The encoder's attention over windows on Hopper GPUs: a kernel in Gluon, the lower level of Triton.

A program has four groups of warps. One loads queries, keys and values with the tensor memory accelerator. Each of the
other three attends from 64 encoder states to all states of the window, block by block, with a running softmax. While
one group computes its softmax, the tensor cores multiply for the others: the groups take turns. Programs stay, and take
one tile (192 states, one head) after another, so that the loads of the next tile overlap the end of this one.

Source of the ideas: Shah et al., "FlashAttention-3: Fast and Accurate Attention", 2024.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from functools import cache

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tutti_server.engine.cuda.kernels.int8_attention import LOG2_E

BLOCK_KEYS = 128
"""Keys of a block. A window must have more than one block."""
_ROWS = 64
"""Encoder states of a group of warps: those of one instruction of the tensor cores."""
_GROUPS = 3
_STAGES = 2
"""Blocks of keys and values that are in shared memory at the same time."""
_REGISTERS = 160
"""Registers of a thread that attends. Those that load need 24, and all four groups together have 512."""


@gluon.jit
def _wait(barriers, block, STAGES: gl.constexpr):
    """Wait until a block was loaded; or, with its number one lap behind, until all groups are done with it."""
    mbarrier.wait(barriers.index(block % STAGES), (block // STAGES) & 1)


@gluon.jit
def _release(barriers, block, STAGES: gl.constexpr):
    mbarrier.arrive(barriers.index(block % STAGES), count=1)


@gluon.jit
def _softmax(scores, peak, scale):
    """Return the weights of a block of keys, the new largest score, and what scales the sums before down to it."""
    new_peak = gl.maximum(peak, gl.max(scores, 1) * scale)
    return gl.exp2(scores * scale - new_peak[:, None]), new_peak, gl.exp2(peak - new_peak)


@gluon.jit
def _partial_sums(weights):
    """Return eight sums for each row. Each adds numbers of one thread only; threads exchange theirs at the end."""
    n_rows: gl.constexpr = weights.type.shape[0]
    n_keys: gl.constexpr = weights.type.shape[1]
    return gl.sum(weights.reshape([n_rows, n_keys // 8, 8]), 1)


@gluon.jit
def _attend_to_block(
    query, buffers, ready, empty, turns, running, block, turn, first_key, n_states, scale,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, IS_LAST: gl.constexpr,
):  # fmt: skip
    """Multiply with a block of keys and with the values of the block before, then compute the block's weights."""
    weights, acc, peak, sums = running
    _, k_bufs, v_bufs = buffers
    _, k_ready, v_ready = ready
    _, k_empty, v_empty = empty
    scores_layout: gl.constexpr = peak.type.layout.parent
    n_rows: gl.constexpr = acc.type.shape[0]
    n_keys: gl.constexpr = k_bufs.type.shape[1]
    zeros = gl.zeros([n_rows, n_keys], gl.float32, scores_layout)
    keys, values = k_bufs.index(block % STAGES), v_bufs.index((block - 1) % STAGES)
    # The first group goes first, so its barrier counts as passed once.
    mbarrier.wait(turns.index(GROUP), (turn & 1) ^ (GROUP == 0))
    scores_later = warpgroup_mma(query, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
    _wait(v_ready, block - 1, STAGES)
    acc_later = warpgroup_mma(weights, values, acc, is_async=True)
    mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)
    scores = warpgroup_mma_wait(1, deps=[scores_later])
    _release(k_empty, block, STAGES)
    if IS_LAST:
        mbarrier.arrive(empty[0].index(GROUP), count=1)
        columns = first_key + gl.arange(0, n_keys, gl.SliceLayout(0, scores_layout))
        scores = gl.where((columns < n_states)[None, :], scores, -1e30)
    new_weights, peak, shrink = _softmax(scores, peak, scale)
    sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, sums.type.layout))[:, None] + _partial_sums(new_weights)
    # A wait for a barrier is a loop. It keeps the compiler from moving the next wait before the softmax.
    if IS_LAST:
        _wait(v_ready, block, STAGES)
    else:
        _wait(k_ready, block + 1, STAGES)
    acc, sums, new_weights = warpgroup_mma_wait(0, deps=[acc_later, sums, new_weights])
    _release(v_empty, block - 1, STAGES)
    weights = gl.convert_layout(new_weights.to(weights.dtype), weights.type.layout)
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout))[:, None]
    return weights, acc, peak, sums


@gluon.jit
def _consume(
    buffers, ready, empty, turns, OUT, sizes, scale,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Attend from the rows of one group of warps, tile after tile."""
    n_tiles, n_states, n_heads = sizes
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    n_row_blocks, n_blocks = gl.cdiv(n_states, GROUPS * ROWS), gl.cdiv(n_states, KEYS)
    query, k_bufs, v_bufs = buffers[0].index(GROUP), buffers[1], buffers[2]
    block, turn, phase = 0, 0, 0
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        mbarrier.wait(ready[0].index(GROUP), phase)
        _wait(ready[1], block, STAGES)
        zeros = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
        keys = k_bufs.index(block % STAGES).permute((1, 0))
        scores = warpgroup_mma_wait(0, deps=[warpgroup_mma(query, keys, zeros, use_acc=False, is_async=True)])
        _release(empty[1], block, STAGES)
        peak = gl.full([ROWS], -1e30, gl.float32, gl.SliceLayout(1, s_layout))
        weights, peak, _ = _softmax(scores, peak, scale)
        sums = _partial_sums(weights)
        weights = gl.convert_layout(weights.to(OUT.dtype.element_ty), w_layout)
        running = (weights, gl.zeros([ROWS, D], gl.float32, o_layout), peak, sums)
        _wait(ready[1], block + 1, STAGES)
        for _ in range(1, n_blocks - 1):
            block += 1
            running = _attend_to_block(
                query, buffers, ready, empty, turns, running, block, turn, 0, n_states, scale,
                GROUP, GROUPS, STAGES, False,
            )  # fmt: skip
            turn += 1
        block += 1
        weights, acc, peak, sums = _attend_to_block(
            query, buffers, ready, empty, turns, running, block, turn, (n_blocks - 1) * KEYS, n_states, scale,
            GROUP, GROUPS, STAGES, True,
        )  # fmt: skip
        turn += 1
        acc_later = warpgroup_mma(weights, v_bufs.index(block % STAGES), acc, is_async=True)
        total = gl.convert_layout(gl.sum(sums, 1), o_rows)
        acc = warpgroup_mma_wait(0, deps=[acc_later])
        _release(empty[2], block, STAGES)
        block += 1
        phase ^= 1
        rows = (tile % n_row_blocks) * (GROUPS * ROWS) + GROUP * ROWS + gl.arange(0, ROWS, o_rows)
        columns = ((tile // n_row_blocks) % n_heads) * D + gl.arange(0, D, gl.SliceLayout(0, o_layout))
        first = (tile // (n_row_blocks * n_heads)) * n_states
        places = OUT + (first + rows).to(gl.int64)[:, None] * (n_heads * D) + columns[None, :]
        out = acc * (1.0 / total)[:, None]
        gl.store(places, out.to(OUT.dtype.element_ty), mask=(rows < n_states)[:, None])


@gluon.jit
def _load(q_desc, kv_desc, buffers, ready, empty, sizes, GROUPS: gl.constexpr, STAGES: gl.constexpr):
    """Load the queries of each tile, and its keys and values block by block, as soon as there is room."""
    n_tiles, n_states, n_heads = sizes
    q_bufs, k_bufs, v_bufs = buffers
    n_rows: gl.constexpr = q_desc.block_type.shape[0]
    n_keys: gl.constexpr = kv_desc.block_type.shape[0]
    head_dim: gl.constexpr = kv_desc.block_type.shape[1]
    n_row_blocks, width = gl.cdiv(n_states, GROUPS * n_rows), n_heads * head_dim
    block, phase = 0, 1
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        column = ((tile // n_row_blocks) % n_heads) * head_dim
        window = (tile // (n_row_blocks * n_heads)) * n_states
        row = window + (tile % n_row_blocks) * (GROUPS * n_rows)
        for group in gl.static_range(GROUPS):
            mbarrier.wait(empty[0].index(group), phase)
            mbarrier.expect(ready[0].index(group), q_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q_desc, [row + group * n_rows, column], ready[0].index(group), q_bufs.index(group)
            )
        phase ^= 1
        for first in range(0, n_states, n_keys):
            stage = block % STAGES
            _wait(empty[1], block + STAGES, STAGES)
            mbarrier.expect(ready[1].index(stage), kv_desc.block_type.nbytes)
            place = [window + first, width + column]
            tma.async_copy_global_to_shared(kv_desc, place, ready[1].index(stage), k_bufs.index(stage))
            _wait(empty[2], block + STAGES, STAGES)
            mbarrier.expect(ready[2].index(stage), kv_desc.block_type.nbytes)
            place = [window + first, 2 * width + column]
            tma.async_copy_global_to_shared(kv_desc, place, ready[2].index(stage), v_bufs.index(stage))
            block += 1


@gluon.jit
def _barriers(NUMBER: gl.constexpr, COUNT: gl.constexpr):
    """Make barriers that each open when `COUNT` have arrived."""
    barriers = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(NUMBER):
        mbarrier.init(barriers.index(index), count=COUNT)
    return barriers


@gluon.jit
def _attend_to_windows(
    q_desc, kv_desc, OUT, n_tiles, n_states, n_heads, scale,
    GROUPS: gl.constexpr, STAGES: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Share out the work among the groups of warps of a program."""
    n_rows: gl.constexpr = q_desc.block_type.shape[0]
    n_keys: gl.constexpr = kv_desc.block_type.shape[0]
    head_dim: gl.constexpr = kv_desc.block_type.shape[1]
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, n_rows, head_dim], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(kv_desc.dtype, [STAGES, n_keys, head_dim], kv_desc.layout)
    v_bufs = gl.allocate_shared_memory(kv_desc.dtype, [STAGES, n_keys, head_dim], kv_desc.layout)
    buffers = (q_bufs, k_bufs, v_bufs)
    ready = (_barriers(GROUPS, 1), _barriers(STAGES, 1), _barriers(STAGES, 1))
    empty = (_barriers(GROUPS, 1), _barriers(STAGES, GROUPS), _barriers(STAGES, GROUPS))
    turns = _barriers(GROUPS, 1)
    fence_async_shared()
    sizes = (n_tiles, n_states, n_heads)
    gl.warp_specialize(
        [
            (_consume, (buffers, ready, empty, turns, OUT, sizes, scale, 0, GROUPS, n_rows, n_keys, head_dim, STAGES)),
            (_consume, (buffers, ready, empty, turns, OUT, sizes, scale, 1, GROUPS, n_rows, n_keys, head_dim, STAGES)),
            (_consume, (buffers, ready, empty, turns, OUT, sizes, scale, 2, GROUPS, n_rows, n_keys, head_dim, STAGES)),
            (_load, (q_desc, kv_desc, buffers, ready, empty, sizes, GROUPS, STAGES)),
        ],
        [4, 4, 1],
        [REGISTERS, REGISTERS, 24],
    )


def attend_to_windows(queries_keys_values: Tensor, out: Tensor, n_states: int) -> None:
    """Attend from every encoder state to all states of its window.

    Args:
        queries_keys_values: `(states, 3, heads, 64)` in 16 bits, contiguous: windows of equal length, packed.
        out: `(states, heads * 64)`: where the result goes.
        n_states: encoder states of a window, more than `BLOCK_KEYS`.
    """
    n_rows, _, n_heads, head_dim = queries_keys_values.shape
    width = n_heads * head_dim
    dtype = gl.bfloat16 if queries_keys_values.dtype == torch.bfloat16 else gl.float16

    def describe(rows: int) -> TensorDescriptor:
        block = [rows, head_dim]
        layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
        return TensorDescriptor(queries_keys_values, [n_rows, 3 * width], [3 * width, 1], block, layout)

    n_tiles = n_rows // n_states * n_heads * triton.cdiv(n_states, _GROUPS * _ROWS)
    _attend_to_windows[(min(n_tiles, _n_processors(out.device)),)](
        describe(_ROWS),
        describe(BLOCK_KEYS),
        out,
        n_tiles,
        n_states,
        n_heads,
        LOG2_E / head_dim**0.5,
        _GROUPS,
        _STAGES,
        _REGISTERS,
        num_warps=4,
        # Four groups of four warps: all 65,536 registers of a multiprocessor.
        maxnreg=128,
    )


@cache
def _n_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
