"""How many sessions engines hold: the figures of several numbers of sessions, and the number at the limit."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.live_capacity import MAX_FINAL_S, MAX_INTERIM_LAG_S, MIN_INTERIMS

STEP = 1.08
"""Ratio of two numbers of sessions that are tried one after the other; in between is interpolated."""

Level = dict[str, Any]
"""Figures of one number of sessions, under the names that `benchmarks.live_capacity` uses."""


def margin(level: Level) -> float:
    """How far the figures are from the nearest limit, as a fraction of the limit; negative where one is exceeded."""
    lag_s, final_s, due = level["interim_lag_s"]["p95"], level["final_s"]["p95"], level["interims_of_due"]
    if lag_s is None or final_s is None or level["failed"]:
        return -1.0
    return float(min(1 - lag_s / MAX_INTERIM_LAG_S, 1 - final_s / MAX_FINAL_S, due / MIN_INTERIMS - 1))


def most_held(levels: Sequence[Level]) -> float | None:
    """The number of sessions at which the first limit is reached, by a line through the two nearest levels.

    `None` where there are fewer than two levels, or the margin does not shrink from the first of the two to the second.
    """
    ordered = sorted(levels, key=lambda level: level["streams"])
    for low, high in itertools.pairwise(ordered):
        is_last = high is ordered[-1]
        if margin(high) < 0 or is_last:
            gone = margin(low) - margin(high)
            return low["streams"] + (high["streams"] - low["streams"]) * margin(low) / gone if gone > 0 else None
    return None


def search(run: Callable[[int], Level], guess: int) -> tuple[float, list[Level]]:
    """Find how many sessions are held.

    Args:
        run: returns the figures of a number of sessions.
        guess: the number to begin with.

    Returns:
        The number, and the levels that were tried, in order of their sessions.
    """
    levels = [run(guess)]
    while margin(levels[-1]) >= 0:
        levels.append(run(round(levels[-1]["streams"] * STEP)))
    while margin(levels[0]) < 0:
        levels.insert(0, run(round(levels[0]["streams"] / STEP)))
    held = most_held(levels)
    assert held is not None, "one level is held, and the next one is not"
    return held, levels
