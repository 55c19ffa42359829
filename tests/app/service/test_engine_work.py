"""What engines have done, added up while they come, go and begin anew."""

from dataclasses import replace

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.service.engine_work import EngineWork, WorkDone
from tutti_server.engine.api import EngineStats, Histogram


def counters(n_finals: int) -> EngineStats:
    """The counters of an engine that needs half a second for each final."""
    queue = Histogram((1.0,), (n_finals, 0), 0.0)
    return replace(FakeTranscriber().stats(), final_queue_s=queue, final_busy_s=0.5 * n_finals, busy_s=2.0 * n_finals)


def several(**n_finals: int) -> EngineStats:
    return replace(counters(0), engines={name: counters(n) for name, n in n_finals.items()})


def test_an_engine_that_comes_brings_nothing_along() -> None:
    """A new gateway learns of one engine after another, which have decoded for days."""
    work = EngineWork()
    work.note(several(a=10))
    assert work.note(several(a=11, b=5000)).n_finals == 1
    assert work.note(several(a=11, b=5002)).n_finals == 3


def test_an_engine_that_leaves_takes_nothing_away() -> None:
    work = EngineWork()
    work.note(several(a=10, b=10))
    assert work.note(several(a=12, b=15)).n_finals == 7
    assert work.note(several(a=13)).n_finals == 8
    assert work.note(several(a=13, b=100)).n_finals == 8


def test_an_engine_that_begins_anew_counts_from_0() -> None:
    """Another process has taken the place of one that died."""
    work = EngineWork()
    work.note(counters(100))
    work.note(counters(110))
    assert work.note(counters(3)) == pytest.approx(WorkDone(13, 6.5, 19.5))
