"""Forecasts how many live sessions the engines have time for, from what they need for those that are open.

All finals must be decoded soon, and interims now and then. The finals of a session come seconds after it was opened, so
a burst of newcomers cannot be judged by how long finals wait: none of theirs has come yet.

There is one measure for any number of engines and gateways. What engines report is added up, and each second has as
many seconds of their time as there are engines. Sessions and finals are those of all gateways, so that each gateway
comes to the same result, also one that has just started.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from app.service.engine_work import EngineWork, WorkDone
from app.service.final_waits import FinalWaits
from app.service.interim_load import InterimLoad
from engine.api import EngineStats

RECENT_S = 20.0
"""The period over which finals and sessions are counted, in seconds."""
FINAL_AFTER_S = 5.0
"""How long after its opening a session has finals at its usual rate, in seconds: speech, and the pause after it."""
INTERIM_AFTER_S = 2.0
"""How long after its opening a session has interims at its usual rate, in seconds."""
MAX_LOAD = 0.6
"""The largest fraction of the engine's time that the finals of all sessions may take. Interims need some, too."""
MAX_BUSY = 0.9
"""The largest fraction of the engine's time that the finals and the interims of all sessions may take."""
INTERIM_EVERY_S = 2.0
"""How often a session must have an interim while it speaks, in seconds, unless the operator wants fewer.

Where there is no time for that, text comes in pieces of half a sentence.
"""
LATE_SHARE = 0.05
"""The fraction of finals that may wait longer than the limit."""
FIRST_FINAL_EVERY_S = 6.0
"""How often a session is supposed to have a final while nothing is known of the sessions, in seconds."""
DECODE_FACTOR = 2.0
"""The time for a final, as a multiple of the time for encoding it, while nothing is known of the engine."""
FIRST_PART = 0.5
"""The fraction of the supposed capacity that is given away while nothing is known."""
FEWEST = 4
"""As many sessions may be open while nothing is known: the encoder's time may have been measured at a bad moment."""
MIN_SESSION_S = 20.0
"""The least time that sessions must have been open, added up, before their finals tell something."""
MIN_FINALS = 5
"""The least number of finals whose time has a meaningful mean."""
GROWTH = 2.0
"""How many times the sessions that were open all the time may be open now, as newcomers may speak more than they."""
SAMPLE_EVERY_S = 0.25
"""The least time between two samples, in seconds. In between, sessions that end are taken off the earlier one."""


def max_load(final_s: float, max_wait_s: float) -> float:
    """The largest fraction of its time that an engine may spend on finals, if few of them are to wait for long.

    In a queue of which nothing else is known, with the load r, a fraction of r * exp(-(1 - r) * wait / time) waits
    longer than `wait` (M/M/1). The engine decodes several at once, so fewer do.

    Args:
        final_s: the mean time for a final, in seconds.
        max_wait_s: the wait that only `LATE_SHARE` of the finals may exceed, in seconds.
    """
    if final_s <= 0:
        return MAX_LOAD
    loads = (percent / 100 for percent in range(round(100 * MAX_LOAD), 1, -1))
    return next((load for load in loads if load * math.exp((load - 1) * max_wait_s / final_s) <= LATE_SHARE), 0.01)


class Totals(NamedTuple):
    """Figures of all gateways together."""

    n_sessions: int
    """Open sessions."""
    n_finals: int
    """Finals of live sessions so far."""


class _Sample(NamedTuple):
    """What is known at one time."""

    at_s: float
    n_sessions: int
    """Open sessions; the fewest of them, if they changed at this time."""
    n_finals: int
    """Finals of these sessions so far."""
    work: WorkDone


class LiveLoad:
    """Counts sessions and finals, and says how many sessions may be open."""

    def __init__(
        self,
        stats: Callable[[], EngineStats],
        totals: Callable[[], Totals],
        max_wait_s: float,
        interims: InterimLoad,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with engines of which nothing is known but the speed of their encoders.

        Args:
            stats: returns the engines' counters as they are now.
            totals: returns the figures of all gateways as they are now.
            max_wait_s: how long finals may wait for the engine, in seconds.
            interims: says how often a session that speaks has an interim now.
            clock: the time in seconds.
        """
        self._stats = stats
        self._totals = totals
        self._max_wait_s = max_wait_s
        self.interims = interims
        self._clock = clock
        self._final_waits = FinalWaits(clock)
        self._work = EngineWork()
        self._samples: deque[_Sample] = deque()

    def look(self) -> None:
        """Note the figures as they are now. Call it before and after each change, and now and then."""
        self._sample()

    @property
    def late_wait_s(self) -> float:
        """The wait that few of the last finals of this gateway exceeded, in seconds; see `FinalWaits.late_s`."""
        return self._final_waits.late_s

    def note_final(self, wait_s: float) -> None:
        """Note that the engine has begun a final of a session of this gateway, after this many seconds in the queue."""
        self._final_waits.add(wait_s)
        self._sample()

    def room(self) -> float:
        """How many sessions may be open at all gateways together."""
        self._sample()
        stats = self._stats()
        # While all of several engines are being replaced, finals wait, and nothing more is known than of one.
        n_engines = max(stats.n_engines, 1)
        supposed_s, finals_per_s = DECODE_FACTOR * stats.utterance_encode_s, self._finals_per_s(stats.waiting_finals)
        first = max(FIRST_PART * n_engines * self._capacity(supposed_s, 1 / FIRST_FINAL_EVERY_S), FEWEST)
        final_s = self._final_s()
        if finals_per_s is None or (final_s is None and stats.waiting_finals):
            return first
        final_s = supposed_s if final_s is None else final_s
        if stats.waiting_finals * final_s > self._max_wait_s * n_engines:
            # Those that wait are late already. How long they wait is known only when they have left the queue.
            return 0.0
        grown = max(first, GROWTH * min(sample.n_sessions for sample in self._samples))
        busy = final_s * finals_per_s + self._interim_load()
        # A few sessions take more of the time for each: their windows share hardly any encoder call and decode step.
        most = max(first, MAX_BUSY * n_engines / busy) if busy else math.inf
        return min(grown, n_engines * self._capacity(final_s, finals_per_s), most)

    def _capacity(self, final_s: float, finals_per_s: float) -> float:
        """The number of sessions for whose finals one engine has time."""
        load = final_s * finals_per_s
        return max_load(final_s, self._max_wait_s) / load if load else math.inf

    def _interim_load(self) -> float:
        """The seconds of an engine's time in a second that one session needs for as many interims as it must have."""
        first, last = self._recent_samples()
        session_s = self._session_s(INTERIM_AFTER_S)
        if not session_s:
            return 0.0
        needed_every_s = max(INTERIM_EVERY_S, self.interims.usual_interval_s)
        fraction = self.interims.interval_s() / needed_every_s
        return (last.work.interim_busy_s - first.work.interim_busy_s) / session_s * fraction

    def _sample(self) -> None:
        now_s, totals = self._clock(), self._totals()
        if self._samples and now_s - self._samples[-1].at_s < SAMPLE_EVERY_S:
            last = self._samples[-1]
            self._samples[-1] = last._replace(n_sessions=min(last.n_sessions, totals.n_sessions))
            return
        # The counters of many engines take a moment to add up.
        self._samples.append(_Sample(now_s, *totals, self._work.note(self._stats())))
        # The last one before the period tells how it began.
        while len(self._samples) > 1 and self._samples[1].at_s <= now_s - RECENT_S - FINAL_AFTER_S:
            self._samples.popleft()

    def _final_s(self) -> float | None:
        """The mean time that the engine needs for a final, in seconds; None if too few are known."""
        first, last = self._samples[0], self._samples[-1]
        n_finals = last.work.n_finals - first.work.n_finals
        return (last.work.final_busy_s - first.work.final_busy_s) / n_finals if n_finals >= MIN_FINALS else None

    def _finals_per_s(self, n_waiting: int) -> float | None:
        """The finals of one session in a second, rather too many than too few; None if too little is known.

        Args:
            n_waiting: finals that the engine has not begun.
        """
        first, last = self._recent_samples()
        n_finals = max(last.n_finals - first.n_finals, 0) + n_waiting
        session_s = self._session_s(FINAL_AFTER_S)
        if session_s < MIN_SESSION_S:
            return None
        # With the standard deviation of such a count. Else newcomers, who try again and again, would all be accepted
        # at the moments at which the count is low by chance.
        return (n_finals + math.sqrt(n_finals)) / session_s

    def _recent_samples(self) -> tuple[_Sample, _Sample]:
        """The samples at the beginning and at the end of the period."""
        begin_s = self._samples[-1].at_s - RECENT_S
        first = next((sample for sample in reversed(self._samples) if sample.at_s <= begin_s), self._samples[0])
        return first, self._samples[-1]

    def _session_s(self, after_s: float) -> float:
        """How long sessions were open, added up, in the period of `_recent_samples` moved back by this time.

        The sessions of the first sample are supposed to have been open before: this gateway has just started.
        """
        first, last = self._recent_samples()
        begin_s, end_s = first.at_s - after_s, last.at_s - after_s
        total_s, at_s = 0.0, -math.inf
        samples = list(self._samples)
        for sample, following in zip(samples, [*samples[1:], None], strict=True):
            until_s = end_s if following is None else min(following.at_s, end_s)
            total_s += sample.n_sessions * max(until_s - max(at_s, begin_s), 0.0)
            at_s = until_s
        return total_s
