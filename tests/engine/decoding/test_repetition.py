"""Which outputs are repetitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.engine.decoding.repetition import MAX_ROUND_TOKENS, MIN_ROUNDS, MIN_TOKENS, repeated_tokens


def repeated_plainly(tokens: list[int]) -> int:
    """The twin: every length, every round compared one by one."""
    for length in range(1, MAX_ROUND_TOKENS + 1):
        n_rounds = MIN_ROUNDS
        while n_rounds * length < MIN_TOKENS:
            n_rounds += 1
        if length * n_rounds > len(tokens):
            continue
        rounds = [tokens[len(tokens) - (i + 1) * length : len(tokens) - i * length] for i in range(n_rounds)]
        if all(each == rounds[0] for each in rounds):
            return length * (n_rounds - 1)
    return 0


@given(
    st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), min_size=1, max_size=50), st.integers(0, 30)
)
def test_repetitions_are_those_of_the_plain_twin(before: list[int], unit: list[int], n_rounds: int) -> None:
    """After any tokens, at every length."""
    tokens = (before + unit * n_rounds)[:300]
    assert repeated_tokens(tokens) == repeated_plainly(tokens)


@pytest.mark.parametrize(
    ("tokens", "n_repeated"),
    [
        ([], 0),
        ([5] * 23, 0),
        ([5] * 24, 23),
        ([1, 2, 3] + [7, 8] * 12, 22),
        (list(range(10)) * 2, 0),
        (list(range(10)) * 3, 20),
        (list(range(41)) * 3, 0),
        (list(range(10)) * 3 + [1], 0),
    ],
)
def test_what_counts_as_a_repetition(tokens: list[int], n_repeated: int) -> None:
    """Three rounds, and 24 tokens; a token that does not fit ends it."""
    assert repeated_tokens(tokens) == n_repeated
