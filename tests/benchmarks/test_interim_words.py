"""Cost of words, and how far their times move."""

from dataclasses import replace

import numpy as np
import pytest

from app.session import events
from app.session.session import SessionConfig
from benchmarks.interim_words import MODES, WordsRun, moved, row, run_once, tables
from benchmarks.recordings import Recording
from engine import api
from engine.config import EngineConfig
from engine.engine import Engine
from tests.fakes import FakeTranscriber, LevelDetector, said, silence, speech
from tests.recordings import read
from tests.small_model import N_BEAMS, SMALL_MODEL

AUDIO = np.concatenate((silence(0.3), speech([1, 2, 3, 4, 5, 6]), silence(1.0)))
RECORDING = Recording("made up", AUDIO, said([1, 2, 3, 4, 5, 6]), ())


async def run(mode: str) -> WordsRun:
    found = WordsRun()
    await run_once(FakeTranscriber(), RECORDING, SessionConfig(make_detector=LevelDetector), MODES[mode], found)
    return found


async def test_stable_words_are_compared_with_the_alignment_of_the_final() -> None:
    """The fake engine gives the words of a segment equal shares of its time, so that they move with every interim."""
    found = await run("in finals and interims")
    assert found.n_words == 6 and 3 <= len(found.starts_s) < 6
    assert found.n_changed == 0 and max(found.ends_s) > 0.02
    assert found.audio_s == pytest.approx(len(AUDIO) / 16_000) and found.interims_s


async def test_without_words_in_interims_nothing_is_compared() -> None:
    """Without words in finals there is nothing to count either."""
    assert ((await run("none")).n_words, (await run("in finals")).n_words) == (0, 6)
    assert not (await run("in finals")).starts_s


async def test_the_small_model_times_words_of_interims_as_those_of_the_final() -> None:
    """Some times would have moved. Those that were sent are kept."""
    samples = np.concatenate((read("train").astype(np.float32) / 32768, silence(1.0)))
    found = WordsRun()
    recording = Recording("train", samples.astype(np.float32), "", ())
    async with Engine.start(EngineConfig(model=SMALL_MODEL, n_slots=8, max_wait_ms=0)) as engine:
        mode = MODES["in finals and interims"]
        await run_once(engine, recording, SessionConfig(beam_size=N_BEAMS), mode, found)
    assert len(found.starts_s) > 5 and found.n_changed == 0
    assert np.median(found.starts_s) < 0.05 and np.median(found.confidences) < 0.1


def test_a_word_with_other_times_in_the_final_is_counted() -> None:
    found = WordsRun()
    word = events.Word("one", 0.1, 0.4, 0.9)
    own = api.Segment(
        start_s=0.0,
        end_s=1.0,
        text=" one",
        tokens=(),
        avg_logprob=0.0,
        compression_ratio=1.0,
        no_speech_prob=0.0,
        words=(api.Word(" one", 0.14, 0.4, 0.9),),
    )
    interim = events.Interim(
        utterance=0, channel=0, start_s=0.0, end_s=1.0, stable="one", tail="", stable_words=(word,)
    )
    final = events.Segment(
        utterance=0,
        id=0,
        channel=0,
        start_s=0.0,
        end_s=1.0,
        text="one",
        language="en",
        source=own,
        window_start_s=0.0,
        words=(replace(word, start_s=0.2),),
    )
    found.on_event(1.0, interim)
    found.on_window(api.Window(samples=AUDIO, session=""), [api.SegmentEvent(own)], 0.1)
    found.on_event(1.5, final)
    assert found.n_changed == 1 and found.starts_s == pytest.approx([0.04])


def test_shares_are_of_words_that_moved_by_at_most_a_limit() -> None:
    """A difference by rounding to milliseconds does not count."""
    shares = moved([0.0005, 0.02, 0.021, 0.04])
    assert (shares["within_0_s"], shares["within_0.02_s"], shares["max"]) == (0.25, 0.75, 0.04)
    assert moved([])["within_0_s"] is None


async def test_tables_name_each_mode_and_both_times() -> None:
    rows = [row(mode, replace(await run(mode), cpu_s=1.0 + number)) for number, mode in enumerate(MODES)]
    costs, moves = tables(rows)
    assert [each[0] for each in costs.rows] == list(MODES)
    assert [each[2] for each in costs.rows] == ["+0.0", "+100.0", "+200.0"]
    assert [each[0] for each in moves.rows] == ["start", "end"]
