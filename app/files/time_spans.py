"""Times as spans in seconds: their union, and what several have in common."""

from collections.abc import Iterable, Sequence

Span = tuple[float, float]
"""A beginning and an end, in seconds."""


def union(spans: Iterable[Span], gap_s: float = 0.0) -> list[Span]:
    """The time that any of the spans covers, in order. Spans with at most `gap_s` between them become one."""
    joined: list[Span] = []
    for start_s, end_s in sorted(spans):
        if joined and start_s <= joined[-1][1] + gap_s:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined


def total(spans: Iterable[Span]) -> float:
    """The length of spans that do not overlap, in seconds."""
    return sum(end_s - start_s for start_s, end_s in spans)


def overlap_s(all_spans: Sequence[Sequence[Span]]) -> float:
    """Return for how long at least two of several lists cover the same time. No list overlaps itself."""
    spans = [span for each in all_spans for span in each]
    edges = sorted([(start_s, 1) for start_s, _ in spans] + [(end_s, -1) for _, end_s in spans])
    n_covering, seconds, before_s = 0, 0.0, 0.0
    for time_s, change in edges:
        if n_covering > 1:
            seconds += time_s - before_s
        n_covering += change
        before_s = time_s
    return seconds
