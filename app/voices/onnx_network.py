"""A speaker network of the operator's, as an ONNX file that ONNX Runtime runs.

The file has one input: `(batch, frames, 80)` float32, features as `app/voices/filterbank.py` computes them, which the
exports of WeSpeaker and 3D-Speaker take; or `(batch, samples)` float32, audio at 16 kHz in [-1, 1]. Its first output,
`(batch, dimensions)`, is the embedding. A file with another input, such as a length, is refused.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.errors import SettingsError
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.filterbank import N_BANDS, filterbank
from tutti_server.engine.api import SAMPLE_RATE

Array = NDArray[np.float32]

PACKAGE = "onnxruntime"
"""The package that runs the network; the extra `turn-model` of `tutti-asr` installs it."""
MIN_SAMPLES = SAMPLE_RATE // 2
"""A shorter stretch is repeated up to this length, 0.5 s."""
TRIAL_S = (0.5, 1.48)
"""The lengths of the noise that a network is tried with, in seconds: those of the shortest stretch and of a window."""


def is_installed() -> bool:
    """Whether `PACKAGE` is there. Does not import it."""
    return importlib.util.find_spec(PACKAGE) is not None


class OnnxNetwork:
    """The network. One thread may use it at a time."""

    def __init__(self, path: Path) -> None:
        """Load the network, and try it with noise. Raises `ImportError` without `PACKAGE`, and `SettingsError`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            inputs = self._session.get_inputs()
            if len(inputs) != 1:
                raise ValueError(f"the {len(inputs)} inputs {', '.join(each.name for each in inputs)}")
            self._input, shape = inputs[0].name, list(inputs[0].shape)
            self._takes_features = len(shape) == 3
            if len(shape) not in (2, 3) or (self._takes_features and shape[2] not in (N_BANDS, None)):
                raise ValueError(f"the input {self._input} of shape {shape}")
            random = np.random.default_rng(0)
            for seconds in TRIAL_S:
                self.embed([random.normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)])
        except Exception as error:  # ONNX Runtime has a class of its own for every reason.
            expected = f"a network with one input, (batch, frames, {N_BANDS}) or (batch, samples), and an embedding"
            raise SettingsError(f"speaker_model: {path}: expected {expected}, got: {error}") from error

    def embed(self, stretches: Sequence[Samples]) -> Array:
        """Unit vectors, `(stretches, dimensions)`, of stretches of mono float32 audio at 16 kHz of any length.

        Raises:
            ValueError: the output is no embedding.
        """
        return np.stack([self._embed(each) for each in stretches])

    def _embed(self, samples: Samples) -> Array:
        if len(samples) < MIN_SAMPLES:
            samples = np.resize(samples, MIN_SAMPLES) if len(samples) else np.zeros(MIN_SAMPLES, np.float32)
        given = filterbank(samples) if self._takes_features else samples
        (found, *_) = self._session.run(None, {self._input: given[None]})
        vector: Array = np.asarray(found, dtype=np.float32)
        if vector.ndim != 2 or len(vector) != 1 or vector.shape[1] < 2 or not np.isfinite(vector).all():
            raise ValueError(f"an output of shape {vector.shape} for one stretch, or one that is not finite")
        unit: Array = vector[0] / max(float(np.linalg.norm(vector[0])), 1e-9)
        return unit
