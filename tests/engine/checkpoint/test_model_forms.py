"""Forms of models that people publish: other sizes, other tokens, other heads, and forms of real weights."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.checkpoint_writers import GGML_TYPES, write_ctranslate2, write_ggml, write_openai
from tests.engine.checkpoints import Shape, edit_json, make_checkpoint, make_tokenizer
from tutti_server.engine.checkpoint import openai
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.model.weights import load_model

LARGE_V3 = Shape("large-v3", languages=tuple(openai.LANGUAGES), n_mels=128, decoder_layers=2)
LARGE_V3_HEADS = ((7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6))
"""Kotoba-Whisper lists the heads of the model that it was distilled from, of which its decoder has none."""
CRISPER_HEADS = ((0, 1), (1, 0), (1, 1))
"""CrisperWhisper lists heads of its own, which were chosen after it was trained for word times."""


def load(path: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(read_checkpoint(str(path)), torch.device("cpu"), torch.float64).state_dict())


@pytest.mark.parametrize(
    "shape",
    [
        replace(LARGE_V3, name="distil-whisper", encoder_layers=6),
        replace(
            LARGE_V3,
            name="kotoba-whisper",
            encoder_layers=4,
            suppress=(),
            begin_suppress=(220,),
            alignment_heads=LARGE_V3_HEADS,
        ),
        replace(LARGE_V3, name="crisper-whisper", alignment_heads=CRISPER_HEADS),
    ],
    ids=lambda shape: shape.name,
)
def test_published_shapes_are_loaded(tmp_path: Path, shape: Shape) -> None:
    """Two decoder layers below many of the encoder, 128 mel bands, and other heads for word times."""
    folder = make_checkpoint(tmp_path / "model", shape)
    load(folder)
    checkpoint = read_checkpoint(str(folder))
    assert (checkpoint.model.encoder_layers, checkpoint.model.decoder_layers) == (shape.encoder_layers, 2)
    own_heads = shape.alignment_heads == CRISPER_HEADS
    assert checkpoint.generation.alignment_heads == (CRISPER_HEADS if own_heads else ((1, 0), (1, 1)))
    assert len(checkpoint.generation.languages) == 100


def test_tokens_after_the_times_are_left_alone(tmp_path: Path) -> None:
    """Some fine-tuned models have a larger vocabulary, whose last tokens were never trained."""
    tokenizer = make_tokenizer(LARGE_V3)
    folder = make_checkpoint(tmp_path / "model", LARGE_V3)
    n_before = read_checkpoint(str(folder)).model.vocab_size
    tokenizer.add_tokens(["<|filled_pause|>", "<|laughter|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    from safetensors.torch import load_file, save_file

    weights = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    name = "model.decoder.embed_tokens.weight"
    weights[name] = torch.cat([weights[name], torch.zeros(2, LARGE_V3.d_model)])
    save_file(weights, folder / "model.safetensors")
    edit_json(folder / "config.json", vocab_size=n_before + 2)
    load(folder)
    assert read_checkpoint(str(folder)).tokenizer.first_timestamp == n_before - 1_501


def _real_folder(variable: str) -> Path:
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no folder of real weights")
    return Path(path)


@pytest.mark.nightly
@pytest.mark.parametrize("variable", ["TUTTI_TEST_BASE", "TUTTI_TEST_TINY_EN"])
def test_real_weights_are_the_same_in_every_form(variable: str, tmp_path: Path) -> None:
    """The variable names a folder of transformers with OpenAI's weights, multilingual or English-only.

    In every form the weights, sizes, tokens and defaults are those of this folder.
    """
    base = _real_folder(variable)
    expected, weights = read_checkpoint(str(base)), load(base)
    texts = [expected.tokenizer.token_bytes(token) for token in range(expected.tokenizer.eot)]
    without_tokenizer = write_ctranslate2(base, tmp_path / "ct2")
    (without_tokenizer / "tokenizer.json").unlink()
    files = [write_ggml(base, tmp_path / f"{kind}.bin", kind, texts) for kind in GGML_TYPES if kind[0] == "f"]
    for path in (without_tokenizer, write_openai(base, tmp_path / "model.pt"), *files):
        checkpoint = read_checkpoint(str(path))
        assert checkpoint.model == expected.model
        assert checkpoint.generation == expected.generation
        for text in (" Grüße aus 東京, 1234567 times\n\n  and 👩‍👩‍👧", "[music] -- it's"):
            assert checkpoint.tokenizer.encode(text) == expected.tokenizer.encode(text)
        loaded = load(path)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())
