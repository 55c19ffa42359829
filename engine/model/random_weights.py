"""Checkpoints of the published sizes with random weights, such as `random:large-v3`.

`random:large-v3-adapted` encodes windows cut to their audio, as models do that `tutti adapt` has trained.

They measure speed where no trained weights are at hand.
"""

from itertools import islice, product
from string import ascii_lowercase

import torch
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn

from tutti_server.engine.checkpoint.checkpoint import (
    ADAPTED_AUDIO_CONTEXT,
    Checkpoint,
    GenerationConfig,
    ModelConfig,
    read_checkpoint,
)
from tutti_server.engine.checkpoint.contents import Weight
from tutti_server.engine.checkpoint.openai import LANGUAGES, N_TIMESTAMPS, special_tokens
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.whisper import Whisper

PREFIX = "random:"
"""The names of these checkpoints start with it."""
ADAPTED = "-adapted"
"""The end of the names of checkpoints whose windows are cut to their audio."""
_N_TEXT_TOKENS = 50_257
_WEIGHT_STD = 0.02
"""Standard deviation of the weights."""
_POSITION_STD = 0.3
"""Standard deviation of the position embeddings, before it is multiplied by the root of the number of decoder layers. A
position must count for more than the token and the audio; otherwise all positions give the same few words."""
_LOGIT_SCALE = 30.0
"""Weight of the last layer norm. It spreads the logits as far as a trained model's, so that no text has a low
probability."""
_END_POSITION, _END_PERIOD = 31, 32
"""A sequence ends at this position, and one period later each time: after 28 tokens with a plain prompt, and at most 32
tokens after a long prompt."""
_END_SCALE = 1_000.0
"""Scale of the embedding that ends a sequence. It outweighs all that 32 layers add."""


def _sizes(d_model: int, layers: int, n_mels: int = 80, decoder_layers: int | None = None) -> ModelConfig:
    heads, ffn_dim = d_model // 64, 4 * d_model
    return ModelConfig(
        d_model=d_model,
        n_mels=n_mels,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=ffn_dim,
        decoder_layers=decoder_layers or layers,
        decoder_attention_heads=heads,
        decoder_ffn_dim=ffn_dim,
        vocab_size=51_866,
        max_source_positions=1_500,
        max_target_positions=448,
    )


SIZES = {
    "tiny": _sizes(384, 4),
    "base": _sizes(512, 6),
    "small": _sizes(768, 12),
    "medium": _sizes(1024, 24),
    "large-v3": _sizes(1280, 32, n_mels=128),
    "turbo": _sizes(1280, 32, n_mels=128, decoder_layers=4),
}
"""Sizes by published name. All have the vocabulary of large-v3, which has one language more than earlier ones."""


def open_checkpoint(model: str) -> Checkpoint:
    """Read the checkpoint of a model, or make one of random weights; see `read_checkpoint` for the errors."""
    return random_checkpoint(model) if model.startswith(PREFIX) else read_checkpoint(model)


def random_checkpoint(name: str) -> Checkpoint:
    """Make the checkpoint `random:SIZE` or `random:SIZE-adapted`, which has no folder.

    Raises:
        CheckpointError: the size is unknown.
    """
    size = name.removeprefix(PREFIX).removesuffix(ADAPTED)
    if size not in SIZES:
        raise CheckpointError(
            f"{name}: expected {PREFIX} and one of {', '.join(SIZES)}, or it and {ADAPTED}; got {size!r}"
        )
    model = SIZES[size]
    tokenizer = Tokenizer(vocabulary())
    languages = {code: tokenizer.sot + 1 + index for index, code in enumerate(LANGUAGES)}
    layers = range(model.decoder_layers // 2, model.decoder_layers)
    generation = GenerationConfig(
        is_multilingual=True,
        languages=languages,
        suppress_tokens=tuple(range(tokenizer.sot, tokenizer.first_timestamp - 1)),
        begin_suppress_tokens=(tokenizer.eot,),
        max_initial_timestamp_index=50,
        alignment_heads=tuple((layer, head) for layer in layers for head in range(model.decoder_attention_heads)),
        audio_context=ADAPTED_AUDIO_CONTEXT if name.endswith(ADAPTED) else None,
    )
    return Checkpoint(
        name=name, path=None, model=model, generation=generation, tokenizer=tokenizer, weights=dict[str, Weight]
    )


@torch.inference_mode()
def fill(model: Whisper) -> None:
    """Set random weights, biases of 0 and layer norms of 1. The weights are always the same on one kind of device."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=_WEIGHT_STD, generator=generator)
        else:
            parameter.zero_()
    decoder = model.decoder
    decoder.embed_positions.weight.mul_(_POSITION_STD / _WEIGHT_STD * len(decoder.layers) ** 0.5)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(1.0)


@torch.inference_mode()
def shape_output(model: Whisper, tokenizer: Tokenizer) -> None:
    """Change random weights so that they write text like a trained model: some likely words, then the end.

    A sequence ends at position 31, 63 and so on. Its only timestamp is 0.00, at the start.
    """
    decoder = model.decoder
    decoder.layer_norm.weight.fill_(_LOGIT_SCALE)
    decoder.embed_tokens.weight[tokenizer.first_timestamp :] = 0.0
    decoder.embed_positions.weight[_END_POSITION::_END_PERIOD] = _END_SCALE * decoder.embed_tokens.weight[tokenizer.eot]


def vocabulary() -> Backend:
    """A vocabulary of bytes, made-up words, and the special tokens of large-v3 at their ids there."""
    alphabet = sorted(ByteLevel.alphabet())
    made_up = ("Ġ" + "".join(letters) for length in (2, 3, 4) for letters in product(ascii_lowercase, repeat=length))
    words = alphabet + list(islice(made_up, _N_TEXT_TOKENS - len(alphabet)))
    backend = Backend(BPE({word: index for index, word in enumerate(words)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(special_tokens(len(LANGUAGES)))
    backend.add_tokens([AddedToken(f"<|{index * 0.02:.2f}|>", normalized=False) for index in range(N_TIMESTAMPS)])
    return backend


@torch.inference_mode()
def let_go_on(model: Whisper) -> None:
    """Let sequences of random weights go on past the positions at which they end, up to a request's `max_tokens`."""
    ends = slice(_END_POSITION, None, _END_PERIOD)
    weight = model.decoder.embed_positions.weight.data
    weight[ends] = weight[_END_POSITION - 1 :: _END_PERIOD][: len(weight[ends])]
