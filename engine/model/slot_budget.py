"""Computes how many slots, and so how many sequences at the same time, fit into the device's memory."""

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.config import CrossCache
from tutti_server.engine.errors import CheckpointError

CPU_SLOTS = 32
"""Slots on a CPU by default. A slot there takes no memory until it is used."""
MAX_SLOTS = 256
"""The most slots that are chosen by default. Decode steps gain nothing from more."""
SCRATCH_BYTES = 3 << 30
"""GPU memory kept free for the encoder and the CUDA graphs, in bytes. Large-v3 with 16 windows needs about 2 GiB."""
_GIB = 1 << 30


def slot_bytes(model: ModelConfig, itemsize: int, cross: CrossCache = "auto") -> int:
    """Bytes of one slot: the keys and values of all its tokens, and what is kept of a full window's encoder states.

    Args:
        itemsize: bytes of one number of the caches.
        cross: what is kept of encoder states: see `EngineConfig.cross_cache`. In 8 bits, keys and values have a scale
            for each head.
    """
    vector = model.d_model * itemsize
    own = 2 * model.decoder_layers * model.max_target_positions * vector
    if cross == "states":
        return own + model.max_source_positions * vector
    key = model.d_model + model.decoder_attention_heads * itemsize if cross == "int8" else vector
    return own + 2 * model.decoder_layers * model.max_source_positions * key


def choose_slots(each: int, n_slots: int | None, free_bytes: int, fraction: float) -> int:
    """Choose how many slots a GPU gets.

    Args:
        n_slots: the number that the configuration asks for; `None` for as many as fit.
        free_bytes: free memory of the device that the engine may take, after the model was loaded.
        fraction: the part of this memory that slots and scratch may use.

    Raises:
        CheckpointError: the slots that were asked for do not fit, or not even one fits.
    """
    fit = int((free_bytes * fraction - SCRATCH_BYTES) // each)
    if n_slots is None:
        n_slots = min(max(fit, 1), MAX_SLOTS)
    if n_slots > fit:
        raise CheckpointError(
            f"slots: expected at most {max(fit, 0)}, got {n_slots} of {each / _GIB:.2f} GiB each: with "
            f"{SCRATCH_BYTES / _GIB:.0f} GiB of scratch memory, they do not fit into {fraction:g} of the "
            f"{max(free_bytes, 0) / _GIB:.1f} GiB of the GPU that the engine may take; "
            "free memory, start fewer engines, set fewer slots, or use a smaller model"
        )
    return n_slots
