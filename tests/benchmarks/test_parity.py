"""The comparison of a checkpoint with transformers, on the small model."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import parity
from benchmarks.checkpoint_parity.tokens import OPTIONS, Decoded, TransformersModel
from engine.checkpoint.checkpoint import read_checkpoint
from engine.decoding.prompt import build_prompt
from tests.engine.engines import AUDIO, read_clip
from tests.small_model import SMALL_MODEL

TEXTS = {"hello.flac": "hello", "call.flac": "hello"}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.jsonl"
    path.write_text("\n".join(json.dumps({"file": str(AUDIO / file), "text": text}) for file, text in TEXTS.items()))
    return path


def test_without_a_checkpoint_it_is_skipped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTTI_CHECKPOINT", raising=False)
    ran = CliRunner().invoke(parity.main, [])
    assert ran.exit_code == 0
    assert "skipped: the parity of a real checkpoint needs TUTTI_CHECKPOINT" in ran.output


def test_the_small_checkpoint_agrees(
    manifest: Path, small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("TUTTI_")]:
        monkeypatch.delenv(name)  # the server would take them for settings
    monkeypatch.setenv("TUTTI_CHECKPOINT", str(small_folder))
    path = tmp_path / "a.json"
    arguments = ["--manifest", str(manifest), "--concurrency", "1,2", "--device", "cpu", "--json", str(path)]
    ran = CliRunner().invoke(parity.main, arguments)
    assert ran.exit_code == 0, ran.output
    result = json.loads(path.read_text())
    tokens = result["tokens"]
    assert tokens["n_likeliest"] == tokens["n_tokens"] > 10
    assert (tokens["n_clips"], tokens["other_tokens"]) == (2, [])
    assert [(level["concurrency"], level["answered"]) for level in result["levels"]] == [(1, 2), (2, 2)]
    assert "Tokens beside transformers" in ran.output


def test_another_token_is_noticed(small_folder: Path) -> None:
    """The first word of a decoded text is replaced: the gap of its logit is far from a tie."""
    checkpoint = read_checkpoint(SMALL_MODEL)
    model = TransformersModel(small_folder, "cpu")
    control = build_prompt(checkpoint, OPTIONS, "en").tokens
    other = tuple(checkpoint.tokenizer.encode(" station"))
    compared = model.compare(Decoded("hello", read_clip("hello"), other), control)
    assert compared.worst_gap > 1
    assert compared.n_likeliest < compared.n_tokens


def level(concurrency: int, text: str, failures: dict[str, int] | None = None) -> dict[str, Any]:
    texts = [{"name": "a.wav", "text": text, "failure": None}]
    return {"concurrency": concurrency, "texts": texts, "failures": failures or {}}


def test_what_differs_fails_it() -> None:
    tokens = {"other_tokens": ["b.wav"], "near_tie": 0.001, "n_tokens": 9}
    levels = [level(1, "one"), level(16, "two", {"HTTP 503": 3})]
    assert parity.complain({"tokens": tokens, "levels": levels}) == [
        "b.wav: expected the likeliest tokens to transformers, within 0.001 of their logits",
        "16 at a time: 3 failed: HTTP 503",
        "a.wav: 'one' with 1 at a time, 'two' with 16",
    ]
    fine = {"other_tokens": [], "near_tie": 0.001, "n_tokens": 9}
    assert parity.complain({"tokens": fine, "levels": levels[:1]}) == []
