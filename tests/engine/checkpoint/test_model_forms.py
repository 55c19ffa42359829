"""Forms of models that people publish: other sizes, other tokens, other heads, and forms of real weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.checkpoints import Shape, edit_json, make_checkpoint, make_tokenizer, weights_of
from tutti_server.engine.checkpoint import openai
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint

LARGE_V3 = Shape("large-v3", languages=tuple(openai.LANGUAGES), n_mels=128, decoder_layers=2)
LARGE_V3_HEADS = ((7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6))
"""Kotoba-Whisper lists the heads of the model that it was distilled from, of which its decoder has none."""
CRISPER_HEADS = ((0, 1), (1, 0), (1, 1))
"""CrisperWhisper lists heads of its own, which were chosen after it was trained for word times."""


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
    weights_of(folder)
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
    weights_of(folder)
    assert read_checkpoint(str(folder)).tokenizer.first_timestamp == n_before - 1_501
