"""What lies between a client and its server: delays that vary, audio held back, connections lost. No I/O.

Everything is drawn from a seed: the same command makes the same trouble.
"""

from dataclasses import dataclass

import numpy as np

BURST_EVERY_S = 10.0
"""On average, from the end of one time in which the network holds audio back to the next."""
BURST_S = (0.5, 2.0)
"""How long it does so: at least and at most."""
QUIET_EDGE_S = 1.0
"""No connection is lost in so much of a recording's beginning, or of its end."""
APART_S = 2.0
"""Between two losses, where there is room for it."""


@dataclass(frozen=True, slots=True)
class Network:
    jitter_s: float = 0.0
    """The most by which a chunk is delayed."""
    has_bursts: bool = False
    """Now and then all audio of some time arrives at its end, at once."""
    losses_per_min: float = 0.0
    """Connections lost per minute of audio; at least one in every recording if above 0."""

    @property
    def is_plain(self) -> bool:
        return self == Network()

    def delays(self, spoken_s: list[float], seed: int) -> list[float]:
        """By how much chunks that were spoken up to these times leave late. None overtakes the one before it."""
        random = np.random.default_rng((seed, 0))
        leave_s = np.array(spoken_s) + random.uniform(0.0, self.jitter_s, len(spoken_s))
        if self.has_bursts and spoken_s:
            for begin_s, end_s in _bursts(spoken_s[-1], random):
                leave_s = np.where((leave_s >= begin_s) & (leave_s < end_s), end_s, leave_s)
        late_s: list[float] = (np.maximum.accumulate(leave_s) - spoken_s).tolist()
        return late_s

    def losses(self, audio_s: float, seed: int) -> list[float]:
        """When connections are lost, in seconds of the recording."""
        if not self.losses_per_min:
            return []
        n = max(round(self.losses_per_min * audio_s / 60), 1)
        # Anywhere, but apart: drawn from what is left when the time between them is taken out.
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
