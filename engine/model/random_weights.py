"""Checkpoints of the published sizes with random weights, `random:large-v3`: to measure speed where there are none."""

from itertools import islice, product
from string import ascii_lowercase

import torch
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn

from engine.checkpoint.checkpoint import Checkpoint, GenerationConfig, ModelConfig
from engine.checkpoint.tokenizer import Tokenizer
from engine.errors import CheckpointError
from engine.model.whisper import Whisper

PREFIX = "random:"
_N_TEXT = 50_257
_N_TIMES = 1_501
_STD = 0.02
_PLACES_STD = 0.3
"""Of the embeddings of positions, for each root of the decoder's layers: what a place adds outweighs what the token and
the audio do, or all places would say the same few words."""
_SURENESS = 30.0
"""How far apart logits lie: as a trained model's, so that no text is doubted."""
_END_AT, _END_EVERY = 31, 32
"""Positions at which sequences end: after 28 tokens of a plain prompt, and in every 32 behind a long one."""
_END_SCALE = 1_000.0
"""Makes the end outweigh all that 32 layers add."""
_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
).split()
"""Source: openai/whisper, whisper/tokenizer.py, in the order of their tokens."""


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
"""By published name. All have large-v3's vocabulary, which has one language more than those before."""


def random_checkpoint(name: str) -> Checkpoint:
    """What `random:SIZE` stands for; it has no folder.

    Raises:
        CheckpointError: there is no such size.
    """
    size = name.removeprefix(PREFIX)
    if size not in SIZES:
        raise CheckpointError(f"{name}: expected {PREFIX} and one of {', '.join(SIZES)}")
    model = SIZES[size]
    tokenizer = Tokenizer(_vocabulary())
    languages = {code: tokenizer.sot + 1 + index for index, code in enumerate(_LANGUAGES)}
    layers = range(model.decoder_layers // 2, model.decoder_layers)
    generation = GenerationConfig(
        is_multilingual=True,
        languages=languages,
        suppress_tokens=tuple(range(tokenizer.sot, tokenizer.first_timestamp - 1)),
        begin_suppress_tokens=(tokenizer.eot,),
        max_initial_timestamp_index=50,
        alignment_heads=tuple((layer, head) for layer in layers for head in range(model.decoder_attention_heads)),
    )
    return Checkpoint(name, None, model, generation, tokenizer)


@torch.inference_mode()
def fill(model: Whisper) -> None:
    """Random weights, the same every time on the same kind of device; biases 0, norms 1."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=_STD, generator=generator)
        else:
            parameter.zero_()
    decoder = model.decoder
    decoder.embed_positions.weight.mul_(_PLACES_STD / _STD * len(decoder.layers) ** 0.5)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(1.0)


@torch.inference_mode()
def shape_output(model: Whisper, tokenizer: Tokenizer) -> None:
    """Have filled weights say what a trained model might: some words, of which it is sure, and then the end.

    A sequence ends where it comes to position 31, 63 and so on; its only timestamp is 0.00, at the begin.
    """
    decoder = model.decoder
    decoder.layer_norm.weight.fill_(_SURENESS)
    decoder.embed_tokens.weight[tokenizer.first_timestamp :] = 0.0
    decoder.embed_positions.weight[_END_AT::_END_EVERY] = _END_SCALE * decoder.embed_tokens.weight[tokenizer.eot]


def _vocabulary() -> Backend:
    """Bytes, made-up words, then the special tokens of large-v3 where that has them."""
    alphabet = sorted(ByteLevel.alphabet())
    made_up = ("Ġ" + "".join(letters) for length in (2, 3, 4) for letters in product(ascii_lowercase, repeat=length))
    words = alphabet + list(islice(made_up, _N_TEXT - len(alphabet)))
    backend = Backend(BPE({word: index for index, word in enumerate(words)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    specials = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in _LANGUAGES)]
    specials += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    backend.add_special_tokens([*specials, "<|nospeech|>", "<|notimestamps|>"])
    backend.add_tokens([AddedToken(f"<|{index * 0.02:.2f}|>", normalized=False) for index in range(_N_TIMES)])
    return backend
