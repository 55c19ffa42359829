"""Which draft tokens are accepted."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.engine.decoding.draft import verify_draft

TOKENS = st.lists(st.integers(0, 2), max_size=8)


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


def next_token(seed: int) -> Callable[[Sequence[int]], int]:
    """A model: the next token depends on all tokens before it."""
    return lambda written: hash((seed, *written)) % 3


@given(st.integers(0, 1000), TOKENS)
def test_a_draft_changes_nothing(seed: int, draft: list[int]) -> None:
    """The accepted tokens and the one sampled after them are what is decoded one by one without a draft."""
    model = next_token(seed)
    sampled = [model(draft[:n]) for n in range(len(draft) + 1)]
    n_accepted = verify_draft(draft, sampled)
    output = sampled[: n_accepted + 1]
    assert output == [*draft[:n_accepted], sampled[n_accepted]]
    decoded: list[int] = []
    while len(decoded) < len(output):
        decoded.append(model(decoded))
    assert output == decoded


@given(st.integers(0, 1000), st.integers(0, 8))
def test_what_would_be_decoded_is_accepted_whole(seed: int, n_tokens: int) -> None:
    """The draft is the output itself."""
    model, draft = next_token(seed), list[int]()
    for _ in range(n_tokens):
        draft.append(model(draft))
    assert verify_draft(draft, [model(draft[:n]) for n in range(n_tokens + 1)]) == n_tokens
