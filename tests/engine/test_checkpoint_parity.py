"""Tokens beside those of transformers: of the small model, or of the checkpoint that TUTTI_CHECKPOINT names."""

import os
from pathlib import Path

import pytest

from tests.engine.checkpoint_tokens import OPTIONS, Decoded, TransformersModel, compare_tokens
from tests.engine.engines import read_clip
from tests.small_model import SMALL_MODEL
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import build_prompt

pytestmark = pytest.mark.nightly

CLIPS = ("hello", "call")


def test_every_token_is_the_likeliest_to_transformers(small_folder: Path) -> None:
    """Clips are decoded together. Ties within rounding may go either way."""
    model = os.environ.get("TUTTI_CHECKPOINT") or str(small_folder)
    clips = [(name, read_clip(name)) for name in CLIPS]
    config = EngineConfig(model=model, dtype="float32", audio_context="full", n_slots=4)
    found = compare_tokens(config, read_checkpoint(model), clips)
    assert (found["n_clips"], found["other_tokens"]) == (2, []), found
    assert found["n_tokens"] > 10


def test_another_token_is_noticed(small_folder: Path) -> None:
    """The first word of a decoded text is replaced: the gap of its logit is far from a tie."""
    checkpoint = read_checkpoint(SMALL_MODEL)
    model = TransformersModel(small_folder, "cpu")
    control = build_prompt(checkpoint, OPTIONS, "en").tokens
    other = tuple(checkpoint.tokenizer.encode(" station"))
    compared = model.compare(Decoded("hello", read_clip("hello"), other), control)
    assert compared.worst_gap > 1
    assert compared.n_likeliest < compared.n_tokens
