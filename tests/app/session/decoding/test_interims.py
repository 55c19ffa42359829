"""When an open window is decoded for an interim."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench
from tests.fakes import silence, speech
from tutti_server.app.session.decoding.interim_schedule import (
    FIRST_SAMPLES,
    PAUSE_SAMPLES,
    REPLACE_SAMPLES,
    InterimSchedule,
)
from tutti_server.app.session.messages import commands, events
from tutti_server.engine.api import SAMPLE_RATE

FRAME = SAMPLE_RATE // 50
INTERVAL, SILENCE = 15 * FRAME, 25 * FRAME


def run(spoken_frames: list[tuple[int, int]], n_frames: int, took_frames: int = 0) -> list[int]:
    """The frames at which a window with speech in these stretches is decoded; answers take `took_frames`."""
    schedule = InterimSchedule(INTERVAL)
    schedule.begin_utterance(spoken_frames[0][0] * FRAME)
    decoded: list[int] = []
    for at in range(n_frames):
        if decoded and at == decoded[-1] + took_frames:
            schedule.note_answered(at * FRAME)
        is_waiting = bool(decoded) and at < decoded[-1] + took_frames
        speech_until = max([min(end, at) for start, end in spoken_frames if start < at], default=0)
        if speech_until and not is_waiting and schedule.is_due(at * FRAME, speech_until * FRAME, SILENCE):
            schedule.note_submitted(at * FRAME)
            decoded.append(at)
            if took_frames == 0:
                schedule.note_answered(at * FRAME)
    return decoded


def test_the_first_words_are_decoded_early_then_at_the_interval() -> None:
    """After 0.3 s of speech, then at the interval."""
    assert run([(0, 100)], 80) == [15, 30, 45, 60, 75]
    assert FIRST_SAMPLES == 15 * FRAME


def test_silence_is_decoded_once_at_the_pause() -> None:
    """The last words are shown before the endpoint is certain; more silence is not decoded."""
    assert run([(0, 40)], 200) == [15, 30, 48]
    assert PAUSE_SAMPLES == 8 * FRAME


def test_a_short_gap_between_words_is_no_pause() -> None:
    """Speech that goes on is decoded at the interval; an interim that is due inside the gap waits for its end."""
    assert run([(0, 29), (33, 60)], 62) == [15, 30, 45, 60]
    assert run([(0, 26), (32, 60)], 62) == [15, 33, 48]


@pytest.mark.parametrize(("took_frames", "apart"), [(3, 15), (9, 15), (18, 30), (24, 40), (60, 60)])
def test_the_interval_stretches_when_answers_take_long(took_frames: int, apart: int) -> None:
    """Interims take at most 60 % of the time, and an engine that was slow is asked again after at most a second."""
    frames = run([(0, 2000)], 2000, took_frames)
    assert abs(frames[-1] - frames[-2] - apart) <= 1


@pytest.mark.parametrize(
    ("interval", "extra_s", "n_spoken"),
    [
        pytest.param(100 * FRAME, 0.0, 60, id="at a long interval"),
        pytest.param(INTERVAL, 5.0, 50, id="on a busy engine"),
    ],
)
def test_an_interim_that_waits_is_replaced_by_newer_ones(interval: int, extra_s: float, n_spoken: int) -> None:
    """It has its place in the queue, and a newer one costs no more. The last words replace it, too."""
    schedule = InterimSchedule(interval, lambda: extra_s)
    schedule.begin_utterance(0)
    n_frames, submitted = -(-min(interval, REPLACE_SAMPLES) // FRAME), list[int]()
    for at in range(100):
        if schedule.is_due(at * FRAME, min(at, n_spoken) * FRAME, SILENCE):
            schedule.note_submitted(at * FRAME)
            submitted.append(at)
    assert submitted == [15, *range(15 + n_frames, n_spoken, n_frames), n_spoken + PAUSE_SAMPLES // FRAME]
    schedule.note_answered(100 * FRAME)
    schedule.begin_utterance(100 * FRAME)
    schedule.note_submitted(115 * FRAME)
    schedule.note_answered(120 * FRAME)
    assert not schedule.is_due(150 * FRAME, 150 * FRAME, SILENCE), "an answer is followed by the interval"


def test_a_busy_engine_is_asked_less_often() -> None:
    """By the extra interval, here of 50 frames, also before the first interim of an utterance and at a pause."""
    at, decoded = 0, list[int]()
    schedule = InterimSchedule(INTERVAL, lambda: 1.0 if 100 <= at < 400 else 0.0)
    for at in range(600):
        if at % 200 == 0:
            schedule.begin_utterance(at * FRAME)
        speech_until = at - at % 200 + min(at % 200, 120)
        if schedule.is_due(at * FRAME, speech_until * FRAME, SILENCE):
            schedule.note_submitted(at * FRAME)
            schedule.note_answered(at * FRAME)
            decoded.append(at)
    assert [each for each in decoded if each < 100] == [15, 30, 45, 60, 75, 90]
    assert [each for each in decoded if 100 <= each < 400] == [215, 215 + 15 + 50]
    assert [each for each in decoded if each >= 400] == [415, 430, 445, 460, 475, 490, 505, 520, 528]


def test_no_interim_at_a_pause_if_its_answer_comes_after_the_endpoint() -> None:
    """The engine decodes the final text by then."""
    n_interims = [len([at for at in run([(0, 200)], 300, took) if at > 200]) for took in (3, 30)]
    assert n_interims == [1, 0]


def test_a_pause_is_decoded_in_manual_mode_too() -> None:
    """The last words are shown although silence does not end the utterance, and the interval is far away."""
    endpointing = commands.Endpointing(mode="manual")
    bench = Bench(replace(START, endpointing=endpointing), replace(CONFIG, interim_interval_ms=30_000))
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(0.5))))
    assert "w3" in bench.of(events.Interim)[-1].tail
