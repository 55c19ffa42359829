"""Loads FlashInfer where the configuration asks for it."""

import logging
from typing import TYPE_CHECKING

from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.whisper import Whisper

if TYPE_CHECKING:
    from tutti_server.engine.cuda.flashinfer_attention import FlashInfer

logger = logging.getLogger(__name__)


def load_flashinfer(model: Whisper, cache: KVCache) -> "FlashInfer":
    """Load and compile FlashInfer's attention.

    Raises:
        CheckpointError: FlashInfer is not installed or does not work here.
    """
    try:
        from tutti_server.engine.cuda.flashinfer_attention import FlashInfer

        flashinfer = FlashInfer(model, cache)
        logger.info("attention uses FlashInfer, which compiles for a minute or two at the first start")
        flashinfer.compile()
        return flashinfer
    except ImportError as error:
        raise CheckpointError(
            f"kernels flashinfer: expected the package flashinfer, which the extra cuda installs, got: {error}"
        ) from error
    except Exception as error:
        # The compiler can fail in many ways.
        raise CheckpointError(f"kernels flashinfer: expected it to work on this machine, got: {error}") from error
