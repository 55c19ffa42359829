"""Which draft tokens are accepted."""

from collections.abc import Sequence

import pytest

from tutti_server.engine.decoding.draft import verify_draft


@pytest.mark.parametrize(
    ("draft", "sampled", "n_accepted"),
    [
        ((), (5,), 0),
        ((5, 6), (5, 6, 7), 2),
        ((5, 6), (4, 6, 7), 0),
        ((5, 6), (5, 7, 7), 1),
        ((5, 6, 7), (5, 0, 7, 8), 1),
    ],
)
def test_tokens_are_accepted_up_to_the_first_that_differs(
    draft: Sequence[int], sampled: Sequence[int], n_accepted: int
) -> None:
    """Later tokens do not count, also where they are equal."""
    assert verify_draft(draft, sampled) == n_accepted
