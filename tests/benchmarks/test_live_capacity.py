"""The most live sessions a server holds: what counts as served, and the verdict."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.live.load_clients import LoadLog, PreparedCall, ServedSession
from benchmarks.live_capacity import (
    complain,
    holds,
    is_in_time,
    session_figures,
    table,
)


def test_sessions_are_compared_by_their_interims() -> None:
    """For a second of speech. Sessions with little speech say nothing."""
    log = LoadLog(sessions=[ServedSession(speech_s=20.0, n_interims=n) for n in (10, 30, 20)])
    log.sessions += [
        ServedSession(speech_s=1.0),
        ServedSession(speech_s=10.0, n_interims=2, ended_by="1013 overloaded"),
    ]
    assert session_figures(log) == {"accepted": 5, "ended": 1, "session_interims_per_s": 0.75}


def test_an_utterance_ends_with_its_speech_or_where_it_was_cut(tmp_path: Path) -> None:
    call = PreparedCall(tmp_path, ((1.0, 2.0), (3.0, 5.0)), (2.0, 5.0))
    assert [call.speech_end_s(end) for end in (0.5, 2.2, 4.0, 5.1)] == [0.5, 2.0, 4.0, 5.0]


def level(**changes: object) -> dict[str, Any]:
    plain = {
        "streams": 10,
        "interim_lag_s": {"n": 9, "p50": 0.1, "p95": 1.0, "p99": 2.0},
        "interims_of_due": 0.8,
        "final_s": {"n": 9, "p50": 0.1, "p95": 0.5, "p99": 2.0},
        "finals_missing": 0,
        "accepted": 10,
        "refused": 0,
        "ended": 0,
        "session_interims_per_s": 1.0,
        "failed": 0,
        "failures": [],
        "server_cores": None,
        "engines_busy": {"0": 0.5, "1": 0.25},
        "final_after_endpoint_s": dict.fromkeys(("p50", "p95", "p99")),
        "final_wait_s": 1.0,
        "late_s": {"n": 9, "p99": 0.2},
        "was_late": False,
    }
    return {**plain, **changes}


def test_in_time_is_what_admission_promises() -> None:
    """Few finals wait longer than a second, and half of the sessions have an interim every two seconds of speech."""
    assert is_in_time(level())
    assert not is_in_time(level(session_interims_per_s=0.4)) and not is_in_time(level(final_wait_s=1.1))


def late(p95: float | None) -> dict[str, Any]:
    return {"n": 9, "p50": 0.1, "p95": p95, "p99": 2.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"interim_lag_s": late(1.01)},
        {"interim_lag_s": late(None)},
        {"final_s": late(0.51)},
        {"interims_of_due": 0.79},
        {"refused": 1},
        {"failed": 1},
        {"finals_missing": 1},
        {"was_late": True},
    ],
)
def test_a_number_is_held_up_to_the_limits(changes: dict[str, Any]) -> None:
    assert holds(level()) and not holds(level(**changes))


def test_late_clients_and_lost_finals_fail_the_run() -> None:
    found = level(was_late=True, finals_missing=2, failed=1, failures=["HTTP 500"], holds=False)
    result = {"silence_ms": None, "chunk_ms": 100, "most_held": 0, "levels": [found]}
    assert complain(result) == [
        "10 sessions: the clients were late (p99 0.200 s), so these figures are not valid",
        "10 sessions: 2 utterances have no final",
        "10 sessions: HTTP 500",
    ]
    (row,) = table(result).rows
    assert row[-1] == "no" and "50/25" in row
