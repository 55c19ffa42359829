"""Errors of segment times."""

import numpy as np
import pytest

from benchmarks.recordings import ReferenceUtterance
from engine.api import Segment
from training.evaluation.clips import Clip
from training.evaluation.timestamps import segment_errors


def clip(*sentences: tuple[str, float, float]) -> Clip:
    spoken = tuple(ReferenceUtterance(text, ((start_s, end_s),)) for text, start_s, end_s in sentences)
    text = " ".join(each.text for each in spoken)
    return Clip(name="clip", group="voice", samples=np.zeros(1, np.float32), text=text, utterances=spoken)


def segment(text: str, start_s: float, end_s: float) -> Segment:
    return Segment(
        start_s=start_s, end_s=end_s, text=text, tokens=(), avg_logprob=0.0, compression_ratio=1.0, no_speech_prob=0.0
    )


def test_a_segment_for_each_sentence_gives_all_times() -> None:
    """Late is positive; words heard wrongly do not matter while others tell the sentence."""
    starts, ends = segment_errors(
        clip(("Glue the sheet.", 0.5, 1.5), ("Rice is served.", 2.0, 3.0)),
        [segment(" Blue the sheet.", 0.6, 1.4), segment(" Rice is nerved.", 2.0, 3.2)],
    )
    assert starts == pytest.approx([0.1, 0.0]) and ends == pytest.approx([-0.1, 0.2])


def test_a_segment_of_two_sentences_marks_only_its_edges() -> None:
    """The second start and the first end are not there to be measured."""
    starts, ends = segment_errors(
        clip(("Glue the sheet.", 0.5, 1.5), ("Rice is served.", 2.0, 3.0)),
        [segment(" Glue the sheet. Rice is served.", 0.5, 3.1)],
    )
    assert starts == pytest.approx([0.0]) and ends == pytest.approx([0.1])


def test_a_sentence_in_two_segments_begins_with_the_first_and_ends_with_the_second() -> None:
    starts, ends = segment_errors(
        clip(("Glue the sheet to the background.", 0.5, 2.5)),
        [segment(" Glue the sheet", 0.4, 1.0), segment(" to the background.", 1.0, 2.4)],
    )
    assert starts == pytest.approx([-0.1]) and ends == pytest.approx([-0.1])


def test_a_sentence_that_was_not_heard_has_no_times() -> None:
    assert segment_errors(clip(("Glue the sheet.", 0.5, 1.5)), []) == ([], [])
    assert segment_errors(clip(("Glue the sheet.", 0.5, 1.5)), [segment(" Nothing.", 0.0, 9.0)]) == ([], [])
