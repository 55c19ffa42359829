"""Tells by its loudness whether a frame is quiet: a detector goes on taking audio for speech after speech has ended."""

import math
from collections import deque

import numpy as np

from tutti_server.app.media.pcm import Samples

BLOCK_FRAMES = 25
"""Frames of which the loudest and the quietest are remembered together (0.5 s)."""
MEMORY_BLOCKS = 6
"""Blocks that are remembered (3 s)."""
FLOOR_FACTOR = 6.0
"""A frame is quiet below this multiple of the energy of the quietest frame: noise varies by some decibels."""
SPEECH_FACTOR = 1e-2
"""No frame is quiet above this fraction of the energy of the loudest frame (20 dB below it)."""
PEAK_FACTOR = 1e-4
"""Every frame is quiet below this fraction of the energy of the loudest frame (40 dB below it)."""


def energies(frames: Samples) -> list[float]:
    """The energy of each frame, a row of float32 samples. A frame has the same one whatever frames are beside it."""
    found: list[float] = np.vecdot(frames, frames).tolist()
    return found


class Loudness:
    """Compares each frame with the loudest and the quietest one of the last seconds."""

    def __init__(self, n_remembered: int = 0) -> None:
        """Begin without any frame. After a renewal the last `n_remembered` frames are compared first."""
        self._energies: deque[float] = deque(maxlen=n_remembered)
        """The energy of each of these frames."""
        self._blocks: deque[tuple[float, float]] = deque(maxlen=MEMORY_BLOCKS)
        """The least and the most energy in each of the last blocks."""
        self._floor, self._peak = math.inf, 0.0
        """The least and the most of all these blocks."""
        self._least = self._most = 0.0
        self._n_frames = 0

    def renew(self) -> None:
        """Compare from now on as if the frames that are remembered were the first ones."""
        self._blocks.clear()
        self._floor, self._peak = math.inf, 0.0
        self._n_frames = 0
        for energy in self._energies:
            self._compare(energy)

    def is_quiet(self, energy: float) -> bool:
        """Whether the next frame, which has this energy, is no louder than the noise or the echo after speech."""
        self._energies.append(energy)
        return self._compare(energy)

    def _compare(self, energy: float) -> bool:
        if self._n_frames == 0:
            self._least = self._most = energy
        elif energy < self._least:
            self._least = energy
        elif energy > self._most:
            self._most = energy
        least = self._least if self._least < self._floor else self._floor
        most = self._most if self._most > self._peak else self._peak
        self._n_frames += 1
        if self._n_frames == BLOCK_FRAMES:
            self._blocks.append((self._least, self._most))
            self._floor, self._peak = min(low for low, _ in self._blocks), max(high for _, high in self._blocks)
            self._n_frames = 0
        return energy <= most * SPEECH_FACTOR and (energy <= least * FLOOR_FACTOR or energy <= most * PEAK_FACTOR)
