"""Adds up what all engines have done, although engines come, go, and begin anew."""

from typing import NamedTuple

from tutti_server.engine.api import EngineStats


class WorkDone(NamedTuple):
    """What engines have done so far."""

    n_finals: int
    """Finals that they have begun, speculative ones and those of files included."""
    final_busy_s: float
    """See `EngineStats`."""
    interim_busy_s: float
    """Seconds of encoder calls and decode steps that were not for finals."""


class EngineWork:
    """Sums that never fall. Of an engine that was unknown, only what it does from now on counts."""

    def __init__(self) -> None:
        self._total = WorkDone(0, 0.0, 0.0)
        self._engines: dict[str, WorkDone] = {}
        """The counters of each engine at the last call."""

    def note(self, stats: EngineStats) -> WorkDone:
        """Note the newest counters, and return what was done since the first call."""
        engines = {name: _work_of(each) for name, each in (stats.engines or {"": stats}).items()}
        for name, now in engines.items():
            before = self._engines.get(name, now)
            if now.n_finals < before.n_finals or now.final_busy_s < before.final_busy_s:
                # Another process in the same place, whose counters began at 0.
                before = WorkDone(0, 0.0, 0.0)
            self._total = WorkDone(
                self._total.n_finals + now.n_finals - before.n_finals,
                self._total.final_busy_s + now.final_busy_s - before.final_busy_s,
                self._total.interim_busy_s + max(now.interim_busy_s - before.interim_busy_s, 0.0),
            )
        self._engines = engines
        return self._total


def _work_of(stats: EngineStats) -> WorkDone:
    queues = (stats.final_queue_s, stats.speculative_queue_s, stats.file_queue_s)
    return WorkDone(
        sum(sum(queue_s.counts) for queue_s in queues),
        stats.final_busy_s,
        stats.busy_s - stats.final_busy_s,
    )
