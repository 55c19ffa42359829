"""The decoder's attention to encoder states themselves, instead of keys and values that each layer makes of them.

A slot then holds its window's states once for all layers: of large-v3, 4 MB instead of 246. The encoder need not
compute keys and values, and a step reads half as much. In return, scores are sums of as many products as a state has
numbers, and not as a head has.
"""

import ctypes
import math
from pathlib import Path

import torch
from torch import Tensor

from tutti_server.engine.cuda.kernels.int8_attention import LOG2_E
from tutti_server.engine.cuda.kernels.states_products import queries_of_states, values_of_states
from tutti_server.engine.cuda.nvrtc import OVERLAPPING, CudaError, Kernel, compile_cached, max_shared_bytes
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.whisper import CrossAttention

SOURCE = Path(__file__).parent / "kernels" / "states_attention.cu"
SPLIT_STATES = 384
"""Encoder states of a split, whatever the batch size, so that sums run in the same order.

With half as many, large-v3 on one H200 answers one request at a time 12 % faster, 16 by 3 %, and 64 2.5 % slower.
"""
MAX_TOKENS = 512
"""The most tokens of one launch: each takes a third of a megabyte between the kernels of large-v3."""
CAPABILITY = (9, 0)
"""The oldest compute capability with the copies that the kernel makes."""
_TILE_STATES = 16
_MIN_STAGES, _MAX_STAGES = 4, 8


class CrossAttentionToStates:
    """Cross-attention of all layers to the encoder states in a cache."""

    def __init__(self, cache: KVCache) -> None:
        """Load the kernel.

        Raises:
            CudaError: the kernel does not work here.
        """
        self._cache = cache
        self._n_heads = cache.cross_attention.shape[3]
        self._n_splits = n_splits(states_of(cache).shape[1])
        self._attend = StatesKernel(cache)

    def __call__(self, layer: CrossAttention, query: Tensor, slots: Tensor, n_tokens: int) -> Tensor:
        """Attend to the encoder states of each row's slot.

        Args:
            query: `(rows * n_tokens, width)`, contiguous.
            slots: `(rows,)`.

        Returns:
            `(rows * n_tokens, width)`.
        """
        n_rows = max(1, MAX_TOKENS // n_tokens)
        parts = [
            self._part(layer, own, rows, n_tokens)
            for own, rows in zip(torch.split(query, n_rows * n_tokens), torch.split(slots, n_rows), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _part(self, layer: CrossAttention, query: Tensor, slots: Tensor, n_tokens: int) -> Tensor:
        weight, bias = layer.kv_proj.weight, layer.kv_proj.bias
        queries = queries_of_states(query, weight, self._n_heads)
        shape = (len(query), self._n_splits, self._n_heads)
        partials = query.new_empty((*shape, query.shape[1]))
        stats = torch.empty((*shape, 2), device=query.device, dtype=torch.float32)
        self._attend(queries, slots, n_tokens, partials, stats)
        return values_of_states(partials, stats, weight, bias, slots, self._cache.lengths, n_tokens, SPLIT_STATES)


class _Arguments(ctypes.Structure):
    """`Arguments` of the kernel's source."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("queries", "states", "slots", "lengths", "partials", "stats")),
        ("n_tokens", ctypes.c_int),
        ("n_states", ctypes.c_int),
        ("n_block_splits", ctypes.c_int),
        ("scale", ctypes.c_float),
    ]


class StatesKernel:
    """Attends from some tokens to the encoder states of each row's slot: `kernels/states_attention.cu`."""

    def __init__(self, cache: KVCache) -> None:
        """Compile and load the kernel.

        Raises:
            CudaError: that does not work here.
        """
        require_device(cache.device)
        self._cache = cache
        self._n_heads, self._width = cache.cross_attention.shape[3], states_of(cache).shape[2]
        n_warps = warps(self._width)
        n_stages, shared_bytes = shared_memory(self._width, self._n_heads, max_shared_bytes())
        self._n_splits = n_splits(states_of(cache).shape[1])
        definitions = {
            "D": self._width,
            "HEADS": self._n_heads,
            "SPLITS": self._n_splits,
            "SPLIT_STATES": SPLIT_STATES,
            "WARPS": n_warps,
            "STAGES": n_stages,
            "SHARED_BYTES": shared_bytes,
            "IS_BF16": int(cache.dtype == torch.bfloat16),
        }
        options = [f"-D{name}={value}" for name, value in definitions.items()]
        image = compile_cached(SOURCE.read_text(), "states_attention", options)
        self._n_processors = torch.cuda.get_device_properties(cache.device).multi_processor_count
        self._kernel = Kernel(image, "states_attention", n_threads=32 * n_warps, shared_bytes=shared_bytes)

    def __call__(self, queries: Tensor, slots: Tensor, n_tokens: int, partials: Tensor, stats: Tensor) -> None:
        """Write the weighted means and the softmax of each split.

        Args:
            queries: `(rows * n_tokens, heads, width)`, multiplied by the weights of keys.
            slots: `(rows,)`: the slot of each row.
            partials: `(rows * n_tokens, splits, heads, width)`: the weighted mean of the states of each split. Those of
                splits without states are not written.
            stats: `(rows * n_tokens, splits, heads, 2)` float32: the score whose weight is 1 in a split, in powers of
                two and nearly the largest, and the sum of its weights.
        """
        states = states_of(self._cache)
        tensors = (queries, states, slots, self._cache.lengths, partials, stats)
        scale = LOG2_E / math.sqrt(self._width // self._n_heads)
        n_block = block_splits(len(queries), self._n_splits, self._n_processors)
        pointers = (tensor.data_ptr() for tensor in tensors)
        arguments = _Arguments(*pointers, n_tokens, states.shape[1], n_block, scale)
        self._kernel.launch(arguments, n_blocks=len(queries) * self._n_splits // n_block, attribute=OVERLAPPING)


def states_of(cache: KVCache) -> Tensor:
    """The encoder states in a cache that holds them, `(slots, states, width)`."""
    assert cache.encoder_states is not None
    return cache.encoder_states


def require_device(device: torch.device) -> None:
    """Check that a device can run the kernel.

    Raises:
        CudaError: it cannot.
    """
    found = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if found is None or found < CAPABILITY:
        what = f"{found[0]}.{found[1]}" if found else "no CUDA device"
        raise CudaError(f"expected a GPU of compute capability 9.0 or newer, got {what}")


def n_splits(n_states: int) -> int:
    """Into how many splits the states of a window are divided: a power of two, as Triton asks for."""
    return 1 << (math.ceil(n_states / SPLIT_STATES) - 1).bit_length()


def block_splits(n_entries: int, n_splits: int, n_processors: int) -> int:
    """How many splits each block computes: a power of two, so that all blocks together end the soonest.

    Args:
        n_entries: rows times tokens.
        n_splits: splits of a window, a power of two.
        n_processors: of the GPU; each runs one block at a time.
    """

    def duration(n_block: int) -> float:
        """In splits: to begin and to end takes a block of large-v3 a third of a split on one H200."""
        n_turns = math.ceil(n_entries * n_splits / n_block / n_processors)
        return n_turns * (n_block + 1 / 3)

    return min((1 << power for power in range(n_splits.bit_length())), key=duration)


def warps(width: int) -> int:
    """The warps of a block, each of which has whole blocks of 16 numbers of a state."""
    return 16 if width % 256 == 0 else 8


def shared_memory(width: int, n_heads: int, most_bytes: int) -> tuple[int, int]:
    """The stages of the pipeline, and all shared memory of a block in bytes.

    Raises:
        CudaError: the device has too little.
    """
    heads = 8 * math.ceil(n_heads / 8)
    stage_bytes = _TILE_STATES * (width + 8) * 2 + 8
    # Scores in the place of queries; weights, what they shrink by and the inverses of sums; two tiles and a barrier.
    scores, queries = 2 * heads * warps(width) * (_TILE_STATES + 4) * 4, n_heads * (width + 8) * 2
    fixed = max(scores, queries) + 2 * heads * ((_TILE_STATES + 8) * 2 + 8) + 16
    n_stages = min(_MAX_STAGES, (most_bytes - fixed) // stage_bytes)
    if n_stages < _MIN_STAGES:
        raise CudaError(
            f"expected a GPU with {fixed + _MIN_STAGES * stage_bytes} bytes of shared memory for each block, such as "
            f"an H100, got {most_bytes}"
        )
    return n_stages, fixed + n_stages * stage_bytes
