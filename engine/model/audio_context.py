"""Decides how much of a window is encoded: all 30 s, or its audio and a margin after it. Plain Python."""

from collections.abc import Sequence

from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.checkpoint.checkpoint import AudioContext
from tutti_server.engine.config import AudioContext as Choice

_FRAME_SAMPLES = SAMPLE_RATE // 100
"""Samples of a mel frame of 10 ms."""
STATES_STEP = 10
"""Lengths of windows are multiples of this many encoder states (0.2 s) if the checkpoint was trained on short windows.
On a CPU, windows of equal length share an encoder call."""
MARGIN_FRAMES = 100
"""Mel frames of silence (1 s) after the audio of an interim, if the checkpoint was trained on full windows."""
LADDER = (200, 300, 400, 500, 750, 1_000)
"""Lengths of such an interim in encoder states, 4 to 20 s. An interim gets the shortest that holds its audio and its
margin, else a full window. The lengths are few, so that on a CPU windows share them."""


class WindowLengths:
    """Decides by a window's own audio, never by its neighbours, because they must not change its text."""

    def __init__(self, choice: Choice, trained: AudioContext | None, n_full: int) -> None:
        """Choose the lengths that windows may have.

        Args:
            choice: the setting `audio_context`.
            trained: how short the checkpoint's windows may be; `None` if it was trained on full windows only.
            n_full: encoder states of a full window.
        """
        self._trained = None if choice == "full" else trained
        self._n_full = n_full
        self.ladder: Sequence[int] = ()
        """The lengths of interims besides the full one, from short to long."""
        if choice == "interims" and trained is None:
            self.ladder = tuple(each for each in LADDER if each < n_full)

    @property
    def are_full(self) -> bool:
        """Whether every window is encoded in full."""
        return not self._trained and not self.ladder

    @property
    def max_short(self) -> int:
        """The most encoder states of a window that is not full; 0 where all are."""
        if self.are_full:
            return 0
        return self._n_full - STATES_STEP if self._trained else self.ladder[-1]

    def n_states(self, n_samples: int, is_interim: bool) -> int:
        """Encoder states of a window."""
        n_frames = -(-n_samples // _FRAME_SAMPLES)
        if self._trained:
            n_frames = max(n_frames + self._trained.margin_frames, self._trained.min_frames)
            n_states = -(-n_frames // 2)
            return min(self._n_full, -(-n_states // STATES_STEP) * STATES_STEP)
        if not is_interim:
            return self._n_full
        return next((each for each in self.ladder if 2 * each >= n_frames + MARGIN_FRAMES), self._n_full)
