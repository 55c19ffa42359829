"""An operator's turn model: from the audio before a pause it tells whether the speaker has finished.

It is a file that ONNX Runtime runs over several pauses in one call; `app/voices/turn_batcher.py` collects them. The
file has one input, `(batch, 128000)` float32: the last 8 s of the utterance at 16 kHz, with silence before it if it is
shorter. Its first output, `(batch,)` or `(batch, 1)`, is the probability, 0 to 1, that the turn has ended. A model with
other features, such as log-mel, must contain their computation.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.errors import SettingsError
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.turn_taking import AUDIO_SAMPLES

PACKAGE = "onnxruntime"
"""The package that runs the model; the extra `turn-model` of `tutti-asr` installs it."""


def is_installed() -> bool:
    """Whether `PACKAGE` is there. Does not import it."""
    return importlib.util.find_spec(PACKAGE) is not None


class AudioTurnModel:
    """The model. One thread may use it at a time."""

    def __init__(self, path: Path) -> None:
        """Load the model, and try it with silence. Raises `ImportError` without `PACKAGE`, and `SettingsError`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            inputs = [each.name for each in self._session.get_inputs()]
            if len(inputs) != 1:
                raise ValueError(f"the {len(inputs)} inputs {', '.join(inputs)}")
            self._input = inputs[0]
            for n in (1, 2):
                self.score([np.zeros(0, dtype=np.float32)] * n)
        except Exception as error:  # ONNX Runtime has a class of its own for every reason.
            expected = f"a model with one input, (batch, {AUDIO_SAMPLES}) float32, and a probability for each row"
            raise SettingsError(f"turn_model: {path}: expected {expected}, got: {error}") from error

    def score(self, pauses: Sequence[Samples]) -> list[float]:
        """The probability that the turn has ended, for the audio before each of several pauses.

        Raises:
            ValueError: the output is not one probability for each pause.
        """
        inputs = np.zeros((len(pauses), AUDIO_SAMPLES), dtype=np.float32)
        for row, samples in zip(inputs, pauses, strict=True):
            last = samples[-AUDIO_SAMPLES:]
            row[AUDIO_SAMPLES - len(last) :] = last
        (found, *_) = self._session.run(None, {self._input: inputs})
        probabilities: NDArray[np.float64] = np.asarray(found, dtype=np.float64)
        if probabilities.shape not in ((len(pauses),), (len(pauses), 1)):
            raise ValueError(f"probabilities of shape {probabilities.shape} for {len(pauses)} rows")
        if not np.all((probabilities >= 0) & (probabilities <= 1)):
            raise ValueError(f"probabilities outside 0 to 1: {probabilities.tolist()}")
        return [float(each) for each in probabilities.reshape(-1)]
