"""Decides where a window that has become long is cut. The audio after the cut begins the next window.

A window of up to `LONG_WINDOW_SAMPLES` is not cut. A longer one is cut in the middle of the next pause that is long
enough; the longer the window, the shorter this pause may be. A full window is cut at its quietest moment.

The windows of a recording, whose text no one waits for, are filled instead: a full one is cut in its longest pause.
"""

from collections.abc import Callable

import numpy as np

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.speech.coverage import Span
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES

LONG_WINDOW_SAMPLES = 2 * WINDOW_SAMPLES // 3
"""A window that is longer than this many samples is cut at the next pause that is long enough (20 s)."""
MIN_PAUSE_MS = 60
"""The pause that is long enough in a full window, in milliseconds: the shortest at which a window may be cut."""
LEAST_FILLED_SAMPLES = WINDOW_SAMPLES // 3
"""The least audio of a filled window after a cut, in samples (10 s)."""
QUIET_SPAN_SAMPLES = 60 * SAMPLE_RATE // 1000
"""A full window without a pause is cut in the middle of its quietest stretch of this many samples (60 ms)."""


def required_pause_ms(length: int, silence_ms: int) -> float:
    """The pause at which a window is cut, in milliseconds.

    It falls linearly from `silence_ms`, at `LONG_WINDOW_SAMPLES`, to `MIN_PAUSE_MS` at a full window.

    Args:
        length: of the window, in samples; more than `LONG_WINDOW_SAMPLES`.
    """
    share_left = max(WINDOW_SAMPLES - length, 0) / (WINDOW_SAMPLES - LONG_WINDOW_SAMPLES)
    return MIN_PAUSE_MS + (silence_ms - MIN_PAUSE_MS) * share_left


def find_cut(
    start: int,
    end: int,
    pause_samples: int,
    silence_ms: int,
    stable_until: int,
    view: Callable[[int, int], Samples],
) -> int | None:
    """The position at which the open window, a long one, is cut now; `None` if it goes on.

    The channel asks after every frame, because a full window must be cut after its stable text: the decision cannot be
    made afterwards.

    Args:
        start: position of the window's first sample.
        end: position after its last sample so far.
        pause_samples: the samples since the last frame of speech.
        stable_until: position before which all stable text of the window was spoken.
        view: returns the samples between two positions of the window.
    """
    length = end - start
    pause = min(pause_samples, length)
    if pause * 1000 >= required_pause_ms(length, silence_ms) * SAMPLE_RATE:
        return max(end - pause // 2, min(stable_until, end))
    if length + FRAME_SAMPLES <= WINDOW_SAMPLES:
        return None
    earliest = min(max(start + LONG_WINDOW_SAMPLES, stable_until), end)
    return earliest + quietest_index(view(earliest, end), QUIET_SPAN_SAMPLES)


def find_cut_of_filled(start: int, end: int, speech: list[Span], view: Callable[[int, int], Samples]) -> int | None:
    """The position at which the open window of a recording is cut now; `None` if it goes on until it is full.

    Whisper hears 30 s at once, and understands words better by those around them.

    Args:
        speech: the speech detected in it, in order.
        start, end, view: as for `find_cut`.
    """
    if end - start + FRAME_SAMPLES <= WINDOW_SAMPLES:
        return None
    earliest = start + LEAST_FILLED_SAMPLES
    next_starts = [*(begin for begin, _ in speech[1:]), end]
    pauses = [(until - since, (since + until) // 2) for (_, since), until in zip(speech, next_starts, strict=False)]
    length, middle = max((pause for pause in pauses if pause[1] >= earliest), default=(0, 0))
    if length:
        return middle
    return earliest + quietest_index(view(earliest, end), QUIET_SPAN_SAMPLES)


def quietest_index(samples: Samples, span_samples: int) -> int:
    """The index of the middle of the stretch of `span_samples` that has the least energy."""
    if len(samples) <= span_samples:
        return len(samples) // 2
    energy = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    return int(np.argmin(energy[span_samples:] - energy[:-span_samples])) + span_samples // 2
