"""Telephone lines and noise of the evaluation."""

import numpy as np
import pytest

from app.media.pcm import decode_samples
from engine.api import SAMPLE_RATE
from training.evaluation.augment import active_power, babble, coloured_noise, mulaw_bytes, telephone, with_noise

SECOND = np.arange(SAMPLE_RATE) / SAMPLE_RATE


def tone(hz: float, peak: float = 0.3) -> np.ndarray:
    return (peak * np.sin(2 * np.pi * hz * SECOND)).astype(np.float32)


def decibels(power: float) -> float:
    return float(10 * np.log10(max(power, 1e-20)))


def test_mulaw_is_what_the_service_decodes() -> None:
    """Every code comes back as itself, apart from the second code of zero; samples in between go to a near one."""
    codes = np.arange(256, dtype=np.uint8)
    again = np.frombuffer(mulaw_bytes(decode_samples(codes.tobytes(), "mulaw")), np.uint8)
    assert (again[codes != 127] == codes[codes != 127]).all()
    samples = np.linspace(-0.9, 0.9, 1001, dtype=np.float32)
    heard = decode_samples(mulaw_bytes(samples), "mulaw")
    assert np.abs(heard - samples).max() <= 0.04 * 0.9
    assert decode_samples(mulaw_bytes(np.array([1.5], np.float32)), "mulaw")[0] == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize("n_samples", [SAMPLE_RATE, SAMPLE_RATE - 1])
def test_a_telephone_keeps_its_band_alone(n_samples: int) -> None:
    """A tone in the band keeps its place and shape, tones outside it are gone."""
    inside = telephone(tone(1000)[:n_samples])
    assert len(inside) == n_samples
    wanted = tone(1000, 0.5)[200 : n_samples - 200]
    assert 30 < decibels(np.square(wanted).mean() / np.square(inside[200:-200] - wanted).mean()) < 50
    both = telephone((tone(1000) + tone(100) + tone(5000))[:n_samples])
    spectrum = np.abs(np.fft.rfft(both[: SAMPLE_RATE // 2]))
    assert spectrum[[50, 2500]].max() < 0.02 * spectrum[500]


def test_noise_is_as_far_below_the_speech_as_asked() -> None:
    """Only active frames count: the same speech with pauses gets the same noise."""
    speech = np.concatenate((np.zeros(SAMPLE_RATE, np.float32), tone(300, 0.1), np.zeros(SAMPLE_RATE, np.float32)))
    assert active_power(speech) == pytest.approx(0.1**2 / 2, rel=1e-3)
    noise = coloured_noise(len(speech), 0.5, np.random.default_rng(1))
    added = with_noise(speech, noise, 5.0) - speech
    assert decibels(active_power(speech) / float(np.square(added).mean())) == pytest.approx(5.0, abs=0.01)


def test_loud_mixtures_are_not_clipped() -> None:
    """They get quieter as a whole, speech and noise alike."""
    mixed = with_noise(tone(300, 0.9), coloured_noise(SAMPLE_RATE, 0.0, np.random.default_rng(1)), 0.0)
    assert np.abs(mixed).max() == pytest.approx(1.0)


def test_silence_gets_no_noise() -> None:
    assert not with_noise(np.zeros(SAMPLE_RATE, np.float32), tone(300), 5.0).any()


def test_babble_holds_several_voices_and_repeats_with_its_seed() -> None:
    others = [tone(200 + 100 * index) for index in range(8)]
    first, second = (babble(2 * SAMPLE_RATE, others, np.random.default_rng(3), n_voices=4) for _ in range(2))
    assert (first == second).all()
    spectrum = np.abs(np.fft.rfft(first[:SAMPLE_RATE]))
    assert (spectrum[200:1000:100] > 0.2 * spectrum.max()).sum() == 4
