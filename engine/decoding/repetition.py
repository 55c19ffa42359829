"""Finds repetition: output that says the same words over and over, often up to the last position."""

from collections.abc import Sequence

MIN_TOKENS = 24
"""A repetition spans at least this many tokens."""
MIN_ROUNDS = 3
"""A repetition says the same at least this many times. People repeat themselves too, but not this much."""
MAX_ROUND_TOKENS = 40
"""Rounds of more tokens than this are not looked for."""


def repeated_tokens(tokens: Sequence[int]) -> int:
    """Return how many tokens at the end only repeat the ones before them; 0 where the output makes progress."""
    if len(tokens) < MIN_TOKENS:
        return 0
    last = tokens[-1]
    for length in range(1, min(MAX_ROUND_TOKENS, len(tokens) // MIN_ROUNDS) + 1):
        if tokens[-1 - length] != last:
            continue
        n_rounds = max(MIN_ROUNDS, -(-MIN_TOKENS // length))
        n_repeated = length * (n_rounds - 1)
        begin = len(tokens) - n_repeated
        if begin >= length and tokens[begin - length : -length] == tokens[begin:]:
            return n_repeated
    return 0
