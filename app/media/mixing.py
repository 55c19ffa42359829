"""Mixes channels into one, and takes one of them where they cancel each other: one of them is inverted."""

from collections import deque
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.media.notices import Notice, OnNotice

CANCELLED_SHARE = 0.05
"""Channels cancel each other if the power of their mean is below this share of the louder one's.

Of two, sounds that are not alike give 0.5, and one that is on one side alone gives 0.25. Of more, one that is on one
channel alone gives less by the square of their number, and so the shares are less.
"""
MIXED_SHARE = 0.2
"""Channels are mixed again from this share on."""
RECENT_BLOCKS, RECENT_SHARE, SOUND_SHARE = 10, 0.02, 0.05
"""The newest 10 blocks (0.2 s) alone say that the channels cancel, if two conditions hold.

The power of their mean is less than 0.02 of the louder channel's. The louder channel has at least 0.05 of its usual
power, because echoes and noise in pauses may cancel by chance. Without this rule an inverted speaker, who takes turns
with another one, loses three seconds until the other one is forgotten.
"""
BLOCKS_PER_S = 50
"""How often it is decided whether a side is taken."""
FADE = 0.98
"""What remains of the power of past audio after each block; it counts for about a second."""
SIDES = ("left", "right")


class ChannelMixer:
    """Mixes the audio of one recording or stream, in pieces of any length."""

    def __init__(self, sample_rate: int, n_channels: int, gain: float, on_notice: OnNotice) -> None:
        """Begin.

        Args:
            n_channels: how many channels there are, at least two.
            gain: by what the mean of the channels is multiplied.
            on_notice: receives the first channel that is taken.
        """
        self._n_block = sample_rate // BLOCKS_PER_S
        self._n_left = self._n_block
        """Samples of the present block that have not come."""
        self._gain = gain
        self._on_notice = on_notice
        self._n_channels = n_channels
        self._share = (2 / n_channels) ** 2
        """By what the shares are less than those of two channels."""
        self._power = [0.0] * (n_channels + 1)
        """The power of the channels and of their mean, until now."""
        self._recent: deque[list[float]] = deque(maxlen=RECENT_BLOCKS)
        """The power of the channels and of their mean, in each of the last blocks."""
        self._block = [0.0] * (n_channels + 1)
        """The power of the channels and of their mean, in the present block."""
        self._side: int | None = None
        """The channel that is taken; `None` while both are mixed."""
        self._has_noticed = False

    def mix(self, groups: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mix the next samples, `(n, channels)` to `(n,)`. The result does not depend on how the audio was cut."""
        if not len(groups):
            return np.zeros(0, np.float32)
        # All blocks of a call are summed together: numpy takes longer for a call than for the samples of a block.
        channels = np.ascontiguousarray(groups.T)
        mean = sum(channels[1:], channels[0]) / np.float32(self._n_channels)
        starts = [0, *range(self._n_left, len(groups), self._n_block)]
        squares = np.square((*channels, mean), dtype=np.float64)
        mixed: NDArray[np.float32] = mean * np.float32(self._gain)
        for (start, end), powers in zip(
            pairwise((*starts, len(groups))), np.add.reduceat(squares, starts, axis=1).T.tolist(), strict=True
        ):
            if self._side is not None:
                mixed[start:end] = channels[self._side, start:end]
            self._block = [before + power for before, power in zip(self._block, powers, strict=True)]
            self._n_left -= end - start
            if not self._n_left:
                self._end_block()
        return mixed

    def _end_block(self) -> None:
        self._power = [before + power for before, power in zip(self._power, self._block, strict=True)]
        self._recent.append(self._block)
        self._block = [0.0] * (self._n_channels + 1)
        self._choose()
        self._n_left = self._n_block
        self._power = [FADE * power for power in self._power]

    def _choose(self) -> None:
        if self._side is None and len(self._recent) == RECENT_BLOCKS:
            recent = [sum(powers) for powers in zip(*self._recent, strict=True)]
            usual = max(self._power[:-1]) * (1 - FADE) * RECENT_BLOCKS
            loudest = max(recent[:-1])
            if recent[-1] < RECENT_SHARE * self._share * loudest and loudest > SOUND_SHARE * usual:
                self._power = recent
        loudest = max(self._power[:-1])
        if self._side is None and self._power[-1] < CANCELLED_SHARE * self._share * loudest:
            self._side = self._power.index(loudest)
            self._notify()
        elif self._side is not None and self._power[-1] > MIXED_SHARE * self._share * loudest:
            self._side = None

    def _notify(self) -> None:
        if self._has_noticed or self._side is None:
            return
        self._has_noticed = True
        is_stereo = self._n_channels == 2
        got = f"{'two' if is_stereo else 'some'} that cancel each other"
        taken = f"the {SIDES[self._side]} one" if is_stereo else f"channel {self._side}"
        message = f"audio: expected channels that add up, got {got}; {taken} is taken"
        self._on_notice(Notice("channels_cancel", message))
