"""The encoder's attention over windows by our own kernel for Hopper GPUs, and the decision where it is used."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tutti_server.engine.model.attention import encoder_attention
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import Run, find_runs

if TYPE_CHECKING:
    from tutti_server.engine.cuda.fused_model import Attend, AttendIn

logger = logging.getLogger(__name__)

CAPABILITY = (9, 0)
"""The compute capability that the kernel is written for."""
MAX_ERROR = 0.02
"""The largest error of the trial that is accepted: the norm of the difference from PyTorch's attention, divided by the
norm of that. Rounding to 16 bits makes it 0.002."""
_TRIAL_STATES = 300
"""Encoder states of the windows of the trial: some blocks of keys, the last of them not full."""


def attend_in(runs: Sequence[Run]) -> "Attend | None":
    """The attention over windows in our own kernel; `None` if windows are shorter than it allows."""
    from tutti_server.engine.cuda.kernels.window_attention import BLOCK_KEYS, attend_to_windows

    if any(run.n_states <= BLOCK_KEYS for run in runs):
        return None

    def attend(queries_keys_values: Tensor) -> Tensor:
        n_states, _, n_heads, head_dim = queries_keys_values.shape
        out = queries_keys_values.new_empty((n_states, n_heads * head_dim))
        for run in runs:
            part = slice(run.start, run.start + run.n_windows * run.n_states)
            attend_to_windows(queries_keys_values[part], out[part], run.n_states)
        return out

    return attend


def check(n_heads: int, head_dim: int, device: torch.device, dtype: torch.dtype) -> None:
    """Compile the kernel, and compare it with PyTorch's attention.

    Raises:
        Exception: whatever the compiler raises, or that the results differ.
    """
    runs = find_runs([_TRIAL_STATES] * 2)
    generator = torch.Generator(device).manual_seed(0)
    shape = (2 * _TRIAL_STATES, 3, n_heads, head_dim)
    trial = torch.randn(shape, device=device, generator=generator).to(dtype)
    attend = attend_in(runs)
    assert attend
    found, expected = attend(trial).float(), encoder_attention(trial, runs).float()
    error = float((found - expected).norm() / expected.norm())
    # Written this way so that an error of NaN is too large.
    if not error <= MAX_ERROR:
        raise RuntimeError(f"expected the attention of PyTorch within {MAX_ERROR:g}, got {error:.3f}")


def load_hopper_attention(cache: KVCache) -> "AttendIn | None":
    """Compile our attention over windows where it is faster than cuDNN's.

    Returns:
        `None` if PyTorch computes the attention instead, with cuDNN.
    """
    n_heads, head_dim = cache.cross_attention.shape[3], cache.cross_attention.shape[5]
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(cache.device) != CAPABILITY:
        return None
    try:
        # Gluon is a part of Triton that changes between versions, and cuDNN computes the same attention.
        check(n_heads, head_dim, cache.device, cache.dtype)
    except Exception as error:
        logger.warning("attention over windows uses cuDNN, because our own kernel does not work here: %s", error)
        return None
    return attend_in
