"""Forecasts how many live sessions the engines have time for.

All finals must be decoded soon, and interims now and then. The finals of a session come seconds after it was opened, so
a burst of newcomers cannot be judged by how long finals wait: none of theirs has come yet. Until sessions were open for
a while, they are supposed to be usual ones, on engines that are as fast as these were lately, at first while they
warmed up. What the open sessions have needed then counts more and more.

There is one measure for any number of engines and gateways. What engines report is added up, and each second has as
many seconds of their time as there are engines. Sessions and finals are those of all gateways, so that each gateway
comes to the same result, also one that has just started.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tutti_server.app.service.engine_work import EngineWork, WorkDone
from tutti_server.app.service.interim_load import InterimLoad
from tutti_server.engine.api import EngineStats

RECENT_S = 20.0
"""The period over which finals, their waits and sessions are counted, in seconds."""
MIN_WAITS = 3
"""The fewest waits that say something."""
MAX_WAITS = 256
"""The most waits that are kept; older ones are dropped first, so memory stays bounded."""
FINAL_AFTER_S = 5.0
"""How long after its opening a session has finals at its usual rate, in seconds: speech, and the pause after it."""
INTERIM_AFTER_S = 2.0
"""How long after its opening a session has interims at its usual rate, in seconds."""
MAX_LOAD = 0.6
"""The largest fraction of the engine's time that the finals of all sessions may take. Interims need some, too."""
REST = 0.75
"""How long the engine's work in hand keeps a final waiting, as a multiple of a final's time: mostly an interim's call,
and the decode steps that follow for its window."""
MAX_BUSY = 0.85
"""The largest fraction of the engine's time that the finals and the interims of all sessions may take."""
INTERIM_EVERY_S = 2.0
"""How often a session must have an interim while it speaks, in seconds, unless the operator wants fewer.

Where there is no time for that, text comes in pieces of half a sentence.
"""
LATE_SHARE = 0.05
"""The fraction of finals that may wait longer than the limit."""
USUAL_FINAL_EVERY_S = 6.0
"""How often a session is supposed to have a final while nothing is known of the sessions, in seconds."""
USUAL_TALK = 0.5
"""The part of the time in which a session is supposed to have speech while nothing is known of the sessions."""
FIRST_PART = 0.7
"""The fraction of usual sessions that is let in before any was open for a while.

Newcomers may speak more than is usual, and the service itself takes time that the engine had while it was measured.
"""
USUAL_SESSION_S = 60.0
"""What is supposed of finals counts as much as what was seen of sessions that were open this long, added up."""
MIN_FINALS = 5
"""The least number of finals whose time has a meaningful mean."""
GROWTH = 2.0
"""How many times the sessions that were open all the time may be open now, as newcomers may speak more than they."""
SAMPLE_EVERY_S = 0.25
"""The least time between two samples, in seconds. In between, sessions that end are taken off the earlier one."""


def max_load(final_s: float, max_wait_s: float) -> float:
    """The largest fraction of its time that an engine may spend on finals, if few of them are to wait for long.

    Finals come at random, and all take about as long. Then, with the load r, a fraction of about
    r * exp(-2 * (1 - r) * wait / time) waits longer than `wait` for others (Kingman's approximation of M/D/1),
    besides the rest of the work that the engine has in hand.

    Args:
        max_wait_s: the wait that only `LATE_SHARE` of the finals may exceed, in seconds.
    """
    if final_s <= 0:
        return MAX_LOAD
    steepness = max(2 * (max_wait_s / final_s - REST), 0.0)
    loads = (percent / 100 for percent in range(round(100 * MAX_LOAD), 1, -1))
    return next((load for load in loads if load * math.exp((load - 1) * steepness) <= LATE_SHARE), 0.01)


def usual_sessions(stats: EngineStats, max_wait_s: float, interim_interval_s: float) -> float:
    """How many usual sessions the engines have time for, by the time that they need for a usual window."""
    # While all of several engines are being replaced, finals wait, and nothing more is known than of one.
    n_engines, busy = max(stats.n_engines, 1), _usual_busy(stats, interim_interval_s)
    finals = capacity(_usual_window_s(stats), 1 / USUAL_FINAL_EVERY_S, max_wait_s)
    return n_engines * min(finals, MAX_BUSY / busy if busy else math.inf)


def capacity(final_s: float, finals_per_s: float, max_wait_s: float) -> float:
    """The number of sessions for whose finals one engine has time."""
    load = final_s * finals_per_s
    return max_load(final_s, max_wait_s) / load if load else math.inf


def _usual_window_s(stats: EngineStats) -> float:
    return stats.utterance_encode_s + stats.window_decode_s


def _usual_busy(stats: EngineStats, interim_interval_s: float) -> float:
    """The seconds of an engine's time in a second that a usual session needs."""
    interims_per_s = USUAL_TALK / max(INTERIM_EVERY_S, interim_interval_s)
    return _usual_window_s(stats) * (1 / USUAL_FINAL_EVERY_S + interims_per_s)


class FinalWaits:
    """How long the finals of the last seconds waited in the engine's queue: the sign that it does not keep up.

    Old waits are dropped, so a service that was overloaded accepts sessions again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
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


class Totals(NamedTuple):
    """Figures of all gateways together."""

    n_sessions: int
    """Open sessions."""
    n_finals: int
    """Finals of live sessions so far."""


class _Sample(NamedTuple):
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
        """Begin with engines of which nothing is known but their speed.

        Args:
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

    @property
    def late_wait_s(self) -> float:
        """The wait that few of the last finals of this gateway exceeded, in seconds; see `FinalWaits.late_s`."""
        return self._final_waits.late_s

    def note_final(self, wait_s: float) -> None:
        """Note that the engine has begun a final of a session of this gateway, after this many seconds in the queue."""
        self._final_waits.add(wait_s)
        self.look()

    def room(self) -> float:
        """How many sessions may be open at all gateways together."""
        self.look()
        stats = self._stats()
        n_engines = max(stats.n_engines, 1)
        final_s, finals_per_s = self._final_s(stats), self._finals_per_s(stats.waiting_finals)
        if (stats.waiting_finals - n_engines) * final_s > self._max_wait_s * n_engines:
            # Those that wait are late already. How long they wait is known only when they have left the queue.
            return 0.0
        first = usual_sessions(stats, self._max_wait_s, self.interims.usual_interval_s)
        fewest = min(sample.n_sessions for sample in self._samples)
        grown = max(FIRST_PART * first, GROWTH * fewest)
        busy = final_s * finals_per_s + self._interim_load()
        usual = _usual_busy(stats, self.interims.usual_interval_s)
        if busy > usual:
            # A few sessions take more of the time for each: their windows share hardly any call and step.
            busy = usual + min(fewest / first, 1.0) * (busy - usual)
        most = n_engines * MAX_BUSY / busy if busy else math.inf
        return min(grown, n_engines * capacity(final_s, finals_per_s, self._max_wait_s), most)

    def _interim_load(self) -> float:
        """The seconds of an engine's time in a second that one session needs for as many interims as it must have."""
        first, last = self._recent_samples()
        session_s = self._session_s(INTERIM_AFTER_S)
        if not session_s:
            return 0.0
        needed_every_s = max(INTERIM_EVERY_S, self.interims.usual_interval_s)
        fraction = self.interims.interval_s() / needed_every_s
        return (last.work.interim_busy_s - first.work.interim_busy_s) / session_s * fraction

    def look(self) -> None:
        """Note the figures as they are now. Call it before and after each change, and now and then."""
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

    def _final_s(self, stats: EngineStats) -> float:
        """The mean time that the engine needs for a final, in seconds; that of a usual one if too few are known."""
        first, last = self._samples[0], self._samples[-1]
        n_finals = last.work.n_finals - first.work.n_finals
        if n_finals < MIN_FINALS:
            return _usual_window_s(stats)
        return (last.work.final_busy_s - first.work.final_busy_s) / n_finals

    def _finals_per_s(self, n_waiting: int) -> float:
        """The finals of one session in a second, rather too many than too few; `n_waiting` have not begun."""
        first, last = self._recent_samples()
        n_finals = max(last.n_finals - first.n_finals, 0) + n_waiting
        # With the standard deviation of such a count. Else newcomers, who try again and again, would all be accepted
        # at the moments at which the count is low by chance.
        n_usual = USUAL_SESSION_S / USUAL_FINAL_EVERY_S
        return (n_finals + math.sqrt(n_finals) + n_usual) / (self._session_s(FINAL_AFTER_S) + USUAL_SESSION_S)

    def _recent_samples(self) -> tuple[_Sample, _Sample]:
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
