"""Computes log-mel spectrograms on the model's device, for a whole batch at once."""

import math
from functools import cache

import torch
from torch import Tensor

from tutti_server.engine.api import SAMPLE_RATE

N_FFT = 400
"""Samples of one Fourier transform: 25 ms."""
HOP_SAMPLES = 160
"""Samples from one frame to the next: 10 ms."""
STATE_SAMPLES = 2 * HOP_SAMPLES
"""Samples of one encoder state: 20 ms. The encoder's second convolution makes one state of two frames."""
MAX_FREQUENCY_HZ = SAMPLE_RATE / 2
"""Upper edge of the highest mel band, in Hz."""
FLOOR = 1e-10
"""The least power of a mel band. It keeps the logarithm finite."""
RANGE_LOG10 = 8.0
"""Range of a spectrogram below its peak, as a logarithm to base 10 (80 dB). Lower values are raised to its end."""

# The Slaney scale is linear up to 1 kHz, then logarithmic.
_HZ_PER_LINEAR_MEL = 200.0 / 3.0
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _HZ_PER_LINEAR_MEL
_LOG_HZ_PER_MEL = math.log(6.4) / 27.0


class LogMel:
    """Computes log-mel spectrograms on the device of a model, in its type."""

    def __init__(self, n_mels: int, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self._filters = mel_filters(n_mels).to(device)
        self._dtype = dtype

    def __call__(self, samples: Tensor) -> Tensor:
        """Compute `log_mel` of a batch of windows, in the model's type."""
        return log_mel(samples, self._filters).to(self._dtype)


def log_mel(samples: Tensor, filters: Tensor) -> Tensor:
    """Log-mel spectrograms of a batch of windows.

    Args:
        samples: `(batch, n_samples)` float32 in [-1, 1], mono, 16 kHz; 480 000 samples make a full window.
        filters: `(n_mels, 201)` mel filterbank on the same device.

    Returns:
        `(batch, n_mels, n_samples / 160)` float32.

    Source: openai/whisper, whisper/audio.py, `log_mel_spectrogram`.
    """
    hann = _hann_window(samples.device)
    spectrum = torch.stft(samples, N_FFT, HOP_SAMPLES, window=hann, return_complex=True)[..., :-1]
    power = spectrum.real.square() + spectrum.imag.square()  # (batch, 201, n_frames)
    log_spec = torch.matmul(filters, power).clamp_(min=FLOOR).log10_()
    # Peak per window, not per batch: a loud neighbour must not change a quiet stream's text.
    peak = log_spec.amax(dim=(1, 2), keepdim=True)
    return torch.maximum(log_spec, peak - RANGE_LOG10).add_(4.0).div_(4.0)


@cache
@torch.inference_mode(False)
def _hann_window(device: torch.device) -> Tensor:
    return torch.hann_window(N_FFT, device=device)


def mel_filters(n_mels: int) -> Tensor:
    """Triangular mel filters of equal energy on the Slaney scale, `(n_mels, 201)` float32.

    Source: librosa, librosa/filters.py, `mel`, as called for openai/whisper's assets/mel_filters.npz.
    """
    bins_hz = torch.linspace(0.0, MAX_FREQUENCY_HZ, N_FFT // 2 + 1, dtype=torch.float64)
    top_mel = _hz_to_mel(MAX_FREQUENCY_HZ)
    edges_hz = torch.tensor([_mel_to_hz(top_mel * i / (n_mels + 1)) for i in range(n_mels + 2)], dtype=torch.float64)
    widths_hz = edges_hz.diff()  # (n_mels + 1,)
    distances_hz = edges_hz[:, None] - bins_hz  # (n_mels + 2, 201)
    rising = -distances_hz[:-2] / widths_hz[:-1, None]
    falling = distances_hz[2:] / widths_hz[1:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * (2.0 / (edges_hz[2:] - edges_hz[:-2]))[:, None]).float()


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _HZ_PER_LINEAR_MEL
    return _BREAK_MEL + math.log(hz / _BREAK_HZ) / _LOG_HZ_PER_MEL


def _mel_to_hz(mel: float) -> float:
    if mel < _BREAK_MEL:
        return mel * _HZ_PER_LINEAR_MEL
    return _BREAK_HZ * math.exp((mel - _BREAK_MEL) * _LOG_HZ_PER_MEL)
