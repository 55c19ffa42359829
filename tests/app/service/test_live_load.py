"""How many sessions are accepted: a simulation of their finals and of an engine, without a clock."""

import heapq
import itertools
import random
from dataclasses import replace

import pytest

from app.service.interim_load import InterimLoad
from app.service.live_load import FEWEST, MAX_LOAD, LiveLoad, max_load
from engine.api import EngineStats, Histogram
from tests.fakes import FakeTranscriber

FINAL_EVERY_S = 6.0
MAX_WAIT_S = 1.0


class Simulation:
    """Clients that come at once and try again every 5 s, and an engine that decodes one final after another."""

    def __init__(self, final_s: float, utterance_encode_s: float, seed: int) -> None:
        self.now_s = 0.0
        self.n_open = 0
        self.waits_s: list[float] = []
        self._final_s, self._utterance_encode_s = final_s, utterance_encode_s
        self._busy_s, self._free_at_s, self._n_waiting = 0.0, 0.0, 0
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, tuple[float, float]]] = []
        interims = InterimLoad(self.stats, 1.0, lambda: self.now_s)
        self.load = LiveLoad(self.stats, MAX_WAIT_S, interims, lambda: self.now_s)

    def stats(self) -> EngineStats:
        return replace(
            FakeTranscriber().stats(),
            final_busy_s=self._busy_s,
            final_queue_s=Histogram((1.0,), (len(self.waits_s), 0), sum(self.waits_s)),
            utterance_encode_s=self._utterance_encode_s,
            waiting_finals=self._n_waiting,
        )

    def add(self, at_s: float, what: str, values: tuple[float, float] = (0.0, 0.0)) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), what, values))

    def run(self, n_clients: int, burst_s: float, until_s: float) -> None:
        for _ in range(n_clients):
            self.add(self._random.uniform(0, burst_s), "come")
        while self._events[0][0] < until_s:
            self.now_s, _, what, (wait_s, final_s) = heapq.heappop(self._events)
            if what == "come":
                self._come()
            elif what == "final":
                self._submit_final()
            else:
                self._n_waiting -= 1
                self.waits_s.append(wait_s)
                self._busy_s += final_s
                self.load.note_final(wait_s)

    def _come(self) -> None:
        if self.n_open and self.n_open + 1 > self.load.room():
            self.add(self.now_s + self._random.uniform(4.5, 5.5), "come")
            return
        self.n_open += 1
        self.load.note_sessions(self.n_open, self.n_open)
        self.add(self.now_s + self._random.uniform(1, 2 * FINAL_EVERY_S), "final")

    def _submit_final(self) -> None:
        self._n_waiting += 1
        begin_s = max(self.now_s, self._free_at_s)
        final_s = self._final_s * self._random.uniform(0.5, 1.5)
        self._free_at_s = begin_s + final_s
        self.add(begin_s, "begin", (begin_s - self.now_s, final_s))
        self.add(self.now_s + self._random.uniform(0.3, 1.7) * FINAL_EVERY_S, "final")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("final_s", "utterance_encode_s"), [(0.05, 0.1), (0.15, 0.1), (0.15, 0.05), (0.5, 0.3)])
def test_a_burst_of_clients_does_not_delay_the_finals_of_those_accepted(
    final_s: float, utterance_encode_s: float, seed: int
) -> None:
    """90 clients come within 5 s. Most of the capacity is used, and few finals wait longer than the limit."""
    simulation = Simulation(final_s, utterance_encode_s, seed)
    simulation.run(90, burst_s=5.0, until_s=180.0)
    waits_s = sorted(simulation.waits_s)
    assert waits_s[int(0.95 * len(waits_s))] < MAX_WAIT_S
    load = simulation.n_open * final_s / FINAL_EVERY_S
    assert 0.6 * max_load(final_s, MAX_WAIT_S) < load < MAX_LOAD + 0.15


def test_an_engine_that_stands_still_accepts_no_more() -> None:
    """No final has begun, so no time for one is known; but finals wait."""
    simulation = Simulation(100.0, 0.02, seed=1)
    simulation.run(90, burst_s=1.0, until_s=2.0)
    n_first = simulation.n_open
    simulation.run(0, burst_s=0.0, until_s=30.0)
    assert simulation.n_open == n_first


def test_a_fast_engine_accepts_all_at_once() -> None:
    """As a GPU does, after a restart to which all clients come back."""
    simulation = Simulation(0.003, 0.003, seed=1)
    simulation.run(250, burst_s=1.0, until_s=2.0)
    assert simulation.n_open == 250


def test_an_engine_that_was_slow_while_it_warmed_up_is_given_a_chance() -> None:
    """The machine was busy at that moment; later the finals tell."""
    simulation = Simulation(0.05, 4.0, seed=1)
    simulation.run(90, burst_s=5.0, until_s=20.0)
    assert simulation.n_open == FEWEST
    simulation.run(0, burst_s=0.0, until_s=180.0)
    assert simulation.n_open > 10 * FEWEST


def test_another_engine_begins_anew() -> None:
    """Its counters are lower than those of the engine that died."""
    simulation = Simulation(0.15, 0.01, seed=1)
    simulation.run(30, burst_s=5.0, until_s=60.0)
    assert simulation.load.room() < 60
    simulation.waits_s.clear()
    simulation._busy_s = 0.0
    assert simulation.load.room() > 60


def test_the_slower_a_final_is_the_less_load_is_allowed() -> None:
    """Finals wait for those before them: as in a queue with random arrivals."""
    loads = [max_load(final_s, 1.0) for final_s in (0.0, 0.01, 0.1, 0.2, 0.5, 1.0, 10.0)]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] == MAX_LOAD and 0 < loads[-1] < 0.1
