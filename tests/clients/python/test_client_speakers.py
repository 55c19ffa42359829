"""The client follows who speaks when, and sends back what another server needs to know the same speakers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tutti
from tests.clients.python.client_fakes import make_utterance, read_golden
from tutti.continuity import Continuity
from tutti.messages import parse_event
from tutti.resumption import resume_command


def speakers(*spans: tuple[float, float, str]) -> tutti.Speakers:
    return tutti.Speakers(0, tuple(tutti.SpeakerSpan(*each) for each in spans))


def test_most_of_a_time_decides() -> None:
    timeline = tutti.SpeakerTimeline()
    timeline.apply(speakers((0.0, 2.0, "A"), (2.0, 3.0, "B")))
    timeline.apply(speakers((3.0, 4.0, "B")))
    assert timeline.spans == [tutti.SpeakerSpan(0.0, 2.0, "A"), tutti.SpeakerSpan(2.0, 4.0, "B")]
    assert (timeline.speaker_of(1.0, 2.5), timeline.speaker_of(1.5, 4.0)) == ("A", "B")
    assert timeline.speaker_of(5.0, 6.0) is None


@pytest.mark.parametrize("session", read_golden("speakers.json"))
def test_the_client_knows_in_the_end_what_the_session_knows(session: Any) -> None:
    timeline, known = tutti.SpeakerTimeline(), tutti.SpeakerTimeline()
    for event in session["events"]:
        timeline.apply(parse(event))
    known.apply(parse({"type": "speakers", "channel": 0, "spans": session["known"]}))
    assert timeline.spans == known.spans and known.spans
    for span in session["known"]:
        assert timeline.speaker_of(span["from_s"], span["until_s"]) == span["speaker"]


def parse(event: dict[str, Any]) -> tutti.Speakers:
    parsed = parse_event(json.dumps(event))
    assert isinstance(parsed, tutti.Speakers)
    return parsed


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from("ABC")), max_size=4)))
def test_any_sequence_of_events_is_as_if_painted(drawn: list[list[tuple[int, int, str]]]) -> None:
    """Also of spans that are empty, run backwards, or do not follow each other."""
    timeline = tutti.SpeakerTimeline()
    painted: dict[int, str] = {}
    for event in drawn:
        timeline.apply(speakers(*((float(begin), float(end), speaker) for begin, end, speaker in event)))
        for begin, end, speaker in event:
            painted |= dict.fromkeys(range(begin, end), speaker)
    assert painted == {at: span.speaker for span in timeline.spans for at in range(int(span.from_s), int(span.until_s))}
    assert all(timeline.speaker_of(at, at + 1) == painted.get(at) for at in range(41))
    for before, after in pairwise(timeline.spans):
        assert before.until_s < after.from_s or (before.until_s == after.from_s and before.speaker != after.speaker)


def test_the_newest_voices_are_sent_back() -> None:
    continuity = Continuity((0.0,))
    assert resume_command(continuity, 0.0, True).voices is None
    continuity.receive(make_utterance("", resume_from_s=(1.0,), voices="v1.1.AA"))
    continuity.receive(make_utterance("", resume_from_s=(1.0,), utterance=1))
    assert resume_command(continuity, 1.0, True).voices == "v1.1.AA"
