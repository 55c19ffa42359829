"""Measures how fast a device is, before the first window comes."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from tutti_server.engine.api import SAMPLE_RATE

USUAL_UTTERANCE_SAMPLES = 6 * SAMPLE_RATE
"""Samples of an utterance of usual length: a sentence or two."""
PROBE_S = 1.0
"""After this many seconds a CPU encodes no further window for the probe: no large model starts later because of it."""
PROBE_WINDOWS = 5
"""Windows that a CPU encodes for the probe: the first of a length takes up to three times as long as later ones."""
PROBE_STEPS = 6
"""Decode steps of the probe: enough to meet one that other programs do not disturb."""


class Speed(NamedTuple):
    """How fast a device is."""

    window_s: float
    """Seconds of encoder time per full window."""
    step_s: float = 0.0
    """Seconds of a decode step."""
    n_running: int = 1
    """The sequences of this step."""

    def shared(self, share: float) -> "Speed":
        """Return the speed of an engine that has this part of the device while others are as busy.

        Forecasts begin there. Later an engine measures what it gets: all of the device while the others are idle, so
        that a forecast is too high until they are busy.
        """
        return Speed(self.window_s / share, self.step_s / share, self.n_running)


def shortest_s(
    work: Callable[[], object],
    n_times: int,
    max_s: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Do some work several times, and return the shortest time: other programs and first calls only add to it.

    Args:
        work: what to measure. It returns when the device has done it.
        max_s: after this many seconds it is not done again.
    """
    times_s: list[float] = []
    while not times_s or (len(times_s) < n_times and sum(times_s) < max_s):
        begin_s = clock()
        work()
        times_s.append(clock() - begin_s)
    return min(times_s)
