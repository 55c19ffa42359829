"""The default speaker network, in numpy: it turns stretches of speech into unit vectors that depend on who speaks.

The weights have every normalisation folded in. `app/assets/tutti-speakers/README.md` names their recipe.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from app.media.pcm import Samples
from engine.api import SAMPLE_RATE

Array = NDArray[np.float32]

DEFAULT_WEIGHTS = Path(__file__).parents[1] / "assets" / "tutti-speakers" / "speakers.npz"
"""The weights that come with the package."""
N_FFT = 400
HOP = 160
N_MELS = 64
LOWEST_HZ, HIGHEST_HZ = 60.0, 7000.0
FLOOR = 1e-3
"""Added to the mel power of audio with a mean square of 1, so that silence has a finite logarithm."""
MIN_SAMPLES = SAMPLE_RATE // 2
"""A shorter stretch is repeated up to this length, 0.5 s."""


def mel_filters() -> Array:
    """`(N_MELS, N_FFT // 2 + 1)`: triangles on the mel scale of HTK, each with the same area."""
    hz = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    low, high = (2595 * math.log10(1 + each / 700) for each in (LOWEST_HZ, HIGHEST_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, N_MELS + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return (triangles * 100).astype(np.float32)


class NumpyNetwork:
    """The network. It keeps no state between calls, so several threads may use it."""

    def __init__(self, path: Path = DEFAULT_WEIGHTS) -> None:
        """Load the weights.

        Raises:
            OSError: there is no such file.
            ValueError: the file holds other arrays.
        """
        with np.load(path) as arrays:
            self._weights: dict[str, Array] = {name: arrays[name].astype(np.float32) for name in arrays.files}
        missing = {"stem.weight", "join.weight", "attend.weight", "weigh.weight", "embed.weight"} - set(self._weights)
        if missing:
            raise ValueError(f"{path}: expected the weights of a speaker network, got none of {sorted(missing)}")
        self._n_blocks = sum(name.endswith(".enter.weight") for name in self._weights)
        self._filters = mel_filters().T
        self._window = np.hanning(N_FFT + 1)[:-1].astype(np.float32)

    def embed(self, stretches: Sequence[Samples]) -> Array:
        """Unit vectors, `(stretches, embedding)`, of stretches of mono float32 audio at 16 kHz of any length."""
        return np.stack([self._embed(each) for each in stretches])

    def _embed(self, samples: Samples) -> Array:
        if len(samples) < MIN_SAMPLES:
            samples = np.resize(samples, MIN_SAMPLES) if len(samples) else np.zeros(MIN_SAMPLES, np.float32)
        x = _relu(self._stem(self._log_mel(samples)))
        outputs = []
        for number in range(self._n_blocks):
            x = self._block(f"blocks.{number}", x)
            outputs.append(x)
        x = _relu(self._affine("join", np.concatenate(outputs)))
        scores = self._affine("weigh", np.tanh(self._affine("attend", x)))
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        mean = (x * weights).sum(1)
        deviation = np.sqrt(np.maximum((x * x * weights).sum(1) - mean * mean, 1e-5))
        vector = self._affine("embed", np.concatenate([mean, deviation]))
        return vector / max(float(np.linalg.norm(vector)), 1e-9)

    def _log_mel(self, samples: Samples) -> Array:
        """`(N_MELS, frames)` without the mean of each band, so that level and tone colour of the line do not count."""
        level = max(float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))), 1e-5)
        frames = sliding_window_view(samples, N_FFT)[::HOP] * (self._window / level)
        power = np.abs(np.fft.rfft(frames)).astype(np.float32) ** 2 / N_FFT
        mel = np.log(power @ self._filters + FLOOR).T
        centred: Array = mel - mel.mean(1, keepdims=True)
        return centred

    def _stem(self, mel: Array) -> Array:
        """A convolution of 5 frames with a stride of 2."""
        weight = self._weights["stem.weight"]  # (channels, mels, 5)
        padded = np.pad(mel, ((0, 0), (2, 2)))
        windows = sliding_window_view(padded, 5, axis=1)[:, ::2]  # (mels, frames, 5)
        columns = windows.transpose(0, 2, 1).reshape(-1, windows.shape[1])
        out: Array = weight.reshape(len(weight), -1) @ columns + self._weights["stem.bias"][:, None]
        return out

    def _block(self, name: str, x: Array) -> Array:
        y = _relu(self._affine(f"{name}.enter", x))
        kernel = self._weights[f"{name}.depthwise.weight"][:, 0]
        half, n_frames = kernel.shape[1] // 2, y.shape[1]
        padded = np.pad(y, ((0, 0), (half, half)))
        y = np.repeat(self._weights[f"{name}.depthwise.bias"][:, None], n_frames, axis=1)
        for tap in range(kernel.shape[1]):
            y += kernel[:, tap, None] * padded[:, tap : tap + n_frames]
        y = self._affine(f"{name}.leave", _relu(y))
        scale = self._affine(f"{name}.excite", _relu(self._affine(f"{name}.squeeze", y.mean(1))))
        return _relu(x + y / (1 + np.exp(-scale))[:, None])

    def _affine(self, name: str, x: Array) -> Array:
        bias = self._weights[f"{name}.bias"]
        out: Array = self._weights[f"{name}.weight"] @ x + (bias[:, None] if x.ndim > 1 else bias)
        return out


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)
