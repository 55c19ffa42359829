"""Three times as many callers as a server has room for: whoever was accepted stays, with finals in time.

The service runs in virtual time; see `tests/virtual_service.py`.
"""

import math
import statistics
from typing import Any

import pytest

from tests.virtual_service import BASE, BASE_CUT, BUSY_BASE, H200, SLOW, Clock, Speed, VirtualEngine, VirtualService
from tutti_server.app.service.live_load import INTERIM_EVERY_S

MAX_WAIT_S = 1.0
"""The default of `max_final_wait_s`."""


def overloaded(
    speed: Speed, n_callers: int, seconds: float, probe: float = 1.0, call_s: float = math.inf, **settings: Any
) -> VirtualService:
    """The service after `seconds` in which `n_callers` call within ten seconds, and again after each refusal."""
    clock = Clock()
    service = VirtualService(VirtualEngine(clock, speed, probe), clock, **settings)
    service.call_s = call_s
    service.call_in(n_callers, 10.0)
    clock.run(seconds)
    return service


def late_wait_s(service: VirtualService) -> float:
    """The wait that 5 % of all finals exceed."""
    waits_s = sorted(wait_s for log in service.logs for wait_s in log.final_waits_s)
    return waits_s[int(0.95 * len(waits_s))]


def interims_per_s(service: VirtualService) -> list[float]:
    """The interims of each session for a second of speech, the fewest first."""
    return sorted(log.n_interims / log.speech_s for log in service.logs)


def test_ten_minutes_of_three_times_the_load_end_no_session() -> None:
    """Newcomers are refused, nearly all finals are in time, and all sessions have about as many interims."""
    service = overloaded(SLOW, 48, 600.0)
    assert not [log.ended_by for log in service.logs if log.ended_by]
    assert 12 <= len(service.admission.sessions) <= 20 and service.n_refused > 100
    assert late_wait_s(service) < MAX_WAIT_S
    rates = interims_per_s(service)
    assert rates[0] > 0.7 * statistics.median(rates)
    assert statistics.median(rates) > 0.8 / INTERIM_EVERY_S


@pytest.mark.nightly
def test_a_burst_on_a_fast_server_delays_no_final() -> None:
    """1,000 callers within ten seconds, on a GPU that has time for the interims of 430."""
    service = overloaded(H200, 1000, 60.0)
    assert not [log.ended_by for log in service.logs if log.ended_by]
    assert 300 < len(service.admission.sessions) < 550
    assert late_wait_s(service) < 0.1


def test_a_server_that_admits_all_ends_none() -> None:
    """Interims fall to a fraction of those due, for all alike; no queue overflows with finals."""
    service = overloaded(SLOW, 40, 120.0, max_final_wait_s=1000.0)
    assert len(service.admission.sessions) == 40 and not service.n_refused
    assert not [log.ended_by for log in service.logs if log.ended_by]
    assert service.engine.n_superseded < 3 * sum(log.n_interims for log in service.logs) + 2000


def holds(service: VirtualService) -> bool:
    """Whether finals are in time, and interims come as often as they must."""
    return late_wait_s(service) <= MAX_WAIT_S and statistics.median(interims_per_s(service)) >= 1 / INTERIM_EVERY_S


@pytest.mark.parametrize("probe", [pytest.param(1.0, marks=pytest.mark.nightly), 5.0])
@pytest.mark.parametrize(("speed", "most"), [(BASE, 12), (BUSY_BASE, 4), (SLOW, 15), (BASE_CUT, 32)])
def test_as_many_are_let_in_as_a_direct_search_finds(speed: Speed, most: int, probe: float) -> None:
    """85 % at least after a minute, however well the start was measured, and none has late finals."""
    assert holds(overloaded(speed, most, 180.0, max_final_wait_s=1000.0))
    assert not holds(overloaded(speed, round(1.1 * most) + 1, 180.0, max_final_wait_s=1000.0))
    service = overloaded(speed, 3 * most, 60.0, probe)
    assert 0.85 * most <= len(service.admission.sessions) <= 1.1 * most + 1
    assert late_wait_s(service) <= MAX_WAIT_S


@pytest.mark.parametrize("speed", [BASE, BUSY_BASE])
def test_short_calls_are_let_in_as_long_ones_are(speed: Speed) -> None:
    """Each has one utterance, as a recording of a sentence does that is sent as a session."""
    service = overloaded(speed, 3, 300.0, call_s=0.0)
    assert len(service.logs) > 80 and service.n_refused < 0.1 * len(service.logs)


@pytest.mark.parametrize("speed", [SLOW, H200])
@pytest.mark.nightly
def test_callers_for_whom_there_is_room_are_let_in(speed: Speed) -> None:
    """A third of what the server holds."""
    service = overloaded(speed, 5 if speed is SLOW else 140, 15.0)
    assert service.n_refused == 0
