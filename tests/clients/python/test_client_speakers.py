"""The client follows who speaks when, and sends back what another server needs to know the same speakers."""

from dataclasses import replace

import tutti
from tutti.continuity import Continuity
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


def test_a_later_event_replaces_an_earlier_one() -> None:
    timeline = tutti.SpeakerTimeline()
    timeline.apply(speakers((0.0, 4.0, "A")))
    timeline.apply(speakers((1.0, 2.0, "B")))
    assert [each.speaker for each in timeline.spans] == ["A", "B", "A"]
    timeline.apply(speakers((0.0, 4.0, "C")))
    assert timeline.spans == [tutti.SpeakerSpan(0.0, 4.0, "C")]


def test_the_newest_voices_are_sent_back() -> None:
    continuity = Continuity((0.0,))
    assert resume_command(continuity, 0.0, True).voices is None
    ended = tutti.Utterance(
        utterance=0,
        channel=0,
        start_s=0.0,
        end_s=1.0,
        text="",
        uncovered=(),
        final_until_s=1.0,
        resume_from_s=(1.0,),
        voices="v1.1.AA",
    )
    continuity.receive(ended)
    continuity.receive(replace(ended, utterance=1, voices=None))
    assert resume_command(continuity, 1.0, True).voices == "v1.1.AA"
