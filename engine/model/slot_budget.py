"""How many sequences the device's memory holds at the same time."""

from engine.checkpoint.checkpoint import ModelConfig
from engine.errors import CheckpointError

CPU_SLOTS = 32
"""On a CPU memory is only taken once used."""
MAX_SLOTS = 256
"""More than decode steps profit from."""
SCRATCH_BYTES = 3 << 30
"""For what the encoder and the graphs hold while they work; large-v3 with sixteen windows takes about 2 GiB."""
_GIB = 1 << 30


def slot_bytes(model: ModelConfig, itemsize: int) -> int:
    """Keys and values of one slot: of all its tokens and of a full window's encoder states."""
    positions = model.max_target_positions + model.max_source_positions
    return 2 * model.decoder_layers * positions * model.d_model * itemsize


def choose_slots(model: ModelConfig, itemsize: int, n_slots: int | None, free_bytes: int, fraction: float) -> int:
    """The slots asked for, or as many as fit.

    Args:
        free_bytes: of the device, once the model lies there.
        fraction: how much of it may be taken.

    Raises:
        CheckpointError: they do not fit.
    """
    each = slot_bytes(model, itemsize)
    fit = int((free_bytes * fraction - SCRATCH_BYTES) // each)
    if n_slots is None:
        n_slots = min(max(fit, 1), MAX_SLOTS)
    if n_slots > fit:
        raise CheckpointError(
            f"slots: {n_slots} of {each / _GIB:.2f} GiB each, and {SCRATCH_BYTES / _GIB:.0f} GiB to work in, do not "
            f"fit into {fraction:g} of the {free_bytes / _GIB:.1f} GiB that are free on the GPU; expected at most "
            f"{max(fit, 0)}: free memory, ask for fewer slots, or take a smaller model"
        )
    return n_slots
