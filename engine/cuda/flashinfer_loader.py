"""Decides whether FlashInfer computes the encoder's attention over windows, and loads it where it does."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.model.kv_cache import KVCache
from engine.model.whisper import Whisper

if TYPE_CHECKING:
    from engine.cuda.flashinfer_attention import FlashInfer

logger = logging.getLogger(__name__)

FLASHINFER_CAPABILITY = (9, 0)
"""The compute capability on which FlashInfer's attention over full windows was measured to be faster than cuDNN's."""


_SWITCH = "FLASHINFER_DISABLE_JIT"
"""The variable of the environment with which FlashInfer compiles nothing. It reads it when it loads a kernel."""


def load_flashinfer(model: Whisper, cache: KVCache, config: EngineConfig) -> "FlashInfer | None":
    """Load FlashInfer's attention, and compile it where the configuration allows that.

    Args:
        config: its `kernels` are `flashinfer`, which requires it; `auto`, which uses it where it is faster, available,
            and compiled or allowed to be; or others, which do not use it.

    Returns:
        `None` if cuDNN computes the attention instead.

    Raises:
        CheckpointError: the configuration requires FlashInfer, but it is not installed or does not work here.
    """
    is_required = config.kernels == "flashinfer"
    if not is_required and not (config.kernels == "auto" and _is_faster_on(cache.device)):
        return None
    try:
        from engine.cuda.flashinfer_attention import FlashInfer

        flashinfer = FlashInfer(model, cache)
        if not _is_compiled(flashinfer):
            if not (is_required or config.compiles_flashinfer):
                logger.warning(
                    "attention over windows uses cuDNN, because FlashInfer, which is faster, is not compiled on this "
                    "machine yet: the command `tutti warm` compiles it"
                )
                return None
            logger.info("FlashInfer's attention over windows is compiled, which takes a minute or two")
        flashinfer.compile()
        logger.info("attention over windows uses FlashInfer")
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


def _is_compiled(flashinfer: "FlashInfer") -> bool:
    """Return whether FlashInfer's attention over windows needs no compiler, because it was compiled before."""
    from flashinfer.jit import MissingJITCacheError

    with _compiler_switched_off():
        try:
            flashinfer.compile()
        except MissingJITCacheError as error:
            return error.spec is not None and bool(error.spec.is_compiled)
    return True


@contextmanager
def _compiler_switched_off() -> Iterator[None]:
    """Let FlashInfer raise `MissingJITCacheError` meanwhile where it would compile, or use what it compiled before."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before


def _is_faster_on(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) == FLASHINFER_CAPABILITY
