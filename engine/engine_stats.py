"""The counters of several engines, added up."""

from collections.abc import Mapping
from dataclasses import fields, replace
from statistics import fmean
from typing import Any

from tutti_server.engine.api import EngineStats, Histogram

_MEANS = ("utterance_encode_s", "window_decode_s")
"""The times of one window, which are not added up."""


def add_up(engines: Mapping[str, EngineStats]) -> EngineStats:
    """Return the counters of all engines, at least one, together, or those of the only one."""
    first, *others = engines.values()
    if not others:
        return first
    totals: dict[str, Any] = {
        field.name: _sum([getattr(each, field.name) for each in engines.values()])
        for field in fields(EngineStats)
        if field.name not in (*_MEANS, "gpu", "engines", "unknown")
    }
    measured = [each for each in engines.values() if each.n_engines] or [first, *others]
    means: dict[str, Any] = {name: fmean(getattr(each, name) for each in measured) for name in _MEANS}
    return replace(first, **totals, **means, gpu=None, engines=dict(engines))


def without_work(stats: EngineStats) -> EngineStats:
    """Return the counters of an engine that has ended: what it did, and nothing that waits."""
    return replace(
        stats,
        waiting_finals=0,
        waiting_speculative=0,
        waiting_files=0,
        waiting_interims=0,
        running=0,
        work_waiting_s=0.0,
        final_work_waiting_s=0.0,
        n_engines=0,
        gpu=None,
    )


def _sum(values: list[int | float | Histogram]) -> int | float | Histogram:
    first, *others = values
    if not isinstance(first, Histogram):
        return sum(value for value in values if not isinstance(value, Histogram))
    histograms = [first, *(each for each in others if isinstance(each, Histogram))]
    counts = tuple(map(sum, zip(*(each.counts for each in histograms), strict=True)))
    return Histogram(first.edges, counts, sum(each.total for each in histograms))
