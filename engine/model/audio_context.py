"""How much of a window is encoded: all 30 s of it, or its audio and a margin behind it. Plain Python."""

from collections.abc import Sequence

from engine.api import SAMPLE_RATE
from engine.checkpoint.checkpoint import AudioContext
from engine.config import AudioContext as Choice

_FRAME_SAMPLES = SAMPLE_RATE // 100
STATES_STEP = 10
"""Windows of a checkpoint that was trained on short ones have multiples of 0.2 s, so that neighbours may share one."""
MARGIN_FRAMES = 100
"""Behind the audio of an interim whose checkpoint was trained on full windows."""
LADDER = (200, 300, 400, 500, 750, 1_000)
"""Encoder states of such an interim, 4 to 20 s, the next ones up; behind the last it is full. They are few, so that
windows share them, and a GPU has a graph for each."""


class WindowLengths:
    """Decides by a window's audio, never by its neighbours: these must not change what is read."""

    def __init__(self, choice: Choice, trained: AudioContext | None, n_full: int) -> None:
        """Args:
        trained: how short the checkpoint's windows may be; `None` if it was trained on full ones.
        n_full: encoder states of a full window.
        """
        self._trained = None if choice == "full" else trained
        self._n_full = n_full
        self.ladder: Sequence[int] = ()
        """Shorter lengths that come back, from short to long."""
        if choice == "interims" and trained is None:
            self.ladder = tuple(each for each in LADDER if each < n_full)

    def n_states(self, n_samples: int, is_interim: bool) -> int:
        """Encoder states of a window with so much audio."""
        n_frames = -(-n_samples // _FRAME_SAMPLES)
        if self._trained:
            n_frames = max(n_frames + self._trained.margin_frames, self._trained.min_frames)
            n_states = -(-n_frames // 2)
            return min(self._n_full, -(-n_states // STATES_STEP) * STATES_STEP)
        if not is_interim:
            return self._n_full
        return next((each for each in self.ladder if 2 * each >= n_frames + MARGIN_FRAMES), self._n_full)
