"""How much longer sessions wait between two interims when the engine has no time for all of them."""

from dataclasses import dataclass, replace

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.service.interim_load import GAIN, MAX_EXTRA_S, USUAL_WAIT_S, InterimLoad
from tutti_server.engine.api import EngineStats, Histogram

STEP_S = 0.5


@dataclass
class Engine:
    """Engines that start some interims in a second, while others wait."""

    now_s: float = 100.0
    n_started: float = 0.0

    def stats(self, n_waiting: int) -> EngineStats:
        queue_s = Histogram((1.0,), (round(self.n_started), 0), 0.0)
        return replace(FakeTranscriber().stats(), waiting_interims=n_waiting, interim_queue_s=queue_s)


def extra_s(per_s: float, n_waiting: int, seconds: float = 60.0) -> float:
    """The extra interval after some time in which `per_s` interims were started each second."""
    engine = Engine()
    load = InterimLoad(lambda: engine.stats(n_waiting), 1.0, lambda: engine.now_s)
    for _ in range(round(seconds / STEP_S)):
        engine.now_s += STEP_S
        engine.n_started += per_s * STEP_S
        load.extra_s()
    return load.extra_s()


@pytest.mark.parametrize(("per_s", "n_waiting"), [(10, 0), (10, 7), (100, 70), (0, 0)])
def test_an_engine_that_keeps_up_asks_for_nothing(per_s: float, n_waiting: int) -> None:
    """Interims wait 0.7 s or less."""
    assert extra_s(per_s, n_waiting) == 0.0


@pytest.mark.parametrize("n_engines", [1, 50])
def test_the_longer_interims_wait_the_longer_is_the_interval(n_engines: int) -> None:
    """Twelve interims wait for each engine, which starts ten in a second: 1.2 s. The sums over engines say the same."""
    assert extra_s(10 * n_engines, 12 * n_engines) == pytest.approx(GAIN * (1.2 - USUAL_WAIT_S), rel=0.01)


def test_the_interval_has_a_limit() -> None:
    """Also where the engine starts no interim at all."""
    assert extra_s(1, 100) == pytest.approx(MAX_EXTRA_S, rel=0.01)
    assert extra_s(0, 3) == pytest.approx(MAX_EXTRA_S, rel=0.01)


def test_a_load_that_begins_after_a_pause_is_no_jam() -> None:
    """Interims wait already when the first session asks, and none has been started for an hour."""
    engine = Engine()
    load = InterimLoad(lambda: engine.stats(n_waiting=8), 1.0, lambda: engine.now_s)
    for pause_s in (0.0, 3600.0):
        engine.now_s += pause_s
        for _ in range(20):
            engine.now_s += STEP_S
            assert load.extra_s() == 0.0
            engine.n_started += 20 * STEP_S


def test_the_interval_is_the_usual_one_after_the_load() -> None:
    """And a new engine, whose counters begin at 0, is not taken for one that stands still."""
    engine, n_waiting = Engine(n_started=1000.0), 40
    load = InterimLoad(lambda: engine.stats(n_waiting), 1.0, lambda: engine.now_s)

    def run(per_s: float) -> float:
        for _ in range(120):
            engine.now_s += STEP_S
            engine.n_started += per_s * STEP_S
            load.extra_s()
        return load.extra_s()

    assert run(10.0) > 5.0 and load.interval_s() > 6.0
    engine.n_started, n_waiting = 0.0, 0
    assert run(10.0) < 0.01
    assert load.interval_s() == pytest.approx(1.0, abs=0.1)
