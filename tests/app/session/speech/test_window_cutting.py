"""Where a long window is cut: at a pause that is long enough, or at the quietest moment of a full window."""

import numpy as np
import pytest

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.app.session.speech.window_cutting import (
    LONG_WINDOW_SAMPLES,
    MIN_PAUSE_MS,
    QUIET_SPAN_SAMPLES,
    find_cut,
    find_cut_of_filled,
    required_pause_ms,
)
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES

START = 5 * SAMPLE_RATE
SILENCE_MS = 500
PAUSE = SILENCE_MS * SAMPLE_RATE // 1000
MIN_PAUSE = MIN_PAUSE_MS * SAMPLE_RATE // 1000


def cut(length: int, pause: int = 0, stable_until: int = 0, quiet_at: int = 0) -> int | None:
    """The cut of a window at `START` whose samples are 1, and 0 for `QUIET_SPAN_SAMPLES` from `quiet_at` on."""
    samples: Samples = np.ones(START + length, dtype=np.float32)
    samples[quiet_at : quiet_at + QUIET_SPAN_SAMPLES] = 0
    return find_cut(
        start=START,
        end=START + length,
        pause_samples=pause,
        silence_ms=SILENCE_MS,
        stable_until=stable_until,
        view=lambda start, end: samples[start:end],
    )


def test_a_long_window_is_cut_in_the_middle_of_a_pause() -> None:
    length = LONG_WINDOW_SAMPLES + FRAME_SAMPLES
    assert cut(length, PAUSE) == START + length - PAUSE // 2


def test_a_pause_is_not_cut_before_the_end_of_the_stable_text() -> None:
    end = START + LONG_WINDOW_SAMPLES + FRAME_SAMPLES
    assert cut(end - START, PAUSE, stable_until=end - 160) == end - 160


@pytest.mark.parametrize(
    ("length", "pause_ms"),
    [
        (LONG_WINDOW_SAMPLES, SILENCE_MS),
        ((LONG_WINDOW_SAMPLES + WINDOW_SAMPLES) // 2, (SILENCE_MS + MIN_PAUSE_MS) / 2),
        (WINDOW_SAMPLES, MIN_PAUSE_MS),
        (WINDOW_SAMPLES + FRAME_SAMPLES, MIN_PAUSE_MS),
    ],
)
def test_the_required_pause_falls_as_the_window_grows(length: int, pause_ms: float) -> None:
    assert required_pause_ms(length, SILENCE_MS) == pytest.approx(pause_ms)


def test_a_pause_that_is_too_short_does_not_cut_a_window_with_room() -> None:
    assert cut(WINDOW_SAMPLES - FRAME_SAMPLES, MIN_PAUSE - 1) is None


def test_a_full_window_is_cut_at_its_shortest_pause_first() -> None:
    assert (
        cut(WINDOW_SAMPLES, MIN_PAUSE, quiet_at=START + LONG_WINDOW_SAMPLES) == START + WINDOW_SAMPLES - MIN_PAUSE // 2
    )


def test_a_full_window_is_cut_at_its_quietest_moment() -> None:
    quiet_at = START + LONG_WINDOW_SAMPLES + SAMPLE_RATE
    assert cut(WINDOW_SAMPLES, quiet_at=quiet_at) == quiet_at + QUIET_SPAN_SAMPLES // 2


def test_a_full_window_is_not_cut_before_its_stable_text() -> None:
    """The quietest moment lies before it, and is not taken."""
    quiet_at, stable_until = START + LONG_WINDOW_SAMPLES, START + WINDOW_SAMPLES - SAMPLE_RATE
    found = cut(WINDOW_SAMPLES, stable_until=stable_until, quiet_at=quiet_at)
    assert found is not None and stable_until <= found <= START + WINDOW_SAMPLES


def test_a_cut_is_not_after_the_audio() -> None:
    """Stable text may reach to the end of the audio, or by its timestamps after it."""
    assert cut(WINDOW_SAMPLES, stable_until=START + 2 * WINDOW_SAMPLES) == START + WINDOW_SAMPLES


def cut_filled(length_s: float, *speech_s: tuple[float, float], quiet_at_s: float = 0.0) -> float | None:
    """The cut of a filled window at `START`, in seconds from its start."""
    samples: Samples = np.ones(START + round(length_s * SAMPLE_RATE), dtype=np.float32)
    quiet_at = START + round(quiet_at_s * SAMPLE_RATE)
    samples[quiet_at : quiet_at + QUIET_SPAN_SAMPLES] = 0
    speech = [(START + round(begin_s * SAMPLE_RATE), START + round(end_s * SAMPLE_RATE)) for begin_s, end_s in speech_s]
    found = find_cut_of_filled(START, len(samples), speech, lambda start, end: samples[start:end])
    return None if found is None else (found - START) / SAMPLE_RATE


def test_a_window_of_a_recording_is_filled_over_pauses() -> None:
    assert cut_filled(29.9, (0.3, 12.0), (13.9, 29.0)) is None


@pytest.mark.parametrize(
    ("speech_s", "cut_s"),
    [
        (((0.3, 12.0), (13.0, 25.0), (25.5, 30.0)), 12.5),
        (((0.3, 12.0), (12.5, 25.0), (26.0, 30.0)), 25.5),
        (((0.3, 4.0), (6.0, 25.0), (25.5, 30.0)), 25.25),
        (((0.3, 12.0), (12.5, 28.0)), 29.0),
    ],
)
def test_a_full_window_is_cut_in_the_middle_of_its_longest_pause(
    speech_s: tuple[tuple[float, float], ...], cut_s: float
) -> None:
    """Also of the one that goes on; not of one in the first third, which would leave too little before it."""
    assert cut_filled(30.0, *speech_s) == cut_s


@pytest.mark.parametrize("speech_s", [((0.3, 30.0),), (), ((0.3, 2.0), (4.0, 30.0))])
def test_a_full_window_without_a_pause_is_cut_at_its_quietest_moment(speech_s: tuple[tuple[float, float], ...]) -> None:
    assert cut_filled(30.0, *speech_s, quiet_at_s=21.0) == pytest.approx(21.03)
