"""An operator's model of turns: from the audio before a pause it tells whether the speaker has finished.

`AudioTurnModel` runs a file of ONNX Runtime over several pauses in one call; `TurnBatcher` collects the pauses of all
sessions of a process. The interface is one input, `(batch, 128000)` float32, the last 8 s of the utterance at 16 kHz
with silence before it if it is shorter, and one output, `(batch,)` or `(batch, 1)`: the probability, 0 to 1, that the
turn has ended. A model with other features, such as log-mel, must contain their computation.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.errors import SettingsError
from app.media.pcm import Samples
from engine.api import SAMPLE_RATE

INPUT_SAMPLES = 8 * SAMPLE_RATE
"""The samples of one input: 8 s."""
MAX_BATCH = 16
"""The most pauses in one call, so that no pause waits for many others."""


class AudioTurnModel:
    """The model. One thread may use it at a time."""

    def __init__(self, path: Path) -> None:
        """Load the model, and try it with silence.

        Raises:
            SettingsError: ONNX Runtime is not installed, or the file holds no such model.
        """
        try:
            import onnxruntime
        except ImportError as error:
            raise SettingsError(
                "turn_model: expected the package onnxruntime: pip install 'tutti-asr[turns]'"
            ) from error
        if not path.is_file():
            raise SettingsError(f"turn_model: expected an ONNX file, got {path}, which is no file")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            self._input = self._session.get_inputs()[0].name
            for n in (1, 2):
                self.judge([np.zeros(0, dtype=np.float32)] * n)
        except Exception as error:  # ONNX Runtime has a class of its own for every reason.
            expected = f"a model with one input, (batch, {INPUT_SAMPLES}) float32, and a probability for each row"
            raise SettingsError(f"turn_model: {path}: expected {expected}, got: {error}") from error

    def judge(self, pauses: Sequence[Samples]) -> list[float]:
        """The probability that the turn has ended, for the audio before each of several pauses.

        Raises:
            ValueError: the output is not one probability for each pause.
        """
        inputs = np.zeros((len(pauses), INPUT_SAMPLES), dtype=np.float32)
        for row, samples in zip(inputs, pauses, strict=True):
            last = samples[-INPUT_SAMPLES:]
            row[INPUT_SAMPLES - len(last) :] = last
        (found, *_) = self._session.run(None, {self._input: inputs})
        probabilities: NDArray[np.float64] = np.asarray(found, dtype=np.float64)
        if probabilities.shape not in ((len(pauses),), (len(pauses), 1)):
            raise ValueError(f"probabilities of shape {probabilities.shape} for {len(pauses)} rows")
        if not np.all((probabilities >= 0) & (probabilities <= 1)):
            raise ValueError(f"probabilities outside 0 to 1: {probabilities.tolist()}")
        return [float(each) for each in probabilities.reshape(-1)]


class _Request:
    """A pause that waits for the model."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.probability: float | None = None


class TurnBatcher:
    """Runs a model in a thread of its own. Pauses that come during a call share the next one."""

    def __init__(self, judge: Callable[[Sequence[Samples]], Sequence[float]]) -> None:
        """Make a batcher of `AudioTurnModel.judge`."""
        self._judge = judge
        self._thread = ThreadPoolExecutor(1, "turn-model")
        self._waiting: list[_Request] = []
        """Bounded by the number of channels: each waits for one pause at a time."""
        self._turn = asyncio.Lock()

    async def judge(self, samples: Samples) -> float:
        """The probability that the turn has ended, for the audio before a pause. Cancelling is safe."""
        request = _Request(samples)
        self._waiting.append(request)
        try:
            async with self._turn:
                while request.probability is None:
                    await self._run()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
        return request.probability

    async def _run(self) -> None:
        """Run the model once for those that have waited longest."""
        batch = self._waiting[:MAX_BATCH]
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._judge, [each.samples for each in batch])
        for request, probability in zip(batch, found, strict=True):
            request.probability = probability
        # A request whose session has ended meanwhile is not there any more.
        self._waiting = [each for each in self._waiting if each.probability is None]
