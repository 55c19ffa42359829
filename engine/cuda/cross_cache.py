"""Whether a checkpoint bears another cache of cross-attention than keys and values in 16 bits.

That is, keys and values in 8 bits (`engine/model/kv_cache.py` has the format), or encoder states themselves
(`engine/cuda/states_attention.py`). No window or row depends on another in any of them.
"""

from typing import Any

import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda.fp8 import sound
from tutti_server.engine.cuda.fused_model import FusedDecoder, FusedEncoder, Products
from tutti_server.engine.cuda.nvrtc import CudaError
from tutti_server.engine.cuda.packed_windows import places_of
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.whisper import Whisper

MAX_ERROR = 0.05
"""The largest error that is accepted of logits, relative to those with keys and values in 16 bits: the norm of the
difference, divided by the norm of the logits about their mean."""
N_TOKENS = 16
"""Tokens whose logits are compared."""


def check(checkpoint: Checkpoint, model: Whisper, products: Products[Any], config: EngineConfig) -> float:
    """Compare the logits of `sound` with both caches, and return the relative error.

    Args:
        config: asks for the other cache.

    Raises:
        CheckpointError: the error is too large, because the other cache does not fit this checkpoint; or its kernel
            does not work here.
    """
    features = model.log_mel(sound().to(model.log_mel.device))
    states = FusedEncoder(model.encoder, products)(features, find_runs([checkpoint.model.max_source_positions]))
    name = f"cross_cache {config.cross_cache}"
    other = KVCache(
        checkpoint.model,
        1,
        states.device,
        states.dtype,
        has_int8_cross=config.cross_cache == "int8",
        project_states=model.decoder.cross_keys_values if config.cross_cache == "states" else None,
    )
    expected = _logits(checkpoint, model, states, products, KVCache(checkpoint.model, 1, states.device, states.dtype))
    try:
        found = _logits(checkpoint, model, states, products, other)
    except CudaError as failed:
        raise CheckpointError(f"{name}: {failed}") from failed
    error = float((found - expected).norm() / (expected - expected.mean(1, keepdim=True)).norm())
    # Written this way so that an error of NaN is too large.
    if not error <= MAX_ERROR:
        raise CheckpointError(
            f"{name}: expected logits within {MAX_ERROR:g} of those with keys and values in 16 bits, got {error:.3f}; "
            "use auto with this checkpoint"
        )
    return error


def _logits(checkpoint: Checkpoint, model: Whisper, states: Tensor, products: Products[Any], cache: KVCache) -> Tensor:
    """The logits after the first token and after some others, `(tokens, vocab_size)`, with a cache of one slot."""
    decoder = FusedDecoder(model.decoder, cache)
    slots = torch.zeros(1, dtype=torch.long, device=states.device)
    decoder.write_cross_attention(states, places_of(slots, len(states)), products)
    cache.set_length(0, len(states))
    cache.update()
    tokens = torch.tensor([[checkpoint.tokenizer.sot, *range(N_TOKENS - 1)]], device=states.device)
    half = N_TOKENS // 2
    hidden = [decoder(tokens[:, :half], slots, slots)]
    # The rest one by one: steps have a kernel of their own.
    hidden += [decoder(tokens[:, [at]], torch.full_like(slots, at), slots) for at in range(half, N_TOKENS)]
    return decoder.logits(torch.cat(hidden, 1)[0])
