"""Choosing alignment heads on made-up attention."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.decoding.word_timing import STATE_S, median_filtered, normalised, start_states
from training.alignment import Example, choose, errors_s, first_tokens, score, write_heads

N_TOKENS, N_FRAMES = 9, 60


def attention(starts: np.ndarray, random: np.random.Generator, noise: float) -> np.ndarray:
    """Weights that follow the tokens' starts, `(tokens, frames)`."""
    frames = np.arange(N_FRAMES)
    ends = np.append(starts[1:], N_FRAMES)
    weights = ((frames >= starts[:, None]) & (frames < ends[:, None])).astype(np.float32)
    return weights + noise * random.standard_normal((N_TOKENS, N_FRAMES)).astype(np.float32)


@pytest.fixture
def examples() -> list[Example]:
    """Head 0 is noise, head 1 is late by four states, heads 2 and 3 follow the words through noise of their own."""
    random = np.random.default_rng(1)
    made = []
    for _ in range(12):
        starts = np.sort(random.choice(np.arange(1, 50), N_TOKENS - 1, replace=False))
        starts = np.insert(starts, 0, 0)
        heads = [
            random.standard_normal((N_TOKENS, N_FRAMES)).astype(np.float32),
            attention(np.append(0, starts[1:] + 4), random, 0.1),
            attention(starts, random, 0.9),
            attention(starts, random, 0.9),
        ]
        weights = median_filtered(normalised(np.stack(heads)), 3)
        first = np.array([0, 2, 3, 6])
        made.append(Example(weights, first, (starts[first] * STATE_S).astype(np.float32)))
    return made


def test_heads_that_follow_the_words_are_chosen(examples: list[Example]) -> None:
    """The two whose noise averages out, neither the late one nor the one that follows nothing."""
    assert sorted(choose(examples, 4)) == [2, 3]
    alone, together = (score(errors) for errors in errors_s(examples, [[2], [2, 3]]))
    assert together.mean_s < alone.mean_s


def test_a_constant_offset_is_seen(examples: list[Example]) -> None:
    """A head that is late everywhere is late by its median."""
    late, right = (score(errors) for errors in errors_s(examples, [[1], [2, 3]]))
    assert late.late_s == pytest.approx(4 * STATE_S, abs=0.5 * STATE_S)
    assert right.late_s == pytest.approx(0, abs=0.5 * STATE_S)


def test_the_best_path_is_that_of_transformers() -> None:
    """Every matrix of a batch, also where weights are equal."""
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping

    random = np.random.default_rng(2)
    for shape in ((4, 7, 30), (2, 1, 5), (2, 6, 1), (3, 12, 12)):
        weights = random.integers(0, 4, shape).astype(np.float32)
        found = start_states(weights)
        for row, matrix in zip(found, weights, strict=True):
            tokens, frames = _dynamic_time_warping(-matrix.astype(np.float64))
            begins = np.diff(tokens, prepend=-1) > 0
            assert row.tolist() == frames[begins].tolist()


def test_the_filter_is_that_of_transformers() -> None:
    """And leaves a row shorter than half its width alone."""
    import torch
    from transformers.models.whisper.generation_whisper import _median_filter

    weights = np.random.default_rng(3).standard_normal((2, 5, 40)).astype(np.float32)
    assert np.array_equal(median_filtered(weights), _median_filter(torch.from_numpy(weights), 7).numpy())
    assert np.array_equal(median_filtered(weights[..., :3]), weights[..., :3])


def test_words_begin_with_their_first_token() -> None:
    """Tokens are those of the text behind a space; a full stop belongs to the word before it."""
    offsets = [(0, 3), (3, 6), (6, 7), (7, 12)]  # " un", "der", ".", " that"
    assert first_tokens("under. that", offsets).tolist() == [0, 3]


def test_heads_are_written_beside_the_other_settings(tmp_path: Path) -> None:
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"max_length": 448, "alignment_heads": [[1, 0]]}))
    write_heads(tmp_path, [(3, 1), (2, 0)])
    assert json.loads(file.read_text()) == {"max_length": 448, "alignment_heads": [[2, 0], [3, 1]]}
