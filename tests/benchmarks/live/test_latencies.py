"""From events to figures: every number of a small made-up session is known."""

import numpy as np
import pytest

import tutti
from benchmarks.live.client import StreamLog
from benchmarks.live.latencies import measure, observed, problems
from benchmarks.recordings import Recording, ReferenceUtterance
from tutti_server.engine.api import SAMPLE_RATE

STARTED_AT = 100.0


def log(
    *events: tuple[float, tutti.Event], reference: tuple[ReferenceUtterance, ...] = (), audio_s: float = 4.0
) -> StreamLog:
    samples = np.zeros(round(audio_s * SAMPLE_RATE), np.float32)
    recording = Recording("test", samples, " ".join(each.text for each in reference), reference)
    return StreamLog(
        recording=recording, started_at=STARTED_AT, events=[(STARTED_AT + at, event) for at, event in events]
    )


def interim(end_s: float, stable: str, tail: str) -> tutti.Interim:
    return tutti.Interim(utterance=0, channel=0, start_s=0.9, end_s=end_s, stable=stable, tail=tail)


def utterance(text: str, number: int = 0, start_s: float = 0.9, end_s: float = 3.1) -> tutti.Utterance:
    return tutti.Utterance(
        utterance=number, channel=0, start_s=start_s, end_s=end_s, text=text, uncovered=(), final_until_s=end_s
    )


SESSION = (
    (1.2, tutti.SpeechStarted(0, 0, 0.9)),
    (1.8, interim(1.5, "", "Ab")),
    (2.5, interim(2.0, "Ab", " zz")),
    (3.0, interim(2.5, "Ab", " cd")),
    (3.9, utterance("Ab cd!")),
    (4.1, tutti.Stopped(4.0, 2.2, 2)),
)
REFERENCE = (ReferenceUtterance("Ab cd", ((1.0, 3.0),)),)


def test_the_figures_of_a_session() -> None:
    """Each is counted from the moment at which the audio in question was spoken."""
    latencies = measure(log(*SESSION, reference=REFERENCE))
    assert latencies.first_text_s == pytest.approx([0.8])
    assert latencies.interim_lag_s == pytest.approx([0.3, 0.5, 0.5])
    assert latencies.final_s == pytest.approx([0.8])
    assert latencies.final_true_s == pytest.approx([0.9])
    # "ab" ends at 2.0 s and is shown before that, as it is half of the letters; "cd" ends at 3.0 s.
    assert latencies.words.shown_s == pytest.approx([-0.2, 0.0])
    assert latencies.words.stable_s == pytest.approx([0.5, 0.9])
    assert latencies.words.n_revised == 1
    assert latencies.errors.rate == 0.0
    assert problems(log(*SESSION, reference=REFERENCE)) == []


def test_a_segment_is_final_text() -> None:
    """Words of a segment are stable before the utterance ends, and the next interim goes on after them."""
    events = (
        (1.2, tutti.SpeechStarted(0, 0, 0.9)),
        (
            2.2,
            tutti.Segment(
                utterance=0, id=0, channel=0, start_s=0.9, end_s=2.0, text="Ab", words=(), confidence=1.0, language="en"
            ),
        ),
        (3.0, interim(2.5, "", " cd")),
        (3.9, utterance("Ab cd")),
    )
    latencies = measure(log(*events, reference=REFERENCE))
    assert latencies.words.stable_s == pytest.approx([0.2, 0.9])
    assert latencies.words.shown_s == pytest.approx([0.2, 0.0])
    assert latencies.first_text_s == pytest.approx([1.2])


def test_the_text_of_a_session_is_that_of_its_utterances() -> None:
    """An utterance that begins while another is open stands after it."""
    events = (
        (1.2, tutti.SpeechStarted(0, 0, 0.9)),
        (1.8, interim(1.5, "Ab", " zz")),
        (2.5, tutti.Interim(utterance=1, channel=0, start_s=2.0, end_s=2.4, stable="", tail="cd")),
        (3.0, utterance("Ab x.", 0, 0.9, 2.0)),
    )
    seen = [
        (caption.arrived_at - STARTED_AT, caption.shown, caption.stable)
        for caption in observed(log(*events, reference=REFERENCE)).captions
    ]
    assert [(shown, stable) for _, shown, stable in seen] == [
        ("Ab zz", "Ab"),
        ("Ab zz cd", "Ab "),
        ("Ab x. cd", "Ab x. "),
    ]
    assert [arrived_at for arrived_at, _, _ in seen] == pytest.approx([1.8, 2.5, 3.0])


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        (((2.0, interim(1.5, "ab", "")), (2.5, interim(2.0, "ac", ""))), "took stable text back"),
        (((2.0, tutti.SpeechStarted(0, 0, 1.0)), (4.0, tutti.Stopped(4.0, 0.0, 0))), "ended 0 times"),
        (((4.0, tutti.Stopped(3.0, 0.0, 0)),), "counted 3.00 s"),
        (((4.0, tutti.ErrorEvent("bad_json", "what was that", False)),), "bad_json"),
        (((2.0, utterance("a")), (3.0, utterance("b", 1, 2.0, 3.0))), "before the last one's end"),
    ],
)
def test_broken_guarantees_are_found(events: tuple[tuple[float, tutti.Event], ...], complaint: str) -> None:
    """Whatever a session does against docs/protocol.md counts as a failure."""
    assert complaint in " ".join(problems(log(*events)))


def test_a_failed_session_is_a_problem() -> None:
    failed = log()
    failed.failure = "ConnectionLost: gone"
    assert problems(failed) == ["ConnectionLost: gone"]
