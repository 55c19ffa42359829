"""Tokens beside those of transformers: of the small model, or of the checkpoint that TUTTI_CHECKPOINT names."""

import os
from pathlib import Path

import pytest

from tests.engine.engines import read_clip
from tests.engine.reference import Reference
from tests.engine.test_parity import decode, tokens_of
from tutti_server.engine.api import DecodeOptions
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import build_prompt
from tutti_server.engine.runner import Runner

NEAR_TIE = 1e-3
"""In logits: below it, rounding may decide."""


@pytest.mark.nightly
async def test_every_token_is_that_of_transformers(small_folder: Path) -> None:
    """Clips are decoded together. After a near tie, what follows is not compared."""
    checkpoint = read_checkpoint(os.environ.get("TUTTI_CHECKPOINT") or str(small_folder))
    assert checkpoint.path is not None
    runner = Runner(checkpoint, EngineConfig(dtype="float32", audio_context="full", n_slots=4))
    reference = Reference(checkpoint.path)
    language = "en" if checkpoint.generation.is_multilingual else None
    options = DecodeOptions(language=language, timestamps=False)
    control = build_prompt(checkpoint, options, language).tokens
    clips = [read_clip(name) for name in ("hello", "call")]
    for done, samples in zip(await decode(runner, *((each, options) for each in clips)), clips, strict=True):
        wanted = reference.decode(reference.states(samples), control, max_tokens=100, timestamps=False)
        n_sure = next((at for at, margin in enumerate(wanted.margins) if margin < NEAR_TIE), len(wanted.tokens))
        assert n_sure > 5 and tokens_of(done)[:n_sure] == wanted.tokens[:n_sure]
