"""Which outputs are repetitions."""

import pytest

from tutti_server.engine.decoding.repetition import repeated_tokens


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
