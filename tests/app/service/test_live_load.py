"""How many sessions are accepted: a simulation of their finals and of an engine, without a clock."""

import heapq
import itertools
import math
import random
from dataclasses import replace

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.service.interim_load import InterimLoad
from tutti_server.app.service.live_load import (
    LATE_SHARE,
    MAX_LOAD,
    MAX_WAITS,
    MIN_WAITS,
    RECENT_S,
    REST,
    SAMPLE_EVERY_S,
    FinalWaits,
    LiveLoad,
    Totals,
    max_load,
)
from tutti_server.engine.api import EngineStats, Histogram

FINAL_EVERY_S = 6.0
MAX_WAIT_S = 1.0
ENCODE_PART = 0.7
"""The part of a final's time that the encoder takes. The engine measures that again with each call."""

IDLE = FakeTranscriber().stats()


class Simulation:
    """Clients that come at once and try again every 5 s, and engines that decode one final after another.

    Each client reaches one of the gateways, and each final goes to the engine that is free first.
    """

    def __init__(
        self, final_s: float, utterance_encode_s: float, seed: int, *, n_engines: int = 1, n_gateways: int = 1
    ) -> None:
        self.now_s = 0.0
        self.n_open = 0
        self.waits_s: list[float] = []
        self._n_engines = n_engines
        self._final_s, self._utterance_encode_s = final_s, utterance_encode_s
        self._busy_s, self._n_waiting, self._n_before = 0.0, 0, 0
        self._free_at_s = [0.0] * n_engines
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, tuple[float, float]]] = []
        self.loads = [self.add_gateway() for _ in range(n_gateways)]

    @property
    def load(self) -> LiveLoad:
        return self.loads[0]

    def add_gateway(self) -> LiveLoad:
        interims = InterimLoad(self.stats, 1.0, lambda: self.now_s)
        return LiveLoad(self.stats, self.totals, MAX_WAIT_S, interims, lambda: self.now_s)

    def _note_encoded(self, final_s: float) -> None:
        """The engine averages its last encoder calls."""
        self._utterance_encode_s += 0.3 * (ENCODE_PART * final_s - self._utterance_encode_s)

    def restart_engine(self) -> None:
        """Let the counters of the engine begin at 0."""
        self._busy_s, self._n_before = 0.0, len(self.waits_s)

    def totals(self) -> Totals:
        return Totals(self.n_open, len(self.waits_s))

    def stats(self) -> EngineStats:
        return replace(
            IDLE,
            busy_s=self._busy_s,
            final_busy_s=self._busy_s,
            final_queue_s=Histogram((1.0,), (len(self.waits_s) - self._n_before, 0), 0.0),
            utterance_encode_s=self._utterance_encode_s,
            window_decode_s=(1 - ENCODE_PART) * self._final_s,
            waiting_finals=self._n_waiting,
            n_engines=self._n_engines,
        )

    def add(self, at_s: float, what: str, values: tuple[float, float] = (0.0, 0.0)) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), what, values))

    def run(self, n_clients: int, burst_s: float, until_s: float) -> None:
        for _ in range(n_clients):
            self.add(self._random.uniform(0, burst_s), "come")
        for at_s in range(math.ceil(self.now_s), math.ceil(until_s)):
            self.add(at_s, "look")
        while self._events[0][0] < until_s:
            self.now_s, _, what, (wait_s, final_s) = heapq.heappop(self._events)
            if what == "come":
                self._come()
            elif what == "look":
                for load in self.loads:
                    load.look()
            elif what == "final":
                self._submit_final()
            else:
                self._n_waiting -= 1
                self.waits_s.append(wait_s)
                self._busy_s += final_s
                self._note_encoded(final_s)
                self._random.choice(self.loads).note_final(wait_s)

    def _come(self) -> None:
        load = self._random.choice(self.loads)
        if self.n_open and self.n_open + 1 > load.room():
            self.add(self.now_s + self._random.uniform(4.5, 5.5), "come")
            return
        self.n_open += 1
        load.look()
        self.add(self.now_s + self._random.uniform(1, 2 * FINAL_EVERY_S), "final")

    def _submit_final(self) -> None:
        self._n_waiting += 1
        begin_s = max(self.now_s, heapq.heappop(self._free_at_s))
        final_s = self._final_s * self._random.uniform(0.5, 1.5)
        heapq.heappush(self._free_at_s, begin_s + final_s)
        self.add(begin_s, "begin", (begin_s - self.now_s, final_s))
        self.add(self.now_s + self._random.uniform(0.3, 1.7) * FINAL_EVERY_S, "final")


@pytest.mark.parametrize("final_s", [0.05, 0.3, 0.5, 0.8])
def test_few_finals_are_late_with_the_largest_load(final_s: float) -> None:
    """Finals come at random to an engine that decodes one after another, and are not much rarer than they may be."""

    def late_share(load: float) -> float:
        arrivals, wait_s, n_late = random.Random(1), 0.0, 0
        for _ in range(20_000):
            n_late += wait_s > MAX_WAIT_S - REST * final_s
            wait_s = max(wait_s + final_s - arrivals.expovariate(load / final_s), 0.0)
        return n_late / 20_000

    load = max_load(final_s, MAX_WAIT_S)
    assert late_share(load) < 1.5 * LATE_SHARE
    assert load == MAX_LOAD or late_share(1.2 * load) > LATE_SHARE


def test_an_engine_that_stands_still_accepts_no_more() -> None:
    """No final has begun, so no time for one is known; but finals wait."""
    simulation = Simulation(100.0, 0.02, seed=1)
    simulation.run(90, burst_s=1.0, until_s=2.0)
    n_first = simulation.n_open
    simulation.run(0, burst_s=0.0, until_s=30.0)
    assert simulation.n_open == n_first


def test_one_measure_holds_for_any_number_of_engines_and_gateways() -> None:
    """Three times as many clients call as there is room for: finals stay in time, and most of the room is taken."""
    n_engines, n_gateways = 4, 12
    simulation = Simulation(0.15, 0.1, 1, n_engines=n_engines, n_gateways=n_gateways)
    simulation.run(50 * n_engines, burst_s=5.0, until_s=90.0)
    waits_s = sorted(simulation.waits_s)
    assert waits_s[int(0.95 * len(waits_s))] < MAX_WAIT_S
    load = simulation.n_open * 0.15 / FINAL_EVERY_S / n_engines
    assert 0.6 * max_load(0.15, MAX_WAIT_S) < load < MAX_LOAD + 0.15


def test_a_new_gateway_judges_as_the_others_do() -> None:
    """It has no session of its own, but knows those of the others and how fast the engine is."""
    simulation = Simulation(0.05, 0.5, 1)
    simulation.run(30, burst_s=5.0, until_s=120.0)
    assert simulation.n_open == 30
    assert 31 < simulation.add_gateway().room() == pytest.approx(simulation.load.room(), rel=0.4)


def test_an_engine_that_begins_anew_changes_nothing() -> None:
    """Its counters begin at 0, as another process is in the place of one that died."""
    simulation = Simulation(0.15, 0.01, seed=1)
    simulation.run(30, burst_s=5.0, until_s=60.0)
    room = simulation.load.room()
    simulation.restart_engine()
    simulation.now_s += SAMPLE_EVERY_S
    assert simulation.load.room() == pytest.approx(room, rel=0.1)


def test_the_late_waits_are_those_of_the_last_seconds() -> None:
    """Old waits are dropped. Few waits say nothing; of many, one in twenty may be longer."""
    now_s = 100.0
    waits = FinalWaits(lambda: now_s)
    for _ in range(MIN_WAITS - 1):
        waits.add(4.0)
    assert waits.late_s == 0.0
    waits.add(1.0)
    assert waits.late_s == 4.0
    now_s += RECENT_S / 2
    for number in range(100):
        waits.add(number / 100)
    assert waits.late_s == pytest.approx(0.97)
    now_s += RECENT_S / 2 + 0.01
    assert waits.late_s == pytest.approx(0.94)
    now_s += RECENT_S
    assert waits.late_s == 0.0


def test_the_number_of_kept_waits_is_limited() -> None:
    """The oldest waits are dropped first."""
    waits = FinalWaits(lambda: 100.0)
    for index in range(3 * MAX_WAITS):
        waits.add(float(index >= 2 * MAX_WAITS))
    assert waits.late_s == 1.0
