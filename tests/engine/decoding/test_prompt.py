"""The layout of prompts."""

from pathlib import Path

import pytest

from tests.engine.checkpoints import SHAPES, make_checkpoint
from tutti_server.engine.api import DecodeOptions
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.decoding.prompt import build_prompt, max_output_tokens


def test_prompt_names_language_and_task(small_checkpoint: Checkpoint) -> None:
    """With timestamps nothing follows; the start token comes first."""
    tokenizer = small_checkpoint.tokenizer
    prompt = build_prompt(small_checkpoint, DecodeOptions(task="translate"), "de")
    assert prompt.tokens == (tokenizer.sot, tokenizer.languages["de"], tokenizer.translate)
    assert (prompt.sot_index, prompt.n_prefix) == (0, 0)


def test_prefix_stands_at_the_end(small_checkpoint: Checkpoint) -> None:
    """After the token that turns timestamps off."""
    tokenizer = small_checkpoint.tokenizer
    prompt = build_prompt(small_checkpoint, DecodeOptions(timestamps=False, prefix=(5, 6)), "en")
    assert prompt.tokens[2:] == (tokenizer.transcribe, tokenizer.no_timestamps, 5, 6)
    assert prompt.n_prefix == 2


def test_previous_text_keeps_its_last_tokens(small_checkpoint: Checkpoint) -> None:
    """Half of the positions less one, after the token that announces it."""
    tokenizer = small_checkpoint.tokenizer
    text = "one two three four five " * 100
    prompt = build_prompt(small_checkpoint, DecodeOptions(previous_text=text), "en")
    assert prompt.tokens[0] == tokenizer.previous
    assert prompt.sot_index == 224
    assert list(prompt.tokens[1:224]) == tokenizer.encode(" " + text.strip())[-223:]


def test_very_long_previous_text_costs_no_more(small_checkpoint: Checkpoint) -> None:
    """A megabyte gives the prompt that its end gives."""
    end = "and this is how it ends. " * 100
    long, short = (DecodeOptions(previous_text=text + end) for text in ("word " * 200_000, ""))
    assert build_prompt(small_checkpoint, long, "en") == build_prompt(small_checkpoint, short, "en")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_blank_previous_text_is_left_out(small_checkpoint: Checkpoint, text: str) -> None:
    """It would only cost tokens."""
    assert build_prompt(small_checkpoint, DecodeOptions(previous_text=text), "en").sot_index == 0


def test_english_only_prompt_names_nothing(tmp_path: Path) -> None:
    """Such checkpoints know neither languages nor tasks."""
    shape = next(shape for shape in SHAPES if not shape.is_multilingual)
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path, shape)))
    tokenizer = checkpoint.tokenizer
    assert build_prompt(checkpoint, DecodeOptions(), None).tokens == (tokenizer.sot,)
    assert build_prompt(checkpoint, DecodeOptions(timestamps=False), "en").tokens[1:] == (tokenizer.no_timestamps,)


@pytest.mark.parametrize(
    ("max_tokens", "n_control", "limit"), [(None, 3, 224), (None, 228, 220), (10, 3, 10), (500, 3, 224)]
)
def test_output_is_limited_by_positions_and_options(
    small_checkpoint: Checkpoint, max_tokens: int | None, n_control: int, limit: int
) -> None:
    """Half of the positions, less where the prompt leaves less."""
    assert max_output_tokens(small_checkpoint, DecodeOptions(max_tokens=max_tokens), n_control) == limit
