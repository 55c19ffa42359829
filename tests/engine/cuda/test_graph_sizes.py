"""Which sizes get a CUDA graph, and which of them serves a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuda.graph_sizes import GRAPH_SIZES, n_rows_held, smallest_at_least

FULL = 1_500


@pytest.mark.parametrize(("number", "expected"), [(1, 2), (2, 2), (3, 8), (9, None)])
def test_the_smallest_size_that_fits_is_found(number: int, expected: int | None) -> None:
    assert smallest_at_least((2, 8), number) == expected


@pytest.mark.parametrize(("n_slots", "n_rows"), [(1, 1), (5, 8), (200, 256), (300, 300)])
def test_buffers_hold_the_rows_of_the_graph_for_all_slots(n_slots: int, n_rows: int) -> None:
    """More slots than the largest graph has rows get no padding."""
    assert n_rows_held(n_slots) == n_rows
    assert GRAPH_SIZES.step(n_slots, n_rows) == n_rows
    assert max(GRAPH_SIZES.steps(n_rows)) == min(n_rows, 256)


def test_steps_are_captured_from_large_to_small() -> None:
    assert GRAPH_SIZES.steps(8) == [8, 4, 2, 1]


def test_prefills_are_captured_up_to_the_number_of_slots() -> None:
    assert GRAPH_SIZES.prefills(2) == [(2, 32), (2, 16), (2, 8), (2, 4), (1, 32), (1, 16), (1, 8), (1, 4)]
    assert GRAPH_SIZES.prefills(100)[0] == (64, 32)


@pytest.mark.parametrize(
    ("n_rows", "n_tokens", "expected"),
    [(1, 1, (1, 4)), (3, 5, (4, 8)), (64, 32, (64, 32)), (65, 4, None), (1, 33, None)],
)
def test_a_prefill_larger_than_every_graph_has_none(
    n_rows: int, n_tokens: int, expected: tuple[int, int] | None
) -> None:
    assert GRAPH_SIZES.prefill(n_rows, n_tokens) == expected


@pytest.mark.parametrize(
    ("n_states", "max_windows", "expected"),
    [
        (FULL, 16, [11, 9, 7, 4, 2, 1]),
        (FULL, 8, [7, 4, 2, 1]),
        (FULL, 2, [2, 1]),
        (500, 16, [8, 4, 2, 1]),
        (200, 16, [16, 8, 4, 2, 1]),
        (200, 8, [8, 4, 2, 1]),
    ],
)
def test_short_windows_get_larger_batches(n_states: int, max_windows: int, expected: list[int]) -> None:
    """As long as a batch holds no more encoder states than four full windows. Full windows get some of their own."""
    assert GRAPH_SIZES.encoder_batches(n_states, FULL, max_windows) == expected


@pytest.mark.parametrize(
    ("n_windows", "n_states", "expected"),
    [
        (3, FULL, [(2, 2), (1, 1)]),
        (9, FULL, [(9, 9)]),
        (6, FULL, [(4, 4), (2, 2)]),
        (3, 400, [(4, 3)]),
        (7, 200, [(8, 7)]),
        (9, 200, [(8, 8), (1, 1)]),
    ],
)
def test_small_batches_are_padded_and_large_ones_are_cut(
    n_windows: int, n_states: int, expected: list[tuple[int, int]]
) -> None:
    """Up to 1,600 encoder states cost a GPU little more than fewer."""
    captured = GRAPH_SIZES.encoder_batches(n_states, FULL, 16)
    assert GRAPH_SIZES.cut_batch(n_windows, n_states, captured) == expected


@pytest.mark.parametrize(
    ("n_windows", "max_windows", "expected"),
    [(16, 16, [9, 7]), (12, 16, [11, 1]), (15, 16, [11, 4]), (14, 16, [7, 7]), (16, 8, [7, 7, 2]), (1, 1, [1])],
)
def test_full_windows_are_cut_where_they_take_the_least_time(
    n_windows: int, max_windows: int, expected: list[int]
) -> None:
    assert GRAPH_SIZES.cut_full(n_windows, max_windows) == expected


@given(st.integers(1, 100), st.sampled_from([100, 200, 400, 750, FULL]), st.integers(1, 16))
def test_every_window_is_in_one_batch(n_windows: int, n_states: int, max_windows: int) -> None:
    """No batch uses more windows than its graph has."""
    captured = GRAPH_SIZES.encoder_batches(n_states, FULL, max_windows)
    batches = GRAPH_SIZES.cut_batch(n_windows, n_states, captured)
    assert sum(used for _, used in batches) == n_windows
    assert all(size in captured and 0 < used <= size for size, used in batches)
