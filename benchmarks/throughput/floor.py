"""The least time that a request can take on an NVIDIA H200: the encoder's arithmetic and the decoder's memory reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.config import EngineConfig

FLOPS = 690e12
"""Floating-point operations per second that an NVIDIA H200 sustains in bfloat16 products, as measured on one."""
FP8_FLOPS = 1_275e12
"""The same in 8-bit products."""
BYTES_PER_S = 4.43e12
"""Bytes per second that an NVIDIA H200 reads from its memory, as measured on one."""
PROMPT_TOKENS = 4
"""Tokens of a plain prompt."""
ITEM_BYTES = 2
"""Bytes of a weight, a key or a value in 16 bits."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The parts of the arithmetic that the engine does in 8 bits, and what it keeps of encoder states."""

    is_encoder_fp8: bool = False
    """Whether the matrix products over encoder states are in 8 bits. Attention never is."""
    is_cross_int8: bool = False
    """Whether the keys and values of encoder states are kept in 8 bits, with a scale in 16 bits for each head's."""
    keeps_states: bool = False
    """Whether encoder states themselves are kept, in 16 bits, instead of keys and values.

    The limit counts them once for each layer, although those of few windows stay in the GPU's cache.
    """


def precision_of(config: EngineConfig) -> Precision:
    """The precision that a configuration asks for."""
    return Precision(config.encoder_dtype == "fp8", config.cross_cache == "int8", config.cross_cache == "states")


def lower_bound_s(
    model: ModelConfig, concurrency: int, lengths: Sequence[int], precision: Precision = Precision()
) -> float:
    """The least mean seconds of the device for a request; `concurrency` of them share each read of the weights."""
    n_steps = sum(lengths) / len(lengths)
    # The n-th step reads the prompt and the n tokens before its result.
    n_tokens_read = sum(n * (PROMPT_TOKENS + n / 2) for n in lengths) / len(lengths)
    d, layers = model.d_model, model.decoder_layers
    weights = layers * (6 * d * d + 2 * d * model.decoder_ffn_dim) + model.vocab_size * d
    n_bytes = n_steps * (ITEM_BYTES * weights / concurrency + _cross_bytes(model, precision))
    n_bytes += n_tokens_read * ITEM_BYTES * layers * 2 * d
    return encode_s(model, precision) + n_bytes / BYTES_PER_S


def encode_s(model: ModelConfig, precision: Precision = Precision()) -> float:
    """The least seconds of encoding a window of 30 s: its products and the decoder's keys and values of its states."""
    n_states, d = model.max_source_positions, model.d_model
    products = model.encoder_layers * 2 * n_states * (4 * d * d + 2 * d * model.encoder_ffn_dim)
    if not precision.keeps_states:
        products += model.decoder_layers * 2 * n_states * d * 2 * d
    attention = model.encoder_layers * 4 * n_states**2 * d
    convolutions = 2 * 2 * n_states * model.n_mels * 3 * d + 2 * n_states * d * 3 * d
    return products / (FP8_FLOPS if precision.is_encoder_fp8 else FLOPS) + (attention + convolutions) / FLOPS


def _cross_bytes(model: ModelConfig, precision: Precision) -> int:
    """The bytes that a step reads of one window: keys and values of encoder states, or the states in every layer."""
    if precision.keeps_states:
        return model.decoder_layers * model.max_source_positions * model.d_model * ITEM_BYTES
    n_vectors = model.decoder_layers * 2 * model.max_source_positions
    if precision.is_cross_int8:
        return n_vectors * (model.d_model + model.decoder_attention_heads * ITEM_BYTES)
    return n_vectors * model.d_model * ITEM_BYTES
