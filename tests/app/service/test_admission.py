"""How full the service is, as the metric shows it, and how long a drain waits."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.app.service.test_reservations import gateways
from tests.fakes import FakeSession, FakeTranscriber
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.live_load import FIRST_PART, MIN_WAITS, usual_sessions
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter
from tutti_server.engine import api


class SlowTranscriber(FakeTranscriber):
    """An engine that has time for few sessions, by the speed of its encoder."""

    def stats(self) -> api.EngineStats:
        return replace(super().stats(), utterance_encode_s=0.2)


def shown_load(transcriber: api.Transcriber, n_sessions: int, late_s: float = 0.0, **settings: float) -> float:
    """The metric with this many open sessions, some finals of which waited this long, in seconds."""
    metrics = Metrics(transcriber)
    admission = Admission(Settings(**settings), metrics, AdmissionCounter(), transcriber)  # type: ignore[arg-type]  # numbers only
    with ExitStack() as sessions:
        for _ in range(n_sessions):
            sessions.enter_context(admission.session(FakeSession()))
        for _ in range(MIN_WAITS):
            admission.note_final(late_s)
        (line,) = (line for line in metrics.render().decode().splitlines() if line.startswith("tutti_session_load_"))
    name, value = line.split()
    assert name == "tutti_session_load_ratio"
    return float(value)


def test_an_empty_service_has_no_load() -> None:
    assert shown_load(FakeTranscriber(), 0) == 0.0


def test_the_load_is_the_share_of_the_sessions_that_are_accepted() -> None:
    """The smaller one counts: the operator's limit, or what the engine has time for."""
    assert shown_load(FakeTranscriber(), 3, max_sessions=12) == 0.25
    capacity = FIRST_PART * usual_sessions(SlowTranscriber().stats(), 1.0, 1.0)
    assert 3 < capacity < 12 and shown_load(SlowTranscriber(), 3, max_sessions=12) == 3 / capacity


def test_a_service_whose_finals_are_late_is_full() -> None:
    assert shown_load(FakeTranscriber(), 3, late_s=2.0, max_sessions=12) == 1.0


def test_an_operator_may_leave_out_the_limits_of_the_engine() -> None:
    """As when sessions are accepted: a limit above the deadline is none."""
    n_sessions, settings = 11, {"max_sessions": 12, "max_final_wait_s": 40.0}
    assert shown_load(SlowTranscriber(), n_sessions, late_s=50.0, **settings) == n_sessions / 12


async def test_a_drain_waits_for_gateways_that_hang_no_longer_than_for_its_own_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tutti_server.app.service.admission.ABANDON_S", 0.0)
    own, hanging = gateways(2, drain_timeout_s=0.05)
    with hanging.session(FakeSession()):
        await own.drain()
        await own.wait_for_others()


async def test_a_drain_waits_for_the_sessions_of_other_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.service.admission.OTHERS_PERIOD_S", 0.001)
    own, other = gateways(2)
    with other.session(FakeSession()):
        await own.drain()
        waiting = asyncio.create_task(own.wait_for_others())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting
