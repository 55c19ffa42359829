"""Small random Whisper checkpoints, saved by transformers, with vocabularies of their own."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.model.weights import load_model

WEIGHT_STD = 0.2
"""Large enough that the text depends on the audio and that no two tokens come close."""
N_TIMES = 1501


@dataclass(frozen=True)
class Shape:
    """What a random checkpoint is like."""

    name: str
    languages: tuple[str, ...] = ("en", "de", "zh")
    is_multilingual: bool = True
    no_speech: str = "<|nospeech|>"
    n_mels: int = 80
    d_model: int = 64
    encoder_layers: int = 2
    decoder_layers: int = 2
    heads: int = 2
    max_target_positions: int = 448
    suppress: tuple[int, ...] | None = (1, 2, 7)
    begin_suppress: tuple[int, ...] | None = (220,)
    suppress_end_at_begin: bool = True
    """Where there is a list of what may not come first, the end is on it."""
    max_initial_timestamp_index: int | None = 50
    alignment_heads: tuple[tuple[int, int], ...] | None = None


SHAPES = (
    Shape("multilingual-80-mels"),
    Shape("multilingual-128-mels", n_mels=128, d_model=96, encoder_layers=1, decoder_layers=3, heads=3),
    Shape("english-only", is_multilingual=False, no_speech="<|nocaptions|>", decoder_layers=1),
    Shape(
        "few-positions", max_target_positions=40, suppress=None, begin_suppress=None, max_initial_timestamp_index=None
    ),
)


def vary(shape: Shape, rng: Random) -> Shape:
    """The same shape with other lists of what is never sampled and not first, another first time, other heads."""
    tokenizer = make_tokenizer(shape)
    ids: Any = tokenizer.token_to_id
    text, n_tokens = range(256), tokenizer.get_vocab_size()
    control = range(ids("<|startoftranscript|>"), n_tokens - N_TIMES)
    times = range(n_tokens - N_TIMES + 2, n_tokens)  # without the first two: something must be left to begin with
    suppress = rng.choice(
        [
            None,
            (),
            tuple(control),
            (*rng.sample(text, 40), *control),
            tuple(rng.sample(text, 200)),
            (*rng.sample(text, 20), *rng.sample(times, 700)),
        ]
    )
    heads = [(layer, head) for layer in range(shape.decoder_layers) for head in range(shape.heads)]
    return replace(
        shape,
        suppress=suppress,
        begin_suppress=rng.choice([None, (), (220,), (*rng.sample(text, 100), *rng.sample(times, 40))]),
        suppress_end_at_begin=rng.random() < 0.5,
        max_initial_timestamp_index=rng.choice([None, 0, 1, 50, 1500]),
        alignment_heads=rng.choice([None, tuple(rng.sample(heads, rng.randint(1, len(heads))))]),
    )


def make_tokenizer(shape: Shape) -> Tokenizer:
    """Bytes as tokens, three merges, then Whisper's special tokens in their order."""
    alphabet = sorted(ByteLevel.alphabet())
    merges = [("t", "h"), ("Ġ", "th"), ("Ġth", "e")]
    words = alphabet + [left + right for left, right in merges]
    backend = Tokenizer(BPE({word: index for index, word in enumerate(words)}, merges))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    specials = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in shape.languages)]
    specials += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    backend.add_special_tokens([*specials, shape.no_speech, "<|notimestamps|>"])
    backend.add_tokens([AddedToken(f"<|{index * 0.02:.2f}|>", normalized=False) for index in range(N_TIMES)])
    return backend


def make_checkpoint(folder: Path, shape: Shape, seed: int = 0, tokenizer: Tokenizer | None = None) -> Path:
    """Save a checkpoint of this shape and return its folder. It has a tokenizer of the shape, or another one."""
    tokenizer = tokenizer or make_tokenizer(shape)
    ids: Any = tokenizer.token_to_id
    eot, sot = ids("<|endoftext|>"), ids("<|startoftranscript|>")
    begin_suppress = None if shape.begin_suppress is None else list(shape.begin_suppress)
    if begin_suppress is not None and shape.suppress_end_at_begin:
        begin_suppress.append(eot)
    config = WhisperConfig(
        vocab_size=ids("<|notimestamps|>") + 1 + N_TIMES,
        num_mel_bins=shape.n_mels,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=2 * shape.d_model,
        decoder_ffn_dim=2 * shape.d_model,
        max_target_positions=shape.max_target_positions,
        bos_token_id=eot,
        eos_token_id=eot,
        pad_token_id=eot,
        decoder_start_token_id=sot,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and name != "model.encoder.embed_positions.weight":
            torch.nn.init.normal_(parameter, std=WEIGHT_STD)
    languages = {
        "lang_to_id": {f"<|{code}|>": ids(f"<|{code}|>") for code in shape.languages},
        "task_to_id": {"transcribe": ids("<|transcribe|>"), "translate": ids("<|translate|>")},
    }
    heads = {} if shape.alignment_heads is None else {"alignment_heads": [list(head) for head in shape.alignment_heads]}
    model.generation_config = GenerationConfig(
        bos_token_id=eot,
        eos_token_id=eot,
        pad_token_id=eot,
        decoder_start_token_id=sot,
        is_multilingual=shape.is_multilingual,
        no_timestamps_token_id=ids("<|notimestamps|>"),
        prev_sot_token_id=ids("<|startofprev|>"),
        max_initial_timestamp_index=shape.max_initial_timestamp_index,
        suppress_tokens=None if shape.suppress is None else list(shape.suppress),
        begin_suppress_tokens=begin_suppress,
        max_length=shape.max_target_positions,
        **(languages if shape.is_multilingual else {}),
        **heads,
    )
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint of any form, as the engine loads them, in a type that keeps their published order."""
    model = load_model(read_checkpoint(str(path)), torch.device("cpu"), torch.float64)
    return dict(model.state_dict())


def assert_same_weights(path: Path, base: Path, tolerance: float) -> None:
    """Compare two checkpoints. A number may differ by this part of the largest one of its weight."""
    loaded = weights_of(path)
    for name, expected in weights_of(base).items():
        assert (loaded[name] - expected).abs().max() <= tolerance * expected.abs().max(), name


def edit_json(file: Path, **changes: object) -> None:
    """Change keys of a JSON file; `None` removes the key."""
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
