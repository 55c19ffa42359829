"""Finds when tokens were spoken: dynamic time warping of cross-attention onto time. Plain numpy.

Source: openai/whisper, whisper/timing.py; transformers, generation_whisper.py, `_extract_token_timestamps`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api import SAMPLE_RATE
from engine.model.log_mel import STATE_SAMPLES

Floats = NDArray[np.float32]

STATE_S = STATE_SAMPLES / SAMPLE_RATE
"""The audio of one encoder state, in seconds: 0.02."""


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
    return tuple((start_states(mean[None])[0] * STATE_S).round(2).tolist())


def start_states(weights: Floats) -> NDArray[np.int64]:
    """Return the encoder state at which each token begins, on the best path through its matrix.

    The path goes from the first token and state to the last token and state. Of all such paths it has the largest sum
    of weights.

    Args:
        weights: `(sets, tokens, states)`.

    Returns:
        `(sets, tokens)` indices of encoder states.

    Source: openai/whisper, whisper/timing.py, `dtw_cpu` and `backtrace`. Here the matrix is filled by diagonals: the
    token and the state of an entry add up to the number of its diagonal, and a diagonal depends on the two before it.
    """
    n_sets, n_tokens, n_states = weights.shape
    tokens = np.arange(n_tokens)
    nothing = np.full((n_sets, n_tokens + 1), np.inf)
    # Entries are shifted by one place, so that the place before the first token is always infinite.
    before, last = nothing.copy(), nothing.copy()
    trace = np.zeros((n_tokens + n_states - 1, n_sets, n_tokens), np.int8)
    for diagonal in range(n_tokens + n_states - 1):
        states = diagonal - tokens
        inside = (states >= 0) & (states < n_states)
        both, token, state = before[:, :-1], last[:, :-1], last[:, 1:]
        step = np.where((both < token) & (both < state), 0, np.where((token < both) & (token < state), 1, 2))
        cost = np.choose(step, (both, token, state))
        if diagonal == 0:
            cost[:, 0] = 0.0
        here = nothing.copy()
        here[:, 1:][:, inside] = cost[:, inside] - weights[:, tokens[inside], states[inside]]
        trace[diagonal] = step
        before, last = last, here
    return _first_states(trace, n_states)


def _first_states(trace: NDArray[np.int8], n_states: int) -> NDArray[np.int64]:
    """Follow all paths back at once. A token begins at the last state that is visited on the way back."""
    _, n_sets, n_tokens = trace.shape
    sets = np.arange(n_sets)
    token, state = np.full(n_sets, n_tokens - 1), np.full(n_sets, n_states - 1)
    starts = np.zeros((n_sets, n_tokens), np.int64)
    while True:
        starts[sets, token] = state
        if not (token.any() or state.any()):
            return starts
        step = trace[token + state, sets, token]
        step = np.where(token == 0, 2, np.where(state == 0, 1, step))
        token, state = np.maximum(token - (step != 2), 0), np.maximum(state - (step != 1), 0)


def normalised(weights: Floats) -> Floats:
    """Scale every state's weights over the tokens to mean 0 and deviation 1: `(..., tokens, states)`."""
    deviation = weights.std(-2, keepdims=True)
    scaled: Floats = (weights - weights.mean(-2, keepdims=True)) / np.maximum(deviation, 1e-10)
    return scaled


def median_filtered(weights: Floats, width: int = 7) -> Floats:
    """Return the median of `width` states around each state, mirrored at the edges, as in whisper/timing.py."""
    side = width // 2
    if weights.shape[-1] <= side:
        return weights
    padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(side, side)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    filtered: Floats = np.median(windows, axis=-1).astype(np.float32)
    return filtered
