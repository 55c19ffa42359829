"""Waits between attempts grow up to a limit, and are not the same for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.retries import backoff_s, is_transient


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_waits_double_up_to_a_maximum_and_are_at_least_half_of_it(n_failures: int, share: float) -> None:
    longest_s = min(0.5 * 2 ** min(n_failures - 1, 20), 30.0)
    assert backoff_s(n_failures, 0.5, 30.0, lambda: 1.0) == longest_s
    assert longest_s / 2 <= backoff_s(n_failures, 0.5, 30.0, lambda: share) <= longest_s


@pytest.mark.parametrize(
    ("status", "expected"), [(302, False), (404, False), (408, True), (425, True), (429, True), (500, True)]
)
def test_only_some_refusals_may_change(status: int, expected: bool) -> None:
    assert is_transient(status) is expected
