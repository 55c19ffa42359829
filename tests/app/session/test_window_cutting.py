"""Where a long window is cut: at a pause that is long enough, or at the quietest moment of a full window."""

import numpy as np
import pytest

from app.media.pcm import Samples
from app.session.endpointing import FRAME_SAMPLES
from app.session.window_cutting import (
    LONG_WINDOW_SAMPLES,
    MIN_PAUSE_MS,
    QUIET_SPAN_SAMPLES,
    find_cut,
    quietest_index,
    required_pause_ms,
)
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES

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


def test_a_short_window_is_not_cut() -> None:
    assert cut(LONG_WINDOW_SAMPLES, PAUSE) is None


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


def test_the_quietest_moment_of_a_short_stretch_is_its_middle() -> None:
    assert quietest_index(np.ones(10, dtype=np.float32), QUIET_SPAN_SAMPLES) == 5
