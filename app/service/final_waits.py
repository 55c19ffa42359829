"""How long recent finals waited in the engine's queue: the sign that the engine does not keep up."""

import time
from collections import deque
from collections.abc import Callable

RECENT_S = 20.0
"""The period whose queue waits of finals count, in seconds."""
LATE_SHARE = 0.05
"""The fraction of finals that may wait longer than `max_final_wait_s`."""
MIN_WAITS = 3
"""The fewest waits that say something."""
MAX_WAITS = 256
"""The most waits that are kept; older ones are dropped first, so memory stays bounded."""


class FinalWaits:
    """The waits of the finals of the last seconds.

    Old waits are dropped, so a service that was overloaded accepts sessions again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: deque[tuple[float, float]] = deque(maxlen=MAX_WAITS)
        """The clock time at which each wait ended, and its length, both in seconds."""

    def add(self, wait_s: float) -> None:
        """Note that a final has left the engine's queue after this time."""
        self._waits.append((self._clock(), wait_s))

    @property
    def late_s(self) -> float:
        """The wait that `LATE_SHARE` of the last `RECENT_S` exceed; 0 if there were fewer than `MIN_WAITS`."""
        since = self._clock() - RECENT_S
        while self._waits and self._waits[0][0] < since:
            self._waits.popleft()
        if len(self._waits) < MIN_WAITS:
            return 0.0
        waits_s = sorted(wait_s for _, wait_s in self._waits)
        return waits_s[-1 - int(LATE_SHARE * len(waits_s))]
