"""Finds decoding that goes round in circles: the same words over and over, to the last position."""

from collections.abc import Sequence

LEAST_TOKENS = 24
"""A repetition spans at least so many tokens …"""
LEAST_ROUNDS = 3
"""… and says the same at least so often. People repeat themselves, but not like this."""
LONGEST_ROUND = 40


def repeated_tokens(tokens: Sequence[int]) -> int:
    """How many tokens at the end only repeat what stands right before them; 0 where decoding makes progress."""
    if len(tokens) < LEAST_TOKENS:
        return 0
    for length in range(1, min(LONGEST_ROUND, len(tokens) // LEAST_ROUNDS) + 1):
        n_rounds = max(LEAST_ROUNDS, -(-LEAST_TOKENS // length))
        n_repeated = length * (n_rounds - 1)
        begin = len(tokens) - n_repeated
        if begin < length or tokens[-1] != tokens[-1 - length]:
            continue
        if tokens[begin - length : -length] == tokens[begin:]:
            return n_repeated
    return 0
