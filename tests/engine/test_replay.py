"""Events that come again after a failure."""

import pytest

from tutti_server.engine.api import EngineEvent, Segment, SegmentEvent, StartedEvent
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.replay import Replay


def segment(text: str) -> SegmentEvent:
    return SegmentEvent(
        Segment(
            start_s=0.0,
            end_s=1.0,
            text=text,
            tokens=(),
            avg_logprob=-0.1,
            compression_ratio=1.0,
            no_speech_prob=0.0,
        )
    )


EVENTS: list[EngineEvent] = [StartedEvent(0.0, 1), segment(" one"), segment(" two")]


def test_repeated_events_are_not_new() -> None:
    """After a restart, the events that were delivered are skipped, and the ones after them are new."""
    replay = Replay()
    assert [replay.is_new(event) for event in EVENTS[:2]] == [True, True]
    replay.restart()
    assert [replay.is_new(event) for event in EVENTS] == [False, False, True]


def test_what_clients_do_not_see_may_differ() -> None:
    """The time in the queue is another after a restart."""
    replay = Replay()
    assert replay.is_new(StartedEvent(0.0, 1))
    replay.restart()
    assert not replay.is_new(StartedEvent(7.0, 3))


def test_another_text_is_an_error() -> None:
    """Text that a client has received must not change."""
    replay = Replay()
    assert all(replay.is_new(event) for event in EVENTS)
    replay.restart()
    assert not replay.is_new(EVENTS[0])
    with pytest.raises(EngineFailed, match="differently"):
        replay.is_new(segment(" won"))
