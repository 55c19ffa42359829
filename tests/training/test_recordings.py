"""Prompts become recordings of a few seconds."""

import wave
from pathlib import Path

import numpy as np

from training.recordings import LENGTHS_S, MIN_PEAK, PAUSES_S, decode, join, write

RATE = 16_000


def test_prompts_are_joined_with_pauses_and_none_is_used_twice() -> None:
    clips = [np.full(RATE * (1 + number % 4), 0.1 + number / 100, np.float32) for number in range(60)]
    joined = list(join(clips, np.random.default_rng(0)))
    assert len(joined) > 3
    for recording in joined:
        assert LENGTHS_S[0] / 2 < len(recording) / RATE <= LENGTHS_S[1] + PAUSES_S[1]
        assert (recording[-int(PAUSES_S[0] * RATE) :] == 0).all()
    levels = [level for recording in joined for level in np.unique(recording[recording > 0])]
    assert len(levels) == len(set(levels)) > 30


def test_a_prompt_is_decoded_and_silent_short_or_broken_ones_are_left_out(tmp_path: Path) -> None:
    tone = (0.5 * np.sin(np.arange(2 * RATE) / 8)).astype(np.float32)
    for name, samples in (("tone", tone), ("short", tone[:2000]), ("quiet", tone * MIN_PEAK)):
        write(tmp_path / f"{name}.wav", samples)
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    found = {file.stem: decode(file) for file in tmp_path.iterdir()}
    assert {name for name, samples in found.items() if samples is not None} == {"tone"}
    assert found["tone"] is not None
    np.testing.assert_allclose(found["tone"], tone, atol=1e-3)
    with wave.open(str(tmp_path / "tone.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
