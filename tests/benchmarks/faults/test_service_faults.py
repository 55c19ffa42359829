"""The short form of the campaign of faults: a real service whose network and engine fail while people talk."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.faults import service_faults, sessions
from benchmarks.faults.campaign import CampaignLog, Fault, Plan, locate_differences
from benchmarks.faults.differences import timed_words
from benchmarks.faults.faults import PROCESS_FAULTS
from benchmarks.faults.sessions import SessionLog
from benchmarks.files.labelled_clips import samples_to_wav
from benchmarks.recordings import load_bundled
from benchmarks.server import free_port
from tests.small_model import ARGUMENTS

PATIENCE_S = 200


def test_no_word_is_lost_or_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are lost and the engine is killed in the middle of speech; every word comes once."""
    monkeypatch.setattr(service_faults, "PROCESS_FAULTS", {"engine killed": PROCESS_FAULTS["engine killed"]})
    for name in [each for each in os.environ if each.startswith("TUTTI_")]:
        monkeypatch.delenv(name)
    recordings = load_bundled(8.0, 2)
    for each in recordings:
        (tmp_path / each.name).write_bytes(samples_to_wav(each.samples))
    plan = Plan(
        recordings=recordings,
        files={each.name: tmp_path / each.name for each in recordings},
        n_sessions=2,
        n_uploads=1,
        speed=2.0,
        n_cuts=3,
        n_process_faults=1,
        cut_every_s=1.5,
        process_fault_every_s=1.0,
        seed=1,
    )
    arguments = [*service_faults.SERVE_ARGUMENTS, *ARGUMENTS, "--gateways", "1", "--threads", "1"]

    async def run() -> dict[str, object]:
        async with asyncio.timeout(PATIENCE_S):
            return await service_faults.run(plan, arguments, tmp_path / "log")

    result = asyncio.run(run())
    assert result["holds"], result
    assert isinstance(result["n_cuts"], int) and result["n_cuts"] >= plan.n_cuts
    assert result["n_process_faults"] == 1
    assert len(service_faults.tables(result)) == 2


def test_a_service_that_has_ended_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An undisturbed run starts no service again."""
    monkeypatch.setattr(sessions, "SESSION_GRACE_S", 0.0)
    streaming = sessions.stream(f"http://127.0.0.1:{free_port()}", load_bundled(1.0, 1)[0], speed=1.0)
    log = asyncio.run(asyncio.wait_for(streaming, 30))
    assert log.failure and log.failure.startswith("Unreachable: ")


def test_differences_are_lined_up_with_the_faults_around_them() -> None:
    """Those of the session's own network, and those of processes; not those of other sessions or of other times."""
    session = SessionLog(recording="talk", started_at=100.0, words=timed_words("one three", 0.0, 30.0))
    faults = [Fault("reset", 105.0, 0), Fault("hole", 105.0, 1), Fault("engine killed", 110.0), Fault("SIGTERM", 190.0)]
    log = CampaignLog(faults=faults, sessions=[(0, session)])
    (found,) = locate_differences(log, {"talk": timed_words("one two three", 0.0, 30.0)}, 1.0)
    assert (found.difference.kind, found.difference.expected) == ("lost", ("two",))
    assert found.faults == ("reset", "engine killed")
    assert (log.n_cuts(), log.n_process_faults()) == (1, 2)
    assert log.counts() == Counter({"reset": 1, "hole": 1, "engine killed": 1, "SIGTERM": 1})


@pytest.mark.parametrize(
    ("change", "holds"),
    [({}, True), ({"failure": "gone"}, False), ({"gaps": [(1.0, 2.0)]}, False), ({"utterances": [0, 0]}, False)],
)
def test_a_campaign_holds_only_if_nothing_was_lost(change: dict[str, object], holds: bool) -> None:
    session = SessionLog(recording="talk", words=timed_words("one", 0.0, 1.0))
    for name, value in change.items():
        setattr(session, name, value)
    uploads = {"done": 0, "different": [], "failures": []}
    assert service_faults.summarise(CampaignLog(sessions=[(0, session)]), [], {}, uploads)["holds"] is holds
