"""Facts about OpenAI's Whisper that its files and those of other programs do not hold: tokens, languages, defaults.

Source: openai/whisper, whisper/tokenizer.py, whisper/__init__.py and whisper/decoding.py.
"""

import base64
import lzma
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tutti_server.engine.checkpoint.contents import Weight
from tutti_server.engine.checkpoint.tokenizer import Tokenizer
from tutti_server.engine.errors import CheckpointError

LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
).split()
"""Codes of the languages, in the order of their tokens. Vocabularies before large-v3 have all but the last."""

MULTILINGUAL_VOCAB_SIZE = 51_865
"""The smallest vocabulary of OpenAI's multilingual checkpoints."""

N_TIMESTAMPS = 1_501
"""Timestamp tokens, from 0.00 s to 30.00 s."""

VOCABULARIES = Path(__file__).parents[1] / "assets" / "openai-whisper"
"""The folder of OpenAI's vocabularies."""

_MAX_INITIAL_TIMESTAMP_INDEX = 50
"""The latest first timestamp of a window is 1 s."""

_SYMBOLS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *"<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(),
]
"""What is never sampled where it is one token: it begins annotations such as the name of a speaker."""

_NOTES = "♩♪♫♬♭♮♯"
"""What is never sampled even where it is several tokens."""

_ALIGNMENT_HEADS = {
    (4, 6, 80, False): "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4",
    (4, 6, 80, True): "2.2 3.0 3.2 3.3 3.4 3.5",
    (6, 8, 80, False): "3.3 4.7 5.1 5.5 5.7",
    (6, 8, 80, True): "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6",
    (12, 12, 80, False): "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 11.2 11.4",
    (12, 12, 80, True): "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5",
    (24, 16, 80, False): "11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0 20.3 20.9 20.14 "
    "21.12",
    (24, 16, 80, True): "13.15 15.4 15.15 16.1 20.0 23.4",
    # large-v2. The first large model has the same sizes and other heads.
    (32, 20, 80, True): "10.12 13.17 16.11 16.12 16.13 17.15 17.16 18.4 18.11 18.19 19.11 21.2 21.3 22.3 22.9 22.12 "
    "23.5 23.7 23.13 25.5 26.1 26.12 27.15",
    (32, 20, 128, True): "7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6",
    (4, 20, 128, True): "2.4 2.11 3.3 3.6 3.11 3.14",
}
"""`layer.head` of the heads for word times, by decoder layers, heads, mel bands, and whether it is multilingual."""


_MODULES = {
    "token_embedding": "embed_tokens",
    "positional_embedding": "embed_positions.weight",
    "ln_post": "layer_norm",
    "ln": "layer_norm",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    **{
        f"{ours}.{module}": f"{theirs}.{published}"
        for ours, theirs in (("attn", "self_attn"), ("cross_attn", "encoder_attn"))
        for module, published in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("out", "out_proj"))
    },
}
"""transformers' names of the modules that it names in another way."""

_NAME = re.compile(r"(encoder|decoder)\.(blocks\.\d+\.)?(.+?)(\.weight|\.bias)?")


def published_name(name: str) -> str:
    """The name that transformers gives to a weight with one of OpenAI's names. Other names stay as they are."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name
    side, block, module, part = found.groups()
    layer = (block or "").replace("blocks", "layers")
    return f"model.{side}.{layer}{_MODULES.get(module, module)}{part or ''}"


def special_tokens(n_languages: int) -> list[str]:
    """The tokens after those of text, up to the first timestamp."""
    languages = [f"<|{code}|>" for code in LANGUAGES[:n_languages]]
    tasks = ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    return ["<|endoftext|>", "<|startoftranscript|>", *languages, *tasks, "<|notimestamps|>"]


def tokenizer(path: Path, vocab_size: int, texts: Sequence[bytes] = ()) -> Tokenizer:
    """The tokenizer of a vocabulary of this size.

    Args:
        path: the file with the weights.
        vocab_size: all tokens, those of languages and times included.
        texts: the text tokens in the order of their ids; none for those of OpenAI's vocabularies.

    Raises:
        CheckpointError: the size does not fit the text tokens.
    """
    if not texts:
        texts = _vocabulary("multilingual" if vocab_size >= MULTILINGUAL_VOCAB_SIZE else "gpt2")
    n_languages = vocab_size - len(texts) - len(special_tokens(0)) - N_TIMESTAMPS
    if not 0 < n_languages <= len(LANGUAGES):
        fewest = vocab_size - n_languages + 1
        raise CheckpointError(
            f"{path}: expected {fewest} to {fewest + len(LANGUAGES) - 1} tokens, {len(texts)} of them text, got "
            f"{vocab_size}"
        )
    return Tokenizer.from_tokens(texts, special_tokens(n_languages))


def _vocabulary(name: str) -> list[bytes]:
    lines = lzma.decompress((VOCABULARIES / f"{name}.tiktoken.xz").read_bytes()).splitlines()
    return [base64.b64decode(line.partition(b" ")[0]) for line in lines]


def sizes(path: Path, weights: Mapping[str, Weight], encoder_heads: int, decoder_heads: int) -> dict[str, int]:
    """The sizes of the model in a file, as in `config.json`, from the shapes of its weights.

    Raises:
        CheckpointError: a weight is missing.
    """

    def size(name: str, dimension: int) -> int:
        weight = weights.get(f"model.{name}.weight")
        if weight is None or len(weight.shape) <= dimension:
            raise CheckpointError(f"{path}: expected the weights of a Whisper model, got none named {name}")
        return weight.shape[dimension]

    def n_layers(side: str) -> int:
        return len({found[1] for name in weights if (found := re.match(rf"model\.{side}\.layers\.(\d+)\.", name))})

    return {
        "vocab_size": size("decoder.embed_tokens", 0),
        "d_model": size("decoder.embed_tokens", 1),
        "num_mel_bins": size("encoder.conv1", 1),
        "encoder_layers": n_layers("encoder"),
        "encoder_attention_heads": encoder_heads,
        "encoder_ffn_dim": size("encoder.layers.0.fc1", 0),
        "decoder_layers": n_layers("decoder"),
        "decoder_attention_heads": decoder_heads,
        "decoder_ffn_dim": size("decoder.layers.0.fc1", 0),
        "max_source_positions": size("encoder.embed_positions", 0),
        "max_target_positions": size("decoder.embed_positions", 0),
    }


def defaults(config: Mapping[str, int], tokenizer: Tokenizer) -> dict[str, Any]:
    """The decoding defaults of OpenAI's own program, as in `generation_config.json`."""
    is_multilingual = config["vocab_size"] >= MULTILINGUAL_VOCAB_SIZE
    numbers = (config["decoder_layers"], config["decoder_attention_heads"], config["num_mel_bins"])
    heads = _ALIGNMENT_HEADS.get((*numbers, is_multilingual), "")
    return {
        "is_multilingual": is_multilingual,
        "lang_to_id": {f"<|{code}|>": token for code, token in tokenizer.languages.items()},
        "alignment_heads": [[int(number) for number in head.split(".")] for head in heads.split()],
        "suppress_tokens": _never_sampled(tokenizer),
        "begin_suppress_tokens": [*tokenizer.encode(" "), tokenizer.eot],
        "max_initial_timestamp_index": _MAX_INITIAL_TIMESTAMP_INDEX,
    }


def _never_sampled(tokenizer: Tokenizer) -> list[int]:
    tokens = {tokenizer.encode(text)[0] for text in (" -", " '")}
    for text in (each for symbol in [*_SYMBOLS, *_NOTES] for each in (symbol, f" {symbol}")):
        encoded = tokenizer.encode(text)
        if len(encoded) == 1 or text.strip() in _NOTES:
            tokens.add(encoded[0])
    # Before <|nospeech|> comes <|startofprev|>, and before that <|startoflm|>.
    control = [tokenizer.transcribe, tokenizer.translate, tokenizer.sot, tokenizer.previous, tokenizer.previous - 1]
    return sorted({*tokens, *control, tokenizer.no_speech})
