"""Whether the engine keeps up with the live sessions there are: how long their finals wait for it."""

import time
from collections import deque
from collections.abc import Callable

RECENT_S = 10.0
LEAST_WAITS = 3
"""Fewer say nothing about how it goes."""
MOST_WAITS = 256


class FinalWaits:
    """The waits of the last seconds. Older ones are forgotten, so that a service that was too busy takes in again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: deque[tuple[float, float]] = deque(maxlen=MOST_WAITS)
        """When they ended, and how long they were; the oldest make way."""

    def note(self, wait_s: float) -> None:
        """A final has left the engine's queue."""
        self._waits.append((self._clock(), wait_s))

    @property
    def mean_s(self) -> float:
        """Of the last `RECENT_S`; 0 where there were hardly any."""
        since = self._clock() - RECENT_S
        while self._waits and self._waits[0][0] < since:
            self._waits.popleft()
        if len(self._waits) < LEAST_WAITS:
            return 0.0
        return sum(wait_s for _, wait_s in self._waits) / len(self._waits)
