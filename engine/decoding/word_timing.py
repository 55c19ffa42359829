"""Finds when tokens were spoken: dynamic time warping of cross-attention onto time. Plain numpy.

Source: openai/whisper, whisper/timing.py; transformers, generation_whisper.py, `_extract_token_timestamps`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.model.log_mel import STATE_SAMPLES

Floats = NDArray[np.float32]
States = NDArray[np.int64]
"""Indices of encoder states."""

STATE_S = STATE_SAMPLES / SAMPLE_RATE
"""The audio of one encoder state, in seconds: 0.02."""
WHOLE_PER_WEIGHT = 2.0**32
"""What a weight of 1 is as a whole number. Finer than a float32, and the sum of a path stays far below 2**63."""
UNREACHABLE = -(2**60)
"""A sum that is less than that of any path."""
QUIET_STATES = 10
"""The shortest quiet stretch in which there is no word, in encoder states (0.2 s). Shorter ones lie in words."""
ONSET_STATES = 2
"""States at the end of a quiet stretch in which the next word may begin (0.04 s): words begin softly."""
MOST_RANGE_DB = 50.0
"""How far below the loudest states silence is sought, in decibels. Digital silence is much lower."""
LEAST_RANGE_DB = 20.0
"""The least distance of loud and quiet states, in decibels. With less the pauses are as loud as the speech."""
QUIET_SHARE = 0.25
"""States are quiet in this share of the range, from below."""
TONE_STATES = 12
"""The shortest stretch between quiet ones that is taken for a tone, in encoder states (0.24 s)."""
TONE_PIECE_SAMPLES = 8_000
"""A stretch is a tone if each piece of it is one (0.5 s). Of speech one piece is looked at."""
N_TONE_LINES, TONE_SHARE = 8, 0.98
"""A piece is a tone, or two, if this number of lines of its spectrum has this share of its energy.

Of 2,293 stretches in recordings of people the largest share is 0.97; a tone 20 dB above noise has 0.99.
"""
N_LAST_TOKENS = 3
"""The tokens at the end of a text that was cut by which its end is found. A single one may attend to the beginning."""
FILTERED_AT_ONCE = 1 << 15
"""About how many weights `median_filtered` works on at once, so that they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The times and probabilities of the tokens of one window, in their order."""

    starts_s: tuple[float, ...]
    """Seconds from the start of the window to each token; never decreasing."""
    sounds_s: tuple[tuple[float, float], ...]
    """The stretches of audio that are not quiet, in order: start and end in seconds from the start of the window."""
    probabilities: tuple[float, ...]
    """The model's probability of each token, without the decoding rules."""


def token_times_s(weights: Floats, sounding: States) -> tuple[tuple[float, ...], tuple[tuple[float, float], ...]]:
    """Return `Alignment.starts_s` and `Alignment.sounds_s`.

    Args:
        weights: `(heads, tokens, states)`: attention of the alignment heads over the states that hold audio. Each row
            is of the pass that predicts its token, whose input is the token before it.
        sounding: the states that the tokens are aligned with, as `sounding_states` gives them.
    """
    mean = median_filtered(normalised(weights[..., sounding])).mean(axis=0)
    starts = sounding[start_states(mean)]
    is_last = np.append(np.diff(sounding) > 1, True)
    from_s = (sounding[np.append(True, is_last[:-1])] * STATE_S).round(2)
    until_s = ((sounding[is_last] + 1) * STATE_S).round(2)
    return tuple((starts * STATE_S).round(2).tolist()), tuple(zip(from_s.tolist(), until_s.tolist(), strict=True))


def sounding_states(samples: Floats) -> States:
    """Return the indices of the encoder states that are not part of a longer quiet stretch or of a tone, in order.

    Attention says little about pauses: a path through them costs nothing, and the first word after a pause would begin
    anywhere in it. The tones of a telephone network draw the first words to themselves. So tokens are aligned with the
    other states alone.

    Args:
        samples: of the window, mono at 16 kHz.
    """
    n_states = len(samples) // STATE_SAMPLES
    if n_states == 0:
        return np.zeros(1, np.int64)
    frames = samples[: n_states * STATE_SAMPLES].reshape(n_states, -1).astype(np.float64)
    levels_db = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-12)
    loud_db = float(np.percentile(levels_db, 95))
    floor_db = max(float(np.percentile(levels_db, 5)), loud_db - MOST_RANGE_DB)
    everything = np.arange(n_states)
    if loud_db - floor_db < LEAST_RANGE_DB:
        return everything
    is_quiet = levels_db < floor_db + QUIET_SHARE * (loud_db - floor_db)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_quiet, [False]))))
    is_sounding = np.ones(n_states, np.bool_)
    for begin, end in edges.reshape(-1, 2).tolist():
        if end - begin >= QUIET_STATES:
            is_sounding[begin : end - ONSET_STATES] = False
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_sounding, [False]))))
    is_word = is_sounding.copy()
    for begin, end in edges.reshape(-1, 2).tolist():
        # The states at its edges have parts of what is beside it.
        inner = samples[(begin + ONSET_STATES) * STATE_SAMPLES : (end - 1) * STATE_SAMPLES]
        if end - begin >= TONE_STATES and _is_tone(inner):
            is_word[begin:end] = False
    # After the last tone of a window there may be the states for the next word's onset, and no word.
    return everything[is_word if is_word.sum() > ONSET_STATES else is_sounding]


def states_of_cut_text(weights: Floats, sounding: States) -> States:
    """Return the sounding states of a cut text: up to the one that its last tokens attend to most.

    The best path goes to the last state. So some token would get all of the audio after such a text: after two of five
    tokens of four recordings the text ended seconds too late, and with these states after none.

    Args:
        weights: see `token_times_s`.
        sounding: see `token_times_s`.
    """
    last = weights[:, -N_LAST_TOKENS:, sounding].mean(axis=0).argmax(axis=-1).max()
    return sounding[: last + 1]


def _is_tone(samples: Floats) -> bool:
    n_pieces = max(len(samples) // TONE_PIECE_SAMPLES, 1)
    for piece in np.array_split(samples, n_pieces):
        spectrum = np.fft.rfft((piece - piece.mean()) * np.hanning(len(piece)))
        lines = spectrum.real**2 + spectrum.imag**2
        if np.partition(lines, -N_TONE_LINES)[-N_TONE_LINES:].sum() < TONE_SHARE * lines.sum():
            return False
    return True


def start_states(weights: Floats) -> NDArray[np.int64]:
    """Return the encoder state at which each token begins, on the best path through a matrix.

    The path goes from the first token and state to the last token and state. Of all such paths it has the largest sum
    of weights.

    Args:
        weights: `(tokens, states)`.

    Source: openai/whisper, whisper/timing.py, `dtw_cpu` and `backtrace`. Here the matrix is filled token by token. A
    path that enters a token's row at one state and stays in it up to another gathers a difference of two running sums,
    so the best entries for all states are one running maximum. Sums are of whole numbers: sums of floats would depend
    on their order, and decide between equal paths by chance.
    """
    n_tokens, n_states = weights.shape
    whole = np.rint(weights.astype(np.float64) * WHOLE_PER_WEIGHT).astype(np.int64)
    states = np.arange(n_states)
    # Where the best path that leaves a token's row at a state has entered the row; and whether a path that enters it at
    # a state was one state before in the row of the token before, and not in the same state.
    entries = np.zeros(weights.shape, np.int64)
    came_with_state = np.zeros(weights.shape, np.bool_)
    best = whole[0].cumsum()
    for token in range(1, n_tokens):
        from_both = np.append(UNREACHABLE, best[:-1])
        came_with_state[token] = from_both >= best
        sums = whole[token].cumsum()
        at_entry = np.maximum(from_both, best) - sums + whole[token]
        highest = np.maximum.accumulate(at_entry)
        is_higher = at_entry[1:] > highest[:-1]
        entries[token, 1:] = np.maximum.accumulate(np.where(is_higher, states[1:], 0))
        best = highest + sums
    starts = np.zeros(n_tokens, np.int64)
    last = n_states - 1
    for token in range(n_tokens - 1, 0, -1):
        starts[token] = entries[token, last]
        last = starts[token] - came_with_state[token, starts[token]]
    return starts


def normalised(weights: Floats) -> Floats:
    """Scale every state's weights over the tokens to mean 0 and deviation 1: `(..., tokens, states)`."""
    deviation = weights.std(-2, keepdims=True)
    scaled: Floats = (weights - weights.mean(-2, keepdims=True)) / np.maximum(deviation, 1e-10)
    return scaled


def median_filtered(weights: Floats, width: int = 7) -> Floats:
    """Return the median of `width` states around each state, mirrored at the edges, as in whisper/timing.py.

    Args:
        weights: `(..., states)`.
        width: an odd number.
    """
    side = width // 2
    n_states = weights.shape[-1]
    if n_states <= side:
        return weights
    rows = weights.reshape(-1, n_states)
    filtered = np.empty_like(rows)
    n_rows = max(FILTERED_AT_ONCE // n_states, 1)
    for begin in range(0, len(rows), n_rows):
        padded = np.pad(rows[begin : begin + n_rows], [(0, 0), (side, side)], mode="reflect")
        neighbours = [padded[:, shift : shift + n_states] for shift in range(width)]
        filtered[begin : begin + n_rows] = _median(neighbours)
    return filtered.reshape(weights.shape)


def _median(values: list[Floats]) -> Floats:
    """Return the median of an odd number of arrays, element by element.

    The least and the largest of half of the values and one more cannot both be beyond the median, so they are dropped
    and the next value joins, until one is left. For few arrays this takes a tenth of the time of sorting them.
    """
    n_held = len(values) // 2 + 2
    held, waiting = values[:n_held], values[n_held:]
    while len(held) > 2:
        held = _without_extremes(held)
        if waiting:
            held.append(waiting.pop(0))
    return held[0]


def _without_extremes(values: list[Floats]) -> list[Floats]:
    """Return as many arrays less two: element by element without the least and the largest value, in no order."""
    rest = list(values)
    for index in range(1, len(rest)):
        rest[0], rest[index] = np.minimum(rest[0], rest[index]), np.maximum(rest[0], rest[index])
    for index in range(1, len(rest) - 1):
        rest[index], rest[-1] = np.minimum(rest[index], rest[-1]), np.maximum(rest[index], rest[-1])
    return rest[1:-1]
