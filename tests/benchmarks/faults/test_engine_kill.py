"""The figures of a load under which an engine was killed, and what they are refused for."""

from typing import Any

import pytest

from benchmarks.faults.engine_kill import BACK_FACTOR, BACK_SLACK_S, complain, figures, table
from benchmarks.live.load_clients import LoadLog

TIMES_S = (10.0, 20.0, 30.0, 40.0)


def result(back_s: float = 0.2, **changes: Any) -> dict[str, Any]:
    finals = [(12.0, 0.2), (28.0, 3.0), (35.0, back_s), (45.0, 9.0)]
    log = LoadLog(
        interims=[(12.0, 0.1), (13.0, 0.1)], finals=finals, n_announced=4, n_ended=4, n_flushes=4, n_flushed=4
    )
    return {"sessions": 2, "away_s": 4.0, **figures(log, 2, TIMES_S), **changes}


def test_latencies_are_those_of_the_three_phases() -> None:
    """By the time at which the audio was spoken; what is spoken after the end does not count."""
    before, away, back = result()["phases"]
    assert [phase["final_s"]["p95"] for phase in (before, away, back)] == [0.2, 3.0, 0.2]
    assert [phase["interims_per_s"] for phase in (before, away, back)] == [0.1, 0.0, 0.0]
    assert [row[0] for row in table(result()).rows] == ["before", "away", "back"]


def test_a_run_after_which_all_is_as_before_is_good() -> None:
    assert complain(result()) == []
    assert complain(result(BACK_FACTOR * 0.2 + BACK_SLACK_S - 0.001)) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"back_s": 0.5}, "expected the p95 of finals to be back at 0.20 s, got 0.50 s"),
        ({"away_s": 0.0}, "expected an engine that was killed and came back, got none"),
        ({"finals_missing": 2}, "2 finals missing"),
        ({"ended": 1}, "1 ended"),
        ({"refused": 3}, "3 refused"),
        ({"failures": ["HTTP 500"]}, "failed: HTTP 500"),
    ],
)
def test_a_loss_fails_the_run(changes: dict[str, Any], complaint: str) -> None:
    assert complain(result(**changes)) == [complaint]
