"""Silero's speech detector: a small neural network that judges 32 ms of audio at a time and remembers what came before.

`SileroModel` runs the network, for many channels in one call. `SileroDetector` decides for one channel. The weights are
those of the package `silero-vad`. Its Python code imports PyTorch and is not used: ONNX Runtime runs the network.
"""

import importlib.util
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

PACKAGES = ("onnxruntime", "silero_vad")
"""The packages that this detector needs; the extra `silero` of `tutti-asr` installs them."""
DISTRIBUTIONS = ("onnxruntime", "silero-vad")
"""The names of the packages on the package index."""
CHUNK_SAMPLES = 512
"""The network judges this many new samples at a time: 32 ms."""
CONTEXT_SAMPLES = 64
"""The samples before a chunk that are part of the network's input."""
INPUT_SAMPLES = CONTEXT_SAMPLES + CHUNK_SAMPLES
MEMORY_SHAPE = (2, 128)
"""The shape of what the network remembers of one channel: the two states of an LSTM."""
DEFAULT_THRESHOLD = 0.5
"""The probability from which a chunk is taken for speech. Source: snakers4/silero-vad, `get_speech_timestamps`."""
HYSTERESIS = 0.15
"""Speech goes on while the probability is not lower than the threshold by more than this. Source: as above."""
MIN_LOW_THRESHOLD = 0.01
"""The lowest probability at which speech goes on, whatever the threshold. Source: as above."""

Memory = NDArray[np.float32]
"""What the network remembers of one channel."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Consecutive chunks of one channel that wait for the network."""

    inputs: Samples
    """`(n_chunks, INPUT_SAMPLES)`."""
    memory: Memory
    """What the network remembers before the first chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What the network found in a stretch."""

    probabilities: tuple[float, ...]
    """The probability of speech in each chunk."""
    memory: Memory
    """What the network remembers after the last chunk."""


def is_installed() -> bool:
    """Whether the packages that this detector needs are there. Imports none of them."""
    return all(importlib.util.find_spec(name) for name in PACKAGES)


class SileroModel:
    """The network. It may be used in several threads at a time; ONNX Runtime releases the GIL."""

    def __init__(self) -> None:
        """Load the network: 60 ms. Raises `ImportError` without one of `PACKAGES`."""
        import onnxruntime

        package = importlib.util.find_spec("silero_vad")
        if package is None or not package.submodule_search_locations:
            raise ImportError("silero_vad is not installed")
        path = Path(package.submodule_search_locations[0]) / "data" / "silero_vad_16k_op15.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._rate = np.array(SAMPLE_RATE, dtype=np.int64)

    def judge(self, stretches: Sequence[Stretch]) -> list[Judgement]:
        """Judge stretches of different channels, with one call of the network for each chunk of the longest.

        A stretch gets the same probabilities alone and beside others.
        """
        # Longest first, so that those that still have a chunk are always the first rows.
        order = sorted(range(len(stretches)), key=lambda index: -len(stretches[index].inputs))
        lengths = [len(stretches[index].inputs) for index in order]
        memory = np.stack([stretches[index].memory for index in order], axis=1)  # (2, stretches, 128)
        found: list[list[float]] = [[] for _ in stretches]
        n_rows = len(order)
        for at in range(lengths[0] if lengths else 0):
            while lengths[n_rows - 1] <= at:
                n_rows -= 1
            rows = order[:n_rows]
            inputs = np.stack([stretches[index].inputs[at] for index in rows])
            probabilities, memory[:, :n_rows] = self._session.run(
                ["output", "stateN"], {"input": inputs, "state": memory[:, :n_rows], "sr": self._rate}
            )
            for index, probability in zip(rows, probabilities[:, 0].tolist(), strict=True):
                found[index].append(probability)
        memories = dict(zip(order, memory.transpose(1, 0, 2).copy(), strict=True))
        return [Judgement(tuple(each), memories[index]) for index, each in enumerate(found)]


class SileroDetector:
    """Decides for one channel. Chunks that were not judged ahead are judged when their last frame comes.

    A frame gets the decision of the last chunk that is complete with it, so that no decision waits for later audio.
    """

    memory_samples = 0
    """A renewed detector knows nothing of earlier audio. Measured, it decides about as well as one that goes on."""

    def __init__(self, model: SileroModel, threshold: float = DEFAULT_THRESHOLD) -> None:
        """Make a detector that has received nothing yet."""
        self._model = model
        self._default_threshold = self._threshold = threshold
        self.renew()

    def renew(self) -> None:
        """Decide from now on as a new detector that has received nothing yet."""
        self._is_speech = False
        self._unjudged = np.zeros(CONTEXT_SAMPLES, dtype=np.float32)
        """The context of the next chunk to be complete, and its samples so far."""
        self._memory: Memory = np.zeros(MEMORY_SHAPE, dtype=np.float32)
        """What the network remembers after the last chunk that was judged, those of `_ahead` included."""
        self._ahead: deque[float] = deque()
        """The probabilities of the next chunks to be complete, which were judged ahead."""

    def set_threshold(self, threshold: float | None) -> None:
        """Change the probability from which a chunk is taken for speech, 0 to 1; `None` restores the first one."""
        self._threshold = self._default_threshold if threshold is None else threshold

    def prepare(self, frames: Samples) -> None:
        """Nothing is prepared here: see `look_ahead`, which many channels share."""

    def is_speech(self, frame: Samples) -> bool:
        """Whether a frame of mono float32 samples at 16 kHz, of at most `CHUNK_SAMPLES`, holds speech."""
        self._unjudged = np.concatenate((self._unjudged, frame))
        if len(self._unjudged) >= INPUT_SAMPLES:
            if not self._ahead:
                (judgement,) = self._model.judge([self._stretch(self._unjudged)])
                self._use(judgement)
            self._decide(self._ahead.popleft())
            self._unjudged = self._unjudged[CHUNK_SAMPLES:]
        return self._is_speech

    def look_ahead(self, samples: Samples) -> Stretch | None:
        """The chunks that will be complete with these samples, which come next; `None` if there are none to judge."""
        stretch = self._stretch(np.concatenate((self._unjudged, samples)))
        return stretch if len(stretch.inputs) else None

    def accept(self, stretch: Stretch, judgement: Judgement) -> None:
        """Use what the network found in a stretch of `look_ahead`, if nothing was judged or renewed meanwhile."""
        if stretch.memory is self._memory:
            self._use(judgement)

    def _stretch(self, audio: Samples) -> Stretch:
        """The chunks of `audio`, which begins as `_unjudged`, that were not judged yet."""
        audio = audio[len(self._ahead) * CHUNK_SAMPLES :]
        if len(audio) < INPUT_SAMPLES:
            return Stretch(np.zeros((0, INPUT_SAMPLES), dtype=np.float32), self._memory)
        return Stretch(sliding_window_view(audio, INPUT_SAMPLES)[::CHUNK_SAMPLES], self._memory)

    def _use(self, judgement: Judgement) -> None:
        self._ahead += judgement.probabilities
        self._memory = judgement.memory

    def _decide(self, probability: float) -> None:
        low = max(self._threshold - HYSTERESIS, MIN_LOW_THRESHOLD)
        self._is_speech = probability >= (low if self._is_speech else self._threshold)
