"""Which answers of another server are asked for again, and how long to wait before."""

import random
from collections.abc import Callable

TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""The client errors after which the same request may succeed later."""
MAX_DOUBLINGS = 64
"""How often a wait doubles at most: while a server is away for hours, the power would become too large for a float."""


def is_transient(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status >= 500 or status in TRANSIENT_STATUSES


def backoff_s(n_failures: int, first_s: float, max_s: float, draw: Callable[[], float] = random.random) -> float:
    """The wait before the next attempt, in seconds. It doubles with each failure.

    Up to half of it is left out at random, so that those who failed at one moment do not all come back at one moment.

    Args:
        n_failures: how many attempts have failed, at least 1.
        first_s: the longest wait after the first failure, in seconds.
        max_s: the longest wait of all, in seconds.
        draw: a number from 0 to 1, replaced by tests; 0 halves the wait.
    """
    return min(first_s * 2.0 ** min(n_failures - 1, MAX_DOUBLINGS), max_s) * (0.5 + draw() / 2)
