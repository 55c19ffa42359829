"""Decode steps of few rows, each in one kernel: `kernels/row_step.cu`, which computes what `FusedDecoder` computes.

A step of one row launches four hundred short kernels otherwise, and waits for each. Sums have the order of the other
kernels, so that a row has the same bits; that is compared at start, and the kernel is not used where they differ.
"""

import ctypes
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tutti_server.engine.cuda.fused_model import FusedDecoder
from tutti_server.engine.cuda.kernels.attention import SPLIT_STATES
from tutti_server.engine.cuda.kernels.int8_attention import LOG2_E
from tutti_server.engine.cuda.kernels.linear import N_SPLITS, n_chains
from tutti_server.engine.cuda.nvrtc import TOGETHER, CudaError, Kernel, compile_cached, max_shared_bytes
from tutti_server.engine.model.kv_cache import INT8_MAX, KVCache
from tutti_server.engine.model.whisper import Decoder, DecoderLayer

logger = logging.getLogger(__name__)

ROWS = (1, 2)
"""Numbers of rows for which the kernel was measured to be faster than the others."""
CAPABILITY = (9, 0)
"""The oldest compute capability with the copies that the kernel makes."""
SOURCE = Path(__file__).parent / "kernels" / "row_step.cu"
_HEAD_DIM = 64
_N_THREADS = 288
_MAX_WIDTH = 2048
_MIN_BUFFERS, _MAX_BUFFERS = 5, 8
"""Tiles of weights in shared memory: at least those of one product."""
_N_CROSS_SPLITS = 8


class _Model(ctypes.Structure):
    """`Model` of the kernel's source."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                "layers", "tokens", "positions", "norm", "norm_bias", "own_cache", "cross_cache", "cross_scales",
                "row_tokens", "row_positions", "row_slots", "lengths", "scratch", "barrier", "logits",
            )
        ),
        *(
            (name, ctypes.c_int)
            for name in ("n_layers", "n_cache_slots", "n_positions", "n_states", "n_vocabulary", "n_buffers")
        ),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("width", ctypes.c_float),
    ]  # fmt: skip


def load_row_steps(decoder: Decoder, fused: FusedDecoder, cache: KVCache) -> "dict[int, RowStep]":
    """Load the kernel for the numbers of rows that it serves. To be called before any slot is in use.

    Args:
        fused: the same decoder in the other kernels.
        cache: its first slots are overwritten, and are zeros again afterwards.

    Returns:
        The steps, by number of rows; none where the kernel is not written for the model or does not work here.
    """
    if cache.device.type != "cuda" or not can_run(decoder, cache, torch.cuda.get_device_capability(cache.device)):
        return {}
    steps: dict[int, RowStep] = {}
    try:
        for n_rows in ROWS:
            if n_rows <= cache.padding_slot:
                step = RowStep(decoder, cache, n_rows)
                if not has_same_bits(step, fused, cache):
                    logger.warning(
                        "steps of few rows use many kernels instead of one, because the one adds up in another order "
                        "with this version of Triton"
                    )
                    return {}
                steps[n_rows] = step
    except CudaError as error:
        logger.warning("steps of few rows use many kernels instead of one, which does not work here: %s", error)
    return steps


@torch.inference_mode()
def has_same_bits(step: "RowStep", fused: FusedDecoder, cache: KVCache) -> bool:
    """Whether the kernel gives the logits, keys and values that the other kernels give, over random caches."""
    rows, device = step.n_rows, cache.device
    scales = () if cache.cross_scales is None else cache.cross_scales
    n_positions, n_states = cache.self_attention.shape[4], cache.cross_attention.shape[4]
    generator = torch.Generator(device).manual_seed(0)
    for layer in cache.self_attention:
        layer[:, :rows].normal_(generator=generator)
    for layer in cache.cross_attention:
        if layer.dtype == torch.int8:
            layer[:, :rows].random_(-INT8_MAX, INT8_MAX + 1, generator=generator)
        else:
            layer[:, :rows].normal_(generator=generator)
    for layer in scales:
        layer[:, :rows].uniform_(0.5 / INT8_MAX, 4.0 / INT8_MAX, generator=generator)
    cache.lengths[:rows] = torch.tensor([n_states, n_states // 2][:rows], dtype=torch.int32, device=device)
    slots = torch.arange(rows, device=device)
    positions = [min(at, n_positions - 1) for at in (0, 1, 63, 64, SPLIT_STATES - 1, SPLIT_STATES, n_positions)]
    is_same = True
    for index in range(len(positions)):
        starts = torch.tensor([positions[(index + row) % len(positions)] for row in range(rows)], device=device)
        tokens = (starts * 7919 + slots) % step.n_tokens
        found = step(tokens, starts, slots)
        own = cache.self_attention[:, :, slots, :, starts].clone()
        cache.self_attention[:, :, slots, :, starts] = 0.0
        expected = fused.logits(fused(tokens[:, None], starts, slots)[:, 0])
        is_same = is_same and torch.equal(found, expected)
        is_same = is_same and torch.equal(own, cache.self_attention[:, :, slots, :, starts])
    for part in (cache.self_attention, cache.cross_attention, scales):
        for layer in part:
            layer[:, :rows] = 0
    cache.lengths[:rows] = 0
    return is_same


def can_run(decoder: Decoder, cache: KVCache, capability: tuple[int, int]) -> bool:
    """Whether the kernel is written for a model, a cache and a device."""
    width = decoder.embed_tokens.embedding_dim
    n_states, head_dim = cache.cross_attention.shape[4:]
    return (
        capability >= CAPABILITY
        and cache.dtype in (torch.bfloat16, torch.float16)
        and cache.encoder_states is None
        and width % (64 * N_SPLITS) == 0
        and width <= _MAX_WIDTH
        and head_dim == _HEAD_DIM
        and all(layer.mlp.fc1.out_features == 4 * width for layer in decoder.layers)
        and _N_CROSS_SPLITS // 2 * SPLIT_STATES < n_states <= _N_CROSS_SPLITS * SPLIT_STATES
        and len(decoder.layers) % 2 == 0
    )


class RowStep:
    """Steps of one number of rows."""

    def __init__(self, decoder: Decoder, cache: KVCache, n_rows: int) -> None:
        """Compile and load the kernel.

        Raises:
            CudaError: that does not work here.
        """
        device = cache.device
        width, n_heads = decoder.embed_tokens.embedding_dim, cache.cross_attention.shape[3]
        n_buffers, shared_bytes = _shared_memory(width, n_rows, max_shared_bytes())
        definitions = {
            "D": width,
            "HEADS": n_heads,
            "ROWS": n_rows,
            "SPLITS": _N_CROSS_SPLITS,
            "SPLIT_STATES": SPLIT_STATES,
            "CHAINS": n_chains(width),
            "IS_BF16": int(cache.dtype == torch.bfloat16),
            "INT8_CROSS": int(cache.cross_scales is not None),
        }
        options = [f"-D{name}={value}" for name, value in definitions.items()]
        image = compile_cached(SOURCE.read_text(), "row_step", options)
        self._n_blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self._kernel = Kernel(image, "row_step", n_threads=_N_THREADS, shared_bytes=shared_bytes)
        self.n_rows, self.n_tokens = n_rows, decoder.embed_tokens.num_embeddings
        self._decoder, self._cache, self._n_buffers = decoder, cache, n_buffers
        self._layers = torch.tensor([_pointers(layer) for layer in decoder.layers], device=device)
        self._scratch = torch.full((scratch_bytes(width, n_heads, n_rows),), 255, dtype=torch.uint8, device=device)
        self._barrier = torch.zeros(2, dtype=torch.int32, device=device)

    def __call__(self, tokens: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """Run one new token of each row, and store its keys and values.

        Args:
            tokens: `(rows,)` int64.
            positions: `(rows,)` int64: the position of each token.
            slots: `(rows,)` int64.

        Returns:
            Logits, `(rows, vocab_size)` float32.
        """
        decoder, cache = self._decoder, self._cache
        logits = torch.empty((self.n_rows, self.n_tokens), device=cache.device)
        pointers: tuple[Tensor, ...] = (
            self._layers,
            decoder.embed_tokens.weight,
            decoder.embed_positions.weight,
            decoder.layer_norm.weight,
            decoder.layer_norm.bias,
            cache.self_attention,
            cache.cross_attention,
            # A pointer that the kernel does not use still needs a tensor.
            cache.cross_attention if cache.cross_scales is None else cache.cross_scales,
            tokens,
            positions,
            slots,
            cache.lengths,
            self._scratch,
            self._barrier,
            logits,
        )
        self._kernel.launch(
            _Model(
                *(tensor.data_ptr() for tensor in pointers),
                len(decoder.layers),
                cache.cross_attention.shape[2],
                cache.self_attention.shape[4],
                cache.cross_attention.shape[4],
                self.n_tokens,
                self._n_buffers,
                decoder.layer_norm.eps,
                LOG2_E / _HEAD_DIM**0.5,
                decoder.embed_tokens.embedding_dim,
            ),
            n_blocks=self._n_blocks,
            attribute=TOGETHER,
        )
        return logits


def _pointers(layer: DecoderLayer) -> list[int]:
    """`Layer` of the kernel's source."""
    own, cross, mlp = layer.self_attn, layer.encoder_attn, layer.mlp
    modules: Sequence[nn.LayerNorm | nn.Linear] = (
        layer.self_attn_layer_norm, own.qkv_proj, own.out_proj,
        layer.encoder_attn_layer_norm, cross.q_proj, cross.out_proj,
        layer.final_layer_norm, mlp.fc1, mlp.fc2,
    )  # fmt: skip
    return [tensor.data_ptr() for module in modules for tensor in (module.weight, module.bias)]


def scratch_bytes(width: int, n_heads: int, n_rows: int) -> int:
    """What stages pass to one another through memory; the places are in the kernel's source."""
    in_16_bits = 3 * width + width + width + 4 * width
    sums = N_SPLITS * width
    partials = n_heads * _N_CROSS_SPLITS * (_HEAD_DIM + 2)
    return n_rows * (2 * (2 * in_16_bits + 4 * (2 * sums + partials)) + 4 * sums)


def _shared_memory(width: int, n_rows: int, most_bytes: int) -> tuple[int, int]:
    """Buffers for tiles of weights, and all shared memory of a block in bytes."""
    buffer_bytes = 8 * (width + 8) * 2
    keys_values = 2 * SPLIT_STATES * _HEAD_DIM * 2
    fixed = keys_values + n_rows * (width + 8) * 2 + n_rows * width * 2 + 4 * SPLIT_STATES + 64 + 128
    n_buffers = min(_MAX_BUFFERS, (most_bytes - fixed) // buffer_bytes)
    if n_buffers < _MIN_BUFFERS:
        raise CudaError(
            f"row_step: expected {fixed + _MIN_BUFFERS * buffer_bytes} bytes of shared memory, "
            f"the device has {most_bytes}"
        )
    return n_buffers, fixed + n_buffers * buffer_bytes
