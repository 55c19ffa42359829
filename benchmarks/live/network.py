"""Simulates a network between a client and its server: jitter, bursts of audio and lost connections. No I/O.

Everything is drawn from a seed, so that the same command gives the same faults.
"""

from dataclasses import dataclass

import numpy as np

BURST_EVERY_S = 10.0
"""Mean time in seconds between two periods in which the network holds audio back."""
BURST_S = (0.5, 2.0)
"""Shortest and longest time for which the network holds audio back, in seconds."""
QUIET_EDGE_S = 1.0
"""No connection is lost in this many seconds at the beginning and at the end of a recording."""
APART_S = 2.0
"""Least seconds between two losses, if the recording is long enough."""


@dataclass(frozen=True, slots=True)
class Network:
    """The faults of a network."""

    jitter_s: float = 0.0
    """Longest delay of a chunk, in seconds."""
    has_bursts: bool = False
    """Whether the network now and then holds audio back and then delivers it at once."""
    losses_per_min: float = 0.0
    """Connections lost per minute of audio. Above 0, every recording loses at least one."""

    def delays(self, spoken_s: list[float], seed: int) -> list[float]:
        """The delay in seconds of each chunk, given when its last sample is spoken.

        No chunk overtakes the one before it.
        """
        random = np.random.default_rng((seed, 0))
        leave_s = np.array(spoken_s) + random.uniform(0.0, self.jitter_s, len(spoken_s))
        if self.has_bursts and spoken_s:
            for begin_s, end_s in _bursts(spoken_s[-1], random):
                leave_s = np.where((leave_s >= begin_s) & (leave_s < end_s), end_s, leave_s)
        late_s: list[float] = (np.maximum.accumulate(leave_s) - spoken_s).tolist()
        return late_s

    def losses(self, audio_s: float, seed: int) -> list[float]:
        """The times at which connections are lost, in seconds of the recording."""
        if not self.losses_per_min:
            return []
        n = max(round(self.losses_per_min * audio_s / 60), 1)
        # Anywhere but `apart_s` apart: they are drawn from the time without these gaps, which are then added back.
        room_s = max(audio_s - 2 * QUIET_EDGE_S, 0.0)
        apart_s = min(APART_S, room_s / n)
        drawn = np.sort(np.random.default_rng((seed, 1)).uniform(0.0, room_s - (n - 1) * apart_s, n))
        at_s: list[float] = (QUIET_EDGE_S + drawn + apart_s * np.arange(n)).tolist()
        return at_s


def _bursts(until_s: float, random: np.random.Generator) -> list[tuple[float, float]]:
    found, at_s = [], random.exponential(BURST_EVERY_S)
    while at_s < until_s:
        end_s = at_s + random.uniform(*BURST_S)
        found.append((at_s, end_s))
        at_s = end_s + random.exponential(BURST_EVERY_S)
    return found
