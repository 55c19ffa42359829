"""Hosts that share nothing, and a fleet that follows a day: the coarse part of the simulation."""

import numpy as np
import pytest

from benchmarks.simulation.capacity import margin, most_held, search
from benchmarks.simulation.day import Scaling, run_day, sessions_at
from benchmarks.simulation.fleet import PLACES, Response, fleet_holds, share_in_time

RESPONSE = Response(
    loads=(100.0, 600.0),
    interim_p95_s=(0.1, 1.0),
    final_p95_s=(0.2, 0.5),
    interims_of_due=(1.1, 0.8),
    held=600.0,
)


def level(streams: int, due: float, failed: int = 0) -> dict[str, object]:
    return {
        "streams": streams,
        "interim_lag_s": {"p95": 0.5},
        "final_s": {"p95": 0.3},
        "interims_of_due": due,
        "failed": failed,
    }


def test_the_limit_is_between_the_levels_around_it() -> None:
    """Interims of those due fall from 100 to 60 %; 80 % are needed."""
    assert most_held([level(500, 1.0), level(600, 0.6)]) == pytest.approx(500 + 100 * 0.25 / 0.5)
    assert margin(level(100, 1.0, failed=1)) < 0


def test_levels_that_get_no_worse_tell_no_limit() -> None:
    assert most_held([level(500, 1.0)]) is None
    assert most_held([level(500, 0.9), level(600, 1.0)]) is None


@pytest.mark.parametrize("guess", [300, 900])
def test_the_search_goes_up_and_down(guess: int) -> None:
    """From either side it finds where the share of due interims falls below the least."""
    held, levels = search(lambda n: level(n, 480 / n), guess)
    assert held == pytest.approx(600, rel=0.01)
    assert [each["streams"] for each in levels] == sorted(each["streams"] for each in levels)


@pytest.mark.parametrize("place", PLACES)
def test_every_newcomer_gets_one_host(place: str) -> None:
    """As many sessions are placed as came, none is taken away, and fuller hosts do not get all."""
    counts = np.array([5, 0, 9, 3])
    placed = PLACES[place](counts, 40, np.random.default_rng(0))
    assert placed.sum() == 40
    assert placed.min() >= 0


def test_newcomers_fill_the_emptiest_hosts() -> None:
    placed = PLACES["fewest sessions"](np.array([5, 0, 9, 3]), 7, np.random.default_rng(0))
    assert (np.array([5, 0, 9, 3]) + placed).tolist() == [5, 5, 9, 5]


def test_spreading_by_sessions_holds_more_than_at_random() -> None:
    """At random some hosts have too many, so the fleet as a whole must have fewer."""
    random, fewest = (fleet_holds(20, 100, place) for place in ("random", "fewest sessions"))
    assert random < fewest <= 20 * 100


def test_sessions_that_fit_are_in_time() -> None:
    assert share_in_time(4, 100, 200, "fewest sessions", seconds=20) == 1.0
    assert share_in_time(4, 100, 800, "fewest sessions", seconds=20) == 0.0


def test_a_day_peaks_as_asked() -> None:
    """The busiest minute has the sessions that were asked for, and nights have few."""
    assert max(sessions_at(minute / 60, 1_000) for minute in range(1_440)) == pytest.approx(1_000)
    assert sessions_at(3.0, 1_000) < 150


def test_a_fleet_that_follows_the_day_costs_less_and_holds_all() -> None:
    """With room for the time that hosts need to start, no session time is beyond what the GPUs hold."""
    day = run_day(RESPONSE, Scaling(target=0.75), 20_000)
    assert day.gpu_hours < 0.6 * day.fixed_gpu_hours
    assert day.late_share == 0
    assert max(day.interim_p95_s) <= 1.0
    assert min(day.gpus_ready) >= 8
    assert all(ready <= paid for ready, paid in zip(day.gpus_ready, day.gpus_paid, strict=True))


def test_hosts_that_start_slowly_come_too_late_for_a_tight_target() -> None:
    """Without room, sessions wait for hosts that are still starting."""
    assert run_day(RESPONSE, Scaling(target=0.98, host_start_s=1_800), 20_000).late_share > 0
