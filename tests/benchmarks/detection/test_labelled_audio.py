"""Audio whose speech is known: what is added to it leaves the times true."""

import numpy as np
import pytest

from app.media.pcm import Samples
from benchmarks.detection.labelled_audio import joined, loud_spans, over_telephone, with_noise
from engine.api import SAMPLE_RATE
from tests.fakes import silence


def tone(seconds: float, level: float = 0.3) -> Samples:
    samples: Samples = (level * np.sin(np.arange(round(seconds * SAMPLE_RATE)) * 0.2)).astype(np.float32)
    return samples


CLIP = np.concatenate((silence(0.3), tone(1.0), silence(0.1), tone(0.5), silence(0.5), tone(0.4), silence(0.2)))


def test_clean_audio_is_speech_where_it_is_loud() -> None:
    """Over short gaps; a breath, which is quiet, is none."""
    breath = CLIP + np.concatenate((tone(0.2, 0.001), np.zeros(len(CLIP) - 3200, dtype=np.float32)))
    for clip in (CLIP, breath):
        spans = np.array(loud_spans(clip)) / SAMPLE_RATE
        assert np.allclose(spans, [(0.3, 1.9), (2.4, 2.8)], atol=0.02)


def test_clips_are_joined_with_pauses() -> None:
    audio = joined("human", [CLIP, CLIP], np.random.default_rng(0))
    assert len(audio.speech) == 4
    for start, end in audio.speech:
        assert np.abs(audio.samples[start:end]).mean() > 0.1
    outside = np.ones(len(audio.samples), dtype=bool)
    for start, end in audio.speech:
        outside[start:end] = False
    assert np.abs(audio.samples[outside]).mean() < 0.01


def test_noise_has_the_ratio_that_was_asked_for_and_fills_the_pauses() -> None:
    audio = joined("human", [CLIP], np.random.default_rng(0))
    noise = np.random.default_rng(1).standard_normal(SAMPLE_RATE).astype(np.float32)
    mixed = with_noise("noisy", audio, noise, 10.0)
    added = mixed.samples - audio.samples
    speech = np.concatenate([audio.samples[start:end] for start, end in audio.speech])
    assert 10 * np.log10(np.square(speech).mean() / np.square(added).mean()) == pytest.approx(10.0, abs=0.5)
    assert np.square(added[:SAMPLE_RATE]).mean() == pytest.approx(np.square(added).mean(), rel=0.1)
    assert mixed.speech == audio.speech


def test_a_telephone_line_keeps_time_and_level() -> None:
    audio = joined("human", [CLIP], np.random.default_rng(0))
    line = over_telephone("telephone", audio)
    assert len(line.samples) == len(audio.samples)
    assert np.corrcoef(line.samples, audio.samples)[0, 1] > 0.99
