"""Finds when tokens were spoken: dynamic time warping of cross-attention onto time. Plain numpy.

Source: openai/whisper, whisper/timing.py; transformers, generation_whisper.py, `_extract_token_timestamps`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api import SAMPLE_RATE

Floats = NDArray[np.float32]

STATE_S = 0.02
"""The audio of one encoder state, in seconds: two log-mel frames."""
STATE_SAMPLES = round(STATE_S * SAMPLE_RATE)
"""The same in samples."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The times and probabilities of the tokens of one window, in their order."""

    starts_s: tuple[float, ...]
    """Seconds from the start of the window to each token; never decreasing."""
    probabilities: tuple[float, ...]
    """The model's probability of each token, without the decoding rules."""


def token_starts_s(weights: Floats) -> tuple[float, ...]:
    """Return when each token begins, in seconds from the start of the window.

    Args:
        weights: `(heads, tokens, states)`: attention of the alignment heads over the states that hold audio. Each row
            is from the position of its token.
    """
    mean = median_filtered(normalised(weights)).mean(axis=0)
    return tuple((start_frames(mean[None])[0] * STATE_S).round(2).tolist())


def start_frames(weights: Floats) -> NDArray[np.int64]:
    """Return the frame at which each token begins, on the best path through its matrix.

    The path goes from the first token and frame to the last token and frame. Of all such paths it has the largest sum
    of weights.

    Args:
        weights: `(sets, tokens, frames)`.

    Returns:
        `(sets, tokens)` frames.

    Source: openai/whisper, whisper/timing.py, `dtw_cpu` and `backtrace`. Here the matrix is filled by diagonals: the
    token and the frame of an entry add up to the number of its diagonal, and a diagonal depends on the two before it.
    """
    n_sets, n_tokens, n_frames = weights.shape
    tokens = np.arange(n_tokens)
    nothing = np.full((n_sets, n_tokens + 1), np.inf)
    # Entries are shifted by one place, so that the place before the first token is always infinite.
    before, last = nothing.copy(), nothing.copy()
    trace = np.zeros((n_tokens + n_frames - 1, n_sets, n_tokens), np.int8)
    for diagonal in range(n_tokens + n_frames - 1):
        frames = diagonal - tokens
        inside = (frames >= 0) & (frames < n_frames)
        both, token, frame = before[:, :-1], last[:, :-1], last[:, 1:]
        step = np.where((both < token) & (both < frame), 0, np.where((token < both) & (token < frame), 1, 2))
        cost = np.choose(step, (both, token, frame))
        if diagonal == 0:
            cost[:, 0] = 0.0
        here = nothing.copy()
        here[:, 1:][:, inside] = cost[:, inside] - weights[:, tokens[inside], frames[inside]]
        trace[diagonal] = step
        before, last = last, here
    return _first_frames(trace, n_frames)


def _first_frames(trace: NDArray[np.int8], n_frames: int) -> NDArray[np.int64]:
    """Follow all paths back at once. The last frame visited at a token is where it begins."""
    _, n_sets, n_tokens = trace.shape
    sets = np.arange(n_sets)
    token, frame = np.full(n_sets, n_tokens - 1), np.full(n_sets, n_frames - 1)
    starts = np.zeros((n_sets, n_tokens), np.int64)
    while True:
        starts[sets, token] = frame
        if not (token.any() or frame.any()):
            return starts
        step = trace[token + frame, sets, token]
        step = np.where(token == 0, 2, np.where(frame == 0, 1, step))
        token, frame = np.maximum(token - (step != 2), 0), np.maximum(frame - (step != 1), 0)


def normalised(weights: Floats) -> Floats:
    """Scale every frame's weights over the tokens to mean 0 and deviation 1: `(..., tokens, frames)`."""
    deviation = weights.std(-2, keepdims=True)
    scaled: Floats = (weights - weights.mean(-2, keepdims=True)) / np.maximum(deviation, 1e-10)
    return scaled


def median_filtered(weights: Floats, width: int = 7) -> Floats:
    """Return the median of `width` frames around each frame, mirrored at the edges, as in whisper/timing.py."""
    side = width // 2
    if weights.shape[-1] <= side:
        return weights
    padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(side, side)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    filtered: Floats = np.median(windows, axis=-1).astype(np.float32)
    return filtered
