"""Chooses the device, the number of slots and the kernels of a configuration, and builds the CUDA forward pass.

Importing this module needs no Triton: what needs it is imported where it is used.
"""

from typing import TYPE_CHECKING, Any

import torch

from tutti_server.engine.checkpoint.checkpoint import Checkpoint, ModelConfig
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.slot_states import SlotStates
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model import int8
from tutti_server.engine.model.int8 import Int8Part
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.slot_budget import CPU_SLOTS, choose_slots, slot_bytes
from tutti_server.engine.model.whisper import Whisper

if TYPE_CHECKING:
    from tutti_server.engine.cuda.fused_model import Products
    from tutti_server.engine.cuda.graphs import CudaGraphForward

INT8_MIN_SIZE = 384
"""The least `d_model` for which `auto` takes 8 bits on a CPU: that of tiny, the smallest published model."""
FUSED_CAPABILITY = (8, 0)
"""The oldest compute capability that the fused kernels run on."""
FUSED_TILE = 128
"""The tiles of the fused kernels must divide a model's sizes. Those of all published models are multiples of this."""
FUSED_HEADS = (16, 32, 64, 128)
"""The sizes of the decoder's heads that the fused kernels can have. Those of all published models are 64."""


def pick_device_and_dtype(config: EngineConfig) -> tuple[torch.device, torch.dtype]:
    """Return what `auto` means on this machine. Where weights have 8 bits, the type is that of all else.

    Raises:
        CheckpointError: the configuration asks for what this machine does not have.
    """
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise CheckpointError("device cuda: no CUDA device is visible to PyTorch; use cpu or auto")
    device = torch.device("cuda" if has_cuda and config.device != "cpu" else "cpu")
    match config.dtype:
        case "auto":
            return device, torch.bfloat16 if device.type == "cuda" else torch.float32
        case "float16" if device.type == "cpu":
            raise CheckpointError("dtype float16: the CPU runs float32, bfloat16 or int8")
        case "int8" if device.type == "cuda":
            raise CheckpointError("dtype int8: CUDA runs float32, bfloat16 or float16; use device cpu for int8")
        case "int8":
            return device, torch.float32
        case name:
            dtype: torch.dtype = getattr(torch, name)
            return device, dtype


def pick_int8_part(config: EngineConfig, model: ModelConfig, device: torch.device) -> Int8Part:
    """Return which weights have 8 bits.

    Raises:
        CheckpointError: the configuration asks for 8 bits, and this machine does not have the kernels.
    """
    has_kernels = device.type == "cpu" and int8.is_available()
    if config.dtype == "int8" and not has_kernels:
        raise CheckpointError(
            "dtype int8: expected an x86 processor with AVX2 and a PyTorch with FBGEMM, got a machine without; use "
            "float32"
        )
    is_chosen = config.dtype == "int8" or (config.dtype == "auto" and model.d_model >= INT8_MIN_SIZE)
    return int8.best_part() if has_kernels and is_chosen else Int8Part.NOTHING


def pick_n_slots(config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype) -> int:
    """Return how many slots there are; on a GPU as many as asked for, or as fit. To be called with the model loaded.

    Raises:
        CheckpointError: the GPU has no memory for the slots that were asked for.
    """
    if device.type != "cuda":
        return config.n_slots or CPU_SLOTS
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    free_bytes = min(free_bytes, int(config.gpu_share * total_bytes) - torch.cuda.memory_reserved(device))
    each = slot_bytes(model, dtype.itemsize, config.cross_cache)
    return choose_slots(each, config.n_slots, free_bytes, config.gpu_memory_fraction)


def uses_fused_kernels(config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the forward pass is the one of `build_cuda_forward`.

    Raises:
        CheckpointError: the configuration asks for kernels that this device or dtype does not have.
    """
    is_fused = can_fuse(device, dtype, model) and config.kernels != "torch"
    for name in ("encoder_dtype", "cross_cache"):
        value = getattr(config, name)
        if value != "auto" and not is_fused:
            raise CheckpointError(
                f"{name} {value}: expected 16 bits and our own kernels on a CUDA device, got {dtype} and "
                f"kernels {config.kernels} on {device}"
            )
    if config.cross_cache != "auto" and config.kernels == "flashinfer":
        raise CheckpointError(f"cross_cache {config.cross_cache}: expected kernels auto or triton, got flashinfer")
    if config.kernels in ("triton", "flashinfer") and not is_fused:
        raise CheckpointError(f"kernels {config.kernels}: expected 16 bits on a CUDA device, got {dtype} on {device}")
    return is_fused


def can_fuse(device: torch.device, dtype: torch.dtype, model: ModelConfig) -> bool:
    """Return whether the fused kernels can run a model: in 16 bits, on an NVIDIA GPU that is new enough."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    sizes = (model.d_model, model.encoder_ffn_dim, model.decoder_ffn_dim)
    is_new_enough = torch.cuda.get_device_capability(device) >= FUSED_CAPABILITY
    has_tiles = all(size % FUSED_TILE == 0 for size in sizes)
    return is_new_enough and has_tiles and model.d_model // model.decoder_attention_heads in FUSED_HEADS


def build_cuda_forward(
    checkpoint: Checkpoint,
    config: EngineConfig,
    model: Whisper,
    cache: KVCache,
    states: SlotStates,
) -> "CudaGraphForward":
    """Build the forward pass of fused kernels and CUDA graphs.

    Args:
        cache: its last slot belongs to no window: it fills up the rows of a graph.

    Raises:
        CheckpointError: the encoder or the cache is to have another format than 16 bits, and the device or the
            checkpoint does not allow it.
    """
    # Triton comes only with PyTorch for CUDA.
    from tutti_server.engine.cuda.fused_sampling import FusedSampler
    from tutti_server.engine.cuda.graphs import CudaGraphForward

    products = _encoder_products(checkpoint, config, model)
    if config.cross_cache != "auto":
        from tutti_server.engine.cuda import cross_cache

        cross_cache.check(checkpoint, model, config.cross_cache)
    return CudaGraphForward(
        model,
        cache,
        states.tokens,
        states.positions,
        FusedSampler(checkpoint, states.rule_state, states.tokens, states.positions),
        products,
        config,
    )


def _encoder_products(checkpoint: Checkpoint, config: EngineConfig, model: Whisper) -> "Products[Any]":
    """Return the matrix products of the encoder: in 16 bits, or in 8 bits, whose error is checked."""
    from tutti_server.engine.cuda import fp8
    from tutti_server.engine.cuda.fused_model import FusedEncoder, HalfProducts

    half = HalfProducts(model.encoder)
    if config.encoder_dtype != "fp8":
        return half
    device = model.log_mel.device
    fp8.require_device(device)
    features = model.log_mel(fp8.sound().to(device))
    runs = find_runs([checkpoint.model.max_source_positions])
    expected = FusedEncoder(model.encoder, half)(features, runs)
    products = fp8.Fp8Products(model)
    fp8.check(FusedEncoder(model.encoder, products)(features, runs), expected)
    return products
