"""Policies of stable text, compared in audio time."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.session import events
from app.session.session import SessionConfig
from app.session.stabilizer import Agreement
from benchmarks.recordings import Recording, ReferenceUtterance
from benchmarks.stability import CaptionBuilder, copy_as_untrained, row, run_session, table
from engine import api
from engine.api import SAMPLE_RATE
from engine.checkpoint.checkpoint import read_checkpoint
from tests.fakes import FakeTranscriber, LevelDetector, said, silence, speech

AUDIO = np.concatenate((silence(0.3), speech([1, 2, 3, 4, 5, 6]), silence(1.0)))
MADE_UP = Recording(
    "made up", AUDIO, said([1, 2, 3, 4, 5, 6]), (ReferenceUtterance(said([1, 2, 3, 4, 5, 6]), ((0.3, 1.98),)),)
)


async def test_words_are_timed_in_audio_time() -> None:
    """Every run gives the same; the last word waits for the endpoint, the others for a second hypothesis."""
    config = SessionConfig(make_detector=LevelDetector, make_policy=Agreement)
    first, again = [await run_session(FakeTranscriber(), MADE_UP, config) for _ in range(2)]
    assert first == again
    # "w1" is two words to the normaliser.
    assert (first.errors.words, first.errors.rate, first.latencies.n_taken_back) == (12, 0.0, 0)
    assert all(
        seen <= stable < 1.0 for seen, stable in zip(first.latencies.seen_s, first.latencies.stable_s, strict=True)
    )
    assert first.n_hypotheses > 4


def test_captions_grow_with_the_events() -> None:
    """A segment does not hide what an interim showed behind it; utterances stand in their order."""
    captions = CaptionBuilder()
    segment = api.Segment(
        start_s=0.0, end_s=1.0, text="one two", tokens=(), avg_logprob=0.0, compression_ratio=1.0, no_speech_prob=0.0
    )
    captions.apply(1.0, events.Interim(utterance=0, channel=0, start_s=0.0, end_s=1.0, stable="one", tail=" two three"))
    captions.apply(
        2.0,
        events.Segment(
            utterance=0,
            id=0,
            channel=0,
            start_s=0.0,
            end_s=1.0,
            text="one two",
            language="en",
            source=segment,
            window_start_s=0.0,
        ),
    )
    captions.apply(3.0, events.Interim(utterance=1, channel=0, start_s=2.0, end_s=3.0, stable="", tail="four"))
    captions.apply(
        4.0,
        events.Utterance(
            utterance=0,
            channel=0,
            start_s=0.0,
            end_s=1.0,
            text="one two five",
            uncovered=(),
            final_until_s=1.0,
            resume_from_s=(1.0,),
        ),
    )
    shown = [(each.arrived_at, each.stable.strip(), each.shown.strip()) for each in captions.seen]
    assert shown == [
        (1.0, "one", "one two three"),
        (2.0, "one two", "one two three"),
        (3.0, "one two", "one two three four"),
        (4.0, "one two five", "one two five four"),
    ]
    assert captions.text == "one two five"


async def test_words_that_never_arrived_stand_in_no_percentile() -> None:
    """They are counted beside the percentiles."""
    audio_s = len(AUDIO) / SAMPLE_RATE
    config = SessionConfig(make_detector=LevelDetector)
    longer = Recording(
        "more", AUDIO, MADE_UP.text + " w9", (*MADE_UP.utterances, ReferenceUtterance("w9", ((2.0, 2.2),)))
    )
    found = await run_session(FakeTranscriber(), longer, config)
    assert found.latencies.shown_s[-1] == math.inf
    assert found.errors.missing_rate == 1 / 7
    shown = row("agreement", found, audio_s)
    assert shown["word_shown_s"]["never"] == 1
    assert table([shown]).rows[0][:2] == ("agreement", "auto")


def test_a_checkpoint_can_be_taken_for_one_trained_on_full_windows(tmp_path: Path) -> None:
    taken, embedded = read_checkpoint(copy_as_untrained("tutti-demo", tmp_path)), read_checkpoint("tutti-demo")
    assert embedded.generation.audio_context and not taken.generation.audio_context
    assert replace(taken.generation, audio_context=embedded.generation.audio_context) == embedded.generation
