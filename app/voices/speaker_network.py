"""The default speaker network, in numpy: it turns stretches of speech into unit vectors that depend on who speaks.

It is the network of Resemblyzer, with a step after it that takes out what telephone lines and rooms change.
`app/assets/tutti-speakers/README.md` says where the weights come from.
"""

import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.engine.api import SAMPLE_RATE

Array = NDArray[np.float32]

DEFAULT_WEIGHTS = Path(__file__).parents[1] / "assets" / "tutti-speakers" / "speakers.npz"
"""The weights that come with the package."""
N_FFT = 400
HOP = 160
N_MELS = 40
LEVEL = 10 ** (-30 / 20)
"""The root mean square that each stretch is brought to: the network hears power, not its logarithm."""
QUIETEST = 1e-5
"""The root mean square from which a stretch is brought to `LEVEL`; a softer one stays softer."""
MIN_SAMPLES = round(1.48 * SAMPLE_RATE)
"""A shorter stretch is repeated up to this length."""
PART, MAX_SAMPLES = round(1.6 * SAMPLE_RATE), 2 * SAMPLE_RATE
"""A stretch of more than `MAX_SAMPLES` is embedded in parts of `PART`, the length of those in the training."""
N_LAYERS = 3
SIZE = 256
"""The numbers of a layer's state, and of an embedding."""
SHAPES = {
    **{f"input.{layer}": (SIZE if layer else N_MELS, 4 * SIZE) for layer in range(N_LAYERS)},
    **{f"recurrent.{layer}": (SIZE, 4 * SIZE) for layer in range(N_LAYERS)},
    **{f"bias.{layer}": (4 * SIZE,) for layer in range(N_LAYERS)},
    **{f"{name}.weight": (SIZE, SIZE) for name in ("embed", "clean")},
    **{f"{name}.bias": (SIZE,) for name in ("embed", "clean")},
    "thresholds": (2,),
}
"""The arrays in a file of weights. The gates are in the order of PyTorch; sigmoids have their factor of 1/2 in them."""


def mel_filters() -> Array:
    """`(N_MELS, N_FFT // 2 + 1)`: triangles on Slaney's mel scale from 0 to 8 kHz, each with the same area."""
    hz = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    # Linear below 1 kHz, which is 15, and logarithmic above.
    mels = np.linspace(0, 15 + 27 * math.log(SAMPLE_RATE / 2000) / math.log(6.4), N_MELS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * math.log(6.4) / 27))
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    out: Array = triangles.astype(np.float32)
    return out


class NumpyNetwork:
    """The network. It keeps no state between calls, so several threads may use it."""

    def __init__(self, path: Path = DEFAULT_WEIGHTS) -> None:
        """Load the weights. Raises `OSError` without the file, and `ValueError` for another kind of file."""
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                self._weights: dict[str, Array] = {name: arrays[name].astype(np.float32) for name in arrays.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: expected the weights of a speaker network, got another file: {error}") from error
        found = {name: array.shape for name, array in self._weights.items()}
        if found != SHAPES:
            wrong = sorted(name for name in found.keys() | SHAPES if found.get(name) != SHAPES.get(name))
            raise ValueError(f"{path}: expected the weights of a speaker network, got others: {', '.join(wrong)}")
        joins, knows = (float(each) for each in self._weights["thresholds"])
        self.thresholds = SpeakerThresholds(joins=joins, knows=knows)
        """The cosines that belong to the network."""
        self._filters = mel_filters().T
        self._window = np.hanning(N_FFT + 1)[:-1].astype(np.float32)

    def embed(self, stretches: Sequence[Samples]) -> Array:
        """Unit vectors, `(stretches, SIZE)`, of stretches of mono float32 audio at 16 kHz of any length."""
        parts = [list(_parts(each)) for each in stretches]
        found = self._clean(self._states([self._mels(part) for each in parts for part in each]))
        ends = np.cumsum([len(each) for each in parts])
        return _unit(np.stack([found[end - len(each) : end].sum(0) for each, end in zip(parts, ends, strict=True)]))

    def _mels(self, samples: Samples) -> Array:
        """`(frames, N_MELS)`: the power in each band of speech that is as loud as other speech."""
        level = max(float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))), QUIETEST)
        padded = np.pad(samples, N_FFT // 2)
        frames = sliding_window_view(padded, N_FFT)[::HOP] * (self._window * np.float32(LEVEL / level))
        out: Array = np.abs(np.fft.rfft(frames)).astype(np.float32) ** 2 @ self._filters
        return out

    def _states(self, mels: Sequence[Array]) -> Array:
        """`(stretches, SIZE)`: the last layer's state after the last frame of each stretch."""
        n_frames = np.array([len(each) for each in mels])
        n_steps = int(n_frames.max())
        # All stretches go through the layers together. What comes after the end of a shorter one has no effect on it.
        x = np.zeros((n_steps, len(mels), N_MELS), np.float32)
        for number, each in enumerate(mels):
            x[: len(each), number] = each
        for layer in range(N_LAYERS):
            x = self._layer(layer, x)
        out: Array = x[n_frames - 1, np.arange(len(mels))]
        return out

    def _layer(self, layer: int, x: Array) -> Array:
        """A layer of long short-term memory: `(frames, stretches, SIZE)`."""
        n_steps, n, width = x.shape
        gates = x.reshape(-1, width) @ self._weights[f"input.{layer}"] + self._weights[f"bias.{layer}"]
        gates = gates.reshape(n_steps, n, 4 * SIZE)
        recurrent = self._weights[f"recurrent.{layer}"]
        states = np.empty((n_steps, n, SIZE), np.float32)
        state = cell = np.zeros((n, SIZE), np.float32)
        for step, each in enumerate(gates):
            np.add(each, state @ recurrent, out=each)
            # A sigmoid is 1/2 + tanh(x / 2) / 2, and one call computes all gates.
            np.tanh(each, out=each)
            enter, keep, new, leave = (each[:, start : start + SIZE] for start in range(0, 4 * SIZE, SIZE))
            cell = (0.5 * keep + 0.5) * cell + (0.5 * enter + 0.5) * new
            state = np.multiply(0.5 * leave + 0.5, np.tanh(cell), out=states[step])
        return states

    def _clean(self, states: Array) -> Array:
        """Unit vectors, from which what lines and rooms change is taken out as far as it is the same for all people."""
        vectors = _unit(np.maximum(states @ self._weights["embed.weight"] + self._weights["embed.bias"], 0))
        return _unit(vectors @ self._weights["clean.weight"] + self._weights["clean.bias"])


def _parts(samples: Samples) -> Iterator[Samples]:
    """What the network embeds of a stretch: all of it, or parts that overlap by half or more."""
    if len(samples) > MAX_SAMPLES:
        for start in np.linspace(0, len(samples) - PART, math.ceil(2 * len(samples) / PART) - 1).astype(int):
            yield samples[start : start + PART]
    elif len(samples) >= MIN_SAMPLES:
        yield samples
    else:
        yield np.resize(samples, MIN_SAMPLES) if len(samples) else np.zeros(MIN_SAMPLES, np.float32)


def _unit(vectors: Array) -> Array:
    out: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return out
