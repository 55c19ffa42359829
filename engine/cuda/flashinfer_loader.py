"""Decides whether FlashInfer computes the encoder's attention over windows, and loads it where it does."""

import logging
from typing import TYPE_CHECKING

import torch

from engine.config import Kernels
from engine.errors import CheckpointError
from engine.model.kv_cache import KVCache
from engine.model.whisper import Whisper

if TYPE_CHECKING:
    from engine.cuda.flashinfer_attention import FlashInfer

logger = logging.getLogger(__name__)

FLASHINFER_CAPABILITY = (9, 0)
"""The compute capability on which FlashInfer's attention over full windows was measured to be faster than cuDNN's."""


def load_flashinfer(model: Whisper, cache: KVCache, kernels: Kernels) -> "FlashInfer | None":
    """Load and compile FlashInfer's attention.

    Args:
        kernels: `flashinfer` requires it; `auto` uses it where it is faster and available; others do not use it.

    Returns:
        `None` if cuDNN computes the attention instead.

    Raises:
        CheckpointError: the configuration requires FlashInfer, but it is not installed or does not work here.
    """
    is_required = kernels == "flashinfer"
    if not is_required and not (kernels == "auto" and _is_faster_on(cache.device)):
        return None
    try:
        from engine.cuda.flashinfer_attention import FlashInfer

        flashinfer = FlashInfer(model, cache)
        logger.info("attention over windows uses FlashInfer, which compiles for a minute or two at the first start")
        flashinfer.compile()
        return flashinfer
    except ImportError as error:
        if is_required:
            raise CheckpointError(
                f"kernels flashinfer: expected the package flashinfer, which the extra cuda installs, got: {error}"
            ) from error
        logger.info(
            "attention over windows uses cuDNN; FlashInfer would be faster, and the extra cuda installs it: %s", error
        )
    except Exception as error:
        # The compiler can fail in many ways, and cuDNN computes the same attention.
        if is_required:
            raise CheckpointError(f"kernels flashinfer: expected it to work on this machine, got: {error}") from error
        logger.warning("attention over windows uses cuDNN, because FlashInfer does not work here: %s", error)
    return None


def _is_faster_on(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) == FLASHINFER_CAPABILITY
