"""Log-mel filterbank features as Kaldi computes them, which published speaker networks take.

The defaults of Kaldi's `compute-fbank-feats` with 80 bands and without dither: frames of 25 ms every 10 ms, the window
of Povey, bands from 20 Hz to half the sample rate. `tests/app/voices/test_filterbank.py` compares it with
kaldi-native-fbank 1.23.
"""

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

Array = NDArray[np.float32]

N_BANDS = 80
FRAME = 400
"""The length of a frame, in samples (25 ms)."""
HOP = 160
"""The distance of frames, in samples (10 ms)."""
N_FFT = 512
LOWEST_HZ = 20.0
PREEMPHASIS = 0.97
FULL_SCALE = 32768
"""Kaldi's samples are 16-bit integers."""


def filterbank(samples: Samples) -> Array:
    """`(frames, N_BANDS)` log-mel energies of at least `FRAME` samples at 16 kHz, without the mean of each band."""
    frames = sliding_window_view(samples.astype(np.float64) * FULL_SCALE, FRAME)[::HOP]
    frames = frames - frames.mean(1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    power = np.abs(np.fft.rfft((frames - PREEMPHASIS * before) * _window(), N_FFT)) ** 2
    energies = np.log(np.maximum(power[:, : N_FFT // 2] @ _bands().T, np.finfo(np.float32).eps))
    out: Array = (energies - energies.mean(0)).astype(np.float32)
    return out


@cache
def _window() -> NDArray[np.float64]:
    return np.hanning(FRAME) ** 0.85


@cache
def _bands() -> NDArray[np.float64]:
    """`(N_BANDS, N_FFT // 2)`: triangles that are linear on the mel scale."""
    low, high = _mel(LOWEST_HZ), _mel(SAMPLE_RATE / 2)
    width = (high - low) / (N_BANDS + 1)
    mels = _mel(np.arange(N_FFT // 2) * SAMPLE_RATE / N_FFT)
    centres = low + width * np.arange(1, N_BANDS + 1)[:, None]
    return np.maximum(0, 1 - np.abs(mels - centres) / width)


def _mel(hz: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return 1127 * np.log1p(np.asarray(hz) / 700)
