"""Whether a checkpoint bears another cache of cross-attention than keys and values in 16 bits.

That is, keys and values in 8 bits (`engine/model/kv_cache.py` has the format), or encoder states themselves
(`engine/cuda/states_attention.py`). No window or row depends on another in any of them.

What is compared is each layer's attention by itself. Logits tell nothing: by the last layer a difference in the last of
16 bits has grown as large as that of a format.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.config import CrossCache
from tutti_server.engine.cuda.fp8 import sound
from tutti_server.engine.cuda.fused_model import FusedDecoder, FusedEncoder, HalfProducts
from tutti_server.engine.cuda.nvrtc import CudaError
from tutti_server.engine.cuda.packed_windows import places_of
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import find_runs
from tutti_server.engine.model.whisper import Whisper

MAX_ERROR = 0.05
"""The largest error that is accepted of what a layer's cross-attention adds: the norm of the difference, divided by
the norm of what it adds with keys and values in 16 bits.

With Whisper base 8 bits have 0.003. Where single dimensions were made so large that it was 0.04, the probabilities of
tokens changed as much as by 16 bits in place of 32; at 0.17 nearly all most likely tokens were the same, at 1.6 half.
"""
N_TOKENS = 16
"""Tokens that attend."""


@torch.inference_mode()
def check(checkpoint: Checkpoint, model: Whisper, kept: CrossCache) -> float:
    """Compare cross-attention to `sound` with both caches, and return the largest relative error of a layer.

    Args:
        kept: the other cache: `int8` or `states`.

    Raises:
        CheckpointError: the error is too large, because the other cache does not fit this checkpoint; or its kernel
            does not work here.
    """
    features = model.log_mel(sound().to(model.log_mel.device))
    products = HalfProducts(model.encoder)
    states = FusedEncoder(model.encoder, products)(features, find_runs([checkpoint.model.max_source_positions]))
    name = f"cross_cache {kept}"
    other = KVCache(
        checkpoint.model,
        1,
        states.device,
        states.dtype,
        has_int8_cross=kept == "int8",
        project_states=model.decoder.cross_keys_values if kept == "states" else None,
    )
    expected = _added_by_layers(model, states, products, KVCache(checkpoint.model, 1, states.device, states.dtype))
    try:
        found = _added_by_layers(model, states, products, other)
    except CudaError as failed:
        raise CheckpointError(f"{name}: {failed}") from failed
    error = float(((found - expected).norm(dim=(1, 2)) / expected.norm(dim=(1, 2))).max())
    # Written this way so that an error of NaN is too large.
    if not error <= MAX_ERROR:
        raise CheckpointError(
            f"{name}: expected each layer's attention within {MAX_ERROR:g} of that to keys and values in 16 bits, got "
            f"{error:.3f}; use auto with this checkpoint"
        )
    return error


def _added_by_layers(model: Whisper, states: Tensor, products: HalfProducts, cache: KVCache) -> Tensor:
    """What each layer's cross-attention adds for random tokens, `(layers, tokens, d_model)` float32."""
    decoder = FusedDecoder(model.decoder, cache)
    slots = torch.zeros(1, dtype=torch.long, device=states.device)
    decoder.write_cross_attention(states, places_of(slots, len(states)), products)
    cache.set_length(0, len(states))
    cache.update()
    generator = torch.Generator(states.device).manual_seed(0)
    half = N_TOKENS // 2
    added = []
    for index, layer in enumerate(model.decoder.layers):
        norm, cross = layer.encoder_attn_layer_norm, layer.encoder_attn
        x = torch.randn((N_TOKENS, states.shape[1]), generator=generator, device=states.device).to(states.dtype)
        queries = cross.q_proj(F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps))
        heads = [decoder.attend_to_states(index, cross, queries[:half], slots, half)]
        # The rest one by one: steps have a kernel of their own.
        heads += [decoder.attend_to_states(index, cross, queries[[at]], slots, 1) for at in range(half, N_TOKENS)]
        added.append(F.linear(torch.cat(heads), cross.out_proj.weight).float())
    return torch.stack(added)
