"""Three times as many callers as a server has room for: whoever was accepted stays, with finals in time.

The service runs in virtual time; see `tests/virtual_service.py`.
"""

import statistics
from typing import Any

import pytest

from app.service.live_load import INTERIM_EVERY_S
from tests.virtual_service import H200, SLOW, Clock, Speed, VirtualEngine, VirtualService

MAX_WAIT_S = 1.0
"""The default of `max_final_wait_s`."""


def overloaded(speed: Speed, n_callers: int, seconds: float, **settings: Any) -> VirtualService:
    """The service after `seconds` in which `n_callers` call within ten seconds, and again after each refusal."""
    clock = Clock()
    service = VirtualService(VirtualEngine(clock, speed), clock, **settings)
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


@pytest.mark.parametrize("speed", [SLOW, H200])
def test_callers_for_whom_there_is_room_are_let_in(speed: Speed) -> None:
    """A third of what the server holds."""
    service = overloaded(speed, 5 if speed is SLOW else 140, 15.0)
    assert service.n_refused == 0
