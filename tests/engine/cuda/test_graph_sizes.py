"""Which sizes get a CUDA graph, and which of them serves a batch."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.engine.cuda.graph_sizes import GRAPH_SIZES, LEAST_SHARED_ROWS, n_rows_held
from tutti_server.engine.cuda.row_step import ROWS
from tutti_server.engine.model.audio_context import LADDER

FULL = 1_500


@pytest.mark.parametrize(("n_slots", "n_rows"), [(1, 1), (5, 8), (200, 256), (300, 320), (600, 600)])
def test_buffers_hold_the_rows_of_the_graph_for_all_slots(n_slots: int, n_rows: int) -> None:
    """More slots than the largest graph has rows get no padding."""
    assert n_rows_held(n_slots) == n_rows
    assert GRAPH_SIZES.step(n_slots, n_rows) == n_rows
    assert max(GRAPH_SIZES.steps(n_rows)) == min(n_rows, 384)


@pytest.mark.parametrize("n_slots", [2, 3, 5, 385])
def test_slots_that_share_a_window_fit_into_the_buffers(n_slots: int) -> None:
    """Two slots, too, whose steps are those of more rows than one kernel computes."""
    n_rows = n_rows_held(n_slots)
    assert max(ROWS) < LEAST_SHARED_ROWS <= GRAPH_SIZES.step(max(n_slots, LEAST_SHARED_ROWS), n_rows) <= n_rows


@pytest.mark.parametrize(
    ("n_rows", "n_tokens", "expected"),
    [
        (1, 1, (1, 4)),
        (3, 5, (4, 8)),
        (64, 32, (64, 32)),
        (65, 4, None),
        (1, 33, (1, 64)),
        (1, 65, None),
        (33, 33, None),
    ],
)
def test_a_prefill_larger_than_every_graph_has_none(
    n_rows: int, n_tokens: int, expected: tuple[int, int] | None
) -> None:
    assert GRAPH_SIZES.prefill(n_rows, n_tokens) == expected


@given(
    st.lists(st.sampled_from([10, 200, 300, 400, 500, 750, 1_000, FULL]), min_size=1, max_size=40), st.integers(1, 16)
)
def test_every_window_is_in_one_part_that_has_a_graph(n_states: list[int], max_windows: int) -> None:
    """Parts of full windows have as many as a graph; shorter ones lie apart, in as few parts as their states allow."""
    n_states.sort()
    parts = [n_states[part] for part in GRAPH_SIZES.cut(FULL, max_windows, n_states)]
    assert [length for part in parts for length in part] == n_states
    assert all(part and (part[0] == FULL or part[-1] < FULL) for part in parts)
    assert all(len(part) in GRAPH_SIZES.encoder_batches(max_windows) for part in parts if part[0] == FULL)
    short = [part for part in parts if part[0] < FULL]
    assert all(sum(part) <= 4_800 for part in short)
    assert all(sum(part) + after[0] > 4_800 for part, after in pairwise(short))
    captured = GRAPH_SIZES.packed_sizes(max_windows, max(LADDER))
    assert all(
        GRAPH_SIZES.packed_size(part, captured)
        for part in short
        if len(part) <= max_windows and min(part) >= GRAPH_SIZES.packed_least
    )
