"""Changes clean speech for the evaluation: a telephone line, and noise at an exact signal-to-noise ratio.

Plain numpy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.media.pcm import Samples, decode_samples
from engine.api import SAMPLE_RATE

TELEPHONE_HZ = (300.0, 3400.0)
TELEPHONE_PEAK = 0.5
"""Level of the loudest sample before the line, so that its eight bits are used as in a call."""
ACTIVE_FRAME_SAMPLES = SAMPLE_RATE // 50
"""Samples in a frame of 20 ms."""
ACTIVE_RANGE_DB = 35.0
"""Frames at most this many decibels below the loudest frame are speech. Pauses do not count towards its level."""

_MULAW_BIAS, _MULAW_CLIP = 132, 32_635


def mulaw_bytes(samples: Samples) -> bytes:
    """Encode samples in G.711 mu-law, one byte for each. Source: ITU-T G.711, table 2."""
    pcm = np.clip(np.round(samples * 32768), -32768, 32767).astype(np.int32)
    magnitude = np.minimum(np.abs(pcm), _MULAW_CLIP) + _MULAW_BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    mantissa = magnitude >> (exponent + 3) & 15
    return bytes(~(np.where(pcm < 0, 128, 0) | exponent << 4 | mantissa).astype(np.uint8))


def telephone(samples: Samples) -> Samples:
    """Simulate a telephone line: 300 to 3400 Hz, and mu-law at 8 kHz. The result has 16 kHz and the same length."""
    n_samples = len(samples)
    peak = max(float(np.abs(samples).max(initial=0.0)), 1e-6)
    spectrum = np.fft.rfft(samples * (TELEPHONE_PEAK / peak), 2 * n_samples)
    hz = np.fft.rfftfreq(2 * n_samples, 1 / SAMPLE_RATE)
    spectrum[(hz < TELEPHONE_HZ[0]) | (hz > TELEPHONE_HZ[1])] = 0
    narrow = np.fft.irfft(spectrum)[: n_samples + n_samples % 2 : 2].astype(np.float32)
    decoded = decode_samples(mulaw_bytes(narrow), "mulaw")
    wide = np.fft.rfft(decoded, 2 * len(decoded))
    # Twice the number of samples needs twice the amplitude.
    back = 2 * np.fft.irfft(np.pad(wide, (0, len(wide) - 1)), 4 * len(decoded))
    return back[:n_samples].astype(np.float32)


def active_power(samples: Samples) -> float:
    """The mean square of speech over its active frames."""
    frames = samples[: len(samples) // ACTIVE_FRAME_SAMPLES * ACTIVE_FRAME_SAMPLES].reshape(-1, ACTIVE_FRAME_SAMPLES)
    power = np.square(frames, dtype=np.float64).mean(1)
    if not len(power) or power.max() == 0:
        return 0.0
    return float(power[power >= power.max() * 10 ** (-ACTIVE_RANGE_DB / 10)].mean())


def with_noise(speech: Samples, noise: Samples, snr_db: float) -> Samples:
    """Add noise to the whole of the speech.

    `snr_db` is the ratio of the active power of the speech to the mean power of the noise.
    """
    noise = np.resize(noise, len(speech)).astype(np.float64)
    power = np.square(noise).mean()
    gain = np.sqrt(active_power(speech) / (power * 10 ** (snr_db / 10))) if power else 0.0
    mixed = speech + gain * noise
    # A mixture that would clip becomes quieter as a whole.
    quieter: Samples = (mixed / max(1.0, float(np.abs(mixed).max(initial=0.0)))).astype(np.float32)
    return quieter


def coloured_noise(n_samples: int, slope: float, random: np.random.Generator) -> Samples:
    """Noise whose amplitude falls with frequency to the power of `slope`: 0 is white, 0.5 is pink."""
    spectrum = np.fft.rfft(random.standard_normal(n_samples))
    frequency = np.maximum(np.arange(len(spectrum)), 1) / len(spectrum)
    noise = np.fft.irfft(spectrum * frequency**-slope, n_samples)
    scaled: Samples = (0.1 * noise / noise.std()).astype(np.float32)
    return scaled


def babble(n_samples: int, others: Sequence[Samples], random: np.random.Generator, n_voices: int = 5) -> Samples:
    """Babble: several voices at the same time, equally loud, each repeated to the length."""
    mixed: NDArray[np.float64] = np.zeros(n_samples)
    for index in random.choice(len(others), n_voices, replace=False):
        voice = others[index].astype(np.float64)
        mixed += (
            np.roll(np.resize(voice, n_samples), random.integers(n_samples)) / max(active_power(voice), 1e-9) ** 0.5
        )
    scaled: Samples = (0.1 * mixed / mixed.std()).astype(np.float32)
    return scaled
