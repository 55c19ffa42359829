"""Says how much longer sessions should wait between two interims while the engine has no time for all of them.

Without it, every session would have an interim in the engine's queue all the time, and replace it again and again. All
sessions of a gateway get the same answer, and all gateways see the same counters: so interims thin out evenly.
"""

import time
from collections.abc import Callable

from tutti_server.app.session.decoding.interim_schedule import MAX_BUSY_SHARE, MAX_INTERVAL_SAMPLES
from tutti_server.engine.api import SAMPLE_RATE, EngineStats

USUAL_WAIT_S = 0.8
"""Interims may wait this long in the engine's queue, in seconds, before sessions ask for fewer.

A waiting interim is replaced by a newer one every 0.4 s, so that its text is no older. The wait is measured too long
where interims are withdrawn: on an H200 with 350 sessions of turbo, full windows in 8 bits, 90 of 100 interims that
were due came in place of the 80 with 0.5 s, no later.
"""
GAIN = 8.0
"""Seconds by which the interval grows for each second that interims wait longer than `USUAL_WAIT_S`.

In a queue that is always full, an interim then waits for about a tenth of the interval.
"""
MAX_EXTRA_S = 10.0
"""The most by which the interval grows, in seconds: few utterances are longer."""
SAMPLE_EVERY_S = 0.25
"""The least time between two looks at the engine's counters, in seconds."""
MEMORY_S = 5.0
"""Over about this many seconds the figures are averaged."""


LONG_MEMORY_S = 10.0
"""Over about this many seconds the interval is averaged, for the forecast of load."""


class _Flow:
    """Windows that are somewhere: how many are there, and how many leave it in a second. Both are averaged."""

    def __init__(self) -> None:
        self.n_inside = 0.0
        self.per_s = 0.0
        self._seconds = 0.0
        """How long it was watched."""
        self._n_left: int | None = None
        """How many had left it at the last look; `None` before the first."""

    def look(self, n_inside: int, n_left: int, elapsed_s: float) -> None:
        """Note how many are there now, and how many have left so far."""
        if self._n_left is not None and n_left >= self._n_left:
            weight = min(elapsed_s / MEMORY_S, 1.0)
            self._seconds += elapsed_s
            self.n_inside += weight * (n_inside - self.n_inside)
            self.per_s += weight * ((n_left - self._n_left) / elapsed_s - self.per_s)
        # Else it is the first look, or another engine, whose counters begin at 0.
        self._n_left = n_left

    @property
    def time_s(self) -> float:
        if not self.n_inside:
            return 0.0
        return min(self.n_inside / self.per_s, self._seconds) if self.per_s else self._seconds


class InterimLoad:
    """Measures how long interims wait in the engine's queue, and says how much longer their interval should be.

    The wait is that of a place in the queue, whose window may be replaced meanwhile. By Little's law it is the number
    of places over the rate at which they are served. Both add up over engines, so that the quotient holds for any
    number of these.
    """

    def __init__(
        self,
        stats: Callable[[], EngineStats],
        usual_interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with an engine that keeps up.

        Args:
            usual_interval_s: the interval between two interims where the engine keeps up, in seconds.
            clock: the time in seconds.
        """
        self.usual_interval_s = usual_interval_s
        """The interval between two interims where the engine keeps up, in seconds."""
        self._stats = stats
        self._clock = clock
        self._at_s = clock()
        self._extra_s = 0.0
        self._interval_s = usual_interval_s
        self._waiting, self._running = _Flow(), _Flow()
        """Interims in the queue, and windows that are being decoded."""

    def extra_s(self) -> float:
        """By how many seconds the interval between two interims should be longer now. Quick enough for every frame."""
        now_s = self._clock()
        if now_s >= self._at_s + SAMPLE_EVERY_S:
            self._look(now_s - self._at_s)
            self._at_s = now_s
        return self._extra_s

    def interval_s(self) -> float:
        """About how much time lies between two interims of one who speaks now, in seconds."""
        self.extra_s()
        return self._interval_s

    def _look(self, elapsed_s: float) -> None:
        if elapsed_s > MEMORY_S:
            # There were no sessions for a while, and none has asked.
            self._waiting, self._running = _Flow(), _Flow()
            self._extra_s, self._interval_s = 0.0, self.usual_interval_s
        stats = self._stats()
        n_interims = sum(stats.interim_queue_s.counts)
        self._waiting.look(stats.waiting_interims, n_interims, elapsed_s)
        self._running.look(stats.running, stats.windows_done, elapsed_s)
        extra_s = GAIN * (self._waiting.time_s - USUAL_WAIT_S)
        extra_s = min(max(extra_s, 0.0), MAX_EXTRA_S)
        self._extra_s += min(elapsed_s / MEMORY_S, 1.0) * (extra_s - self._extra_s)
        answer_s = self._waiting.time_s + self._running.time_s
        slowed_s = min(answer_s / MAX_BUSY_SHARE, MAX_INTERVAL_SAMPLES / SAMPLE_RATE)
        interval_s = max(self.usual_interval_s, slowed_s, answer_s) + self._extra_s
        self._interval_s += min(elapsed_s / LONG_MEMORY_S, 1.0) * (interval_s - self._interval_s)
