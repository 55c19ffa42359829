"""Spans of time against counting hundredths of a second."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.files.call_spans import Span, overlap_s, total, union

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1])))


def covered(spans: list[Span]) -> set[int]:
    return {at for start, end in spans for at in range(int(start), int(end))}


@given(SPANS)
def test_a_union_covers_what_its_spans_cover_once(spans: list[Span]) -> None:
    joined = union(spans)
    assert covered(joined) == covered(spans)
    assert total(joined) == len(covered(spans))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(joined))


@given(SPANS, st.integers(0, 5))
def test_short_gaps_are_closed(spans: list[Span], gap: int) -> None:
    joined = union(spans, gap)
    assert covered(joined) >= covered(spans)
    assert all(after[0] - before[1] > gap for before, after in itertools.pairwise(joined))


@given(st.lists(SPANS, max_size=4))
def test_overlap_is_what_two_or_more_cover(lists: list[list[Span]]) -> None:
    joined = [union(spans) for spans in lists]
    counts = [covered(spans) for spans in joined]
    expected = {at for each in counts for at in each if sum(at in other for other in counts) > 1}
    assert overlap_s(joined) == len(expected)
