"""Chooses the engine for a window: from what each engine has reported, and what was sent to it since.

It only decides: it has no clock and no I/O. Each gateway decides for itself, so what it knows of an engine is as old as
the last report, and what other gateways have sent since it must guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tutti_server.engine.api import EngineStats, Priority

FULL_AT_S = 0.05
"""An engine gets windows before the engines after it while less work than this waits there, in seconds.

So batches stay full at low load: one engine is busy, rather than all of them with small batches.
"""
OVERTAKING = (Priority.FINAL, Priority.SPECULATIVE)
"""Windows of live sessions that overtake the interims and files in a queue."""
OVERTAKEN_SHARE = 0.25
"""The fraction of the work of these interims and files that delays them all the same: a few are being encoded."""
MAX_DRAIN_S = 0.5
"""An engine is supposed to work for this many seconds after a report; then it must report again."""
LATE_REPORT_S = 1.5
"""An engine that has not reported for this many seconds may be stopped: its silence counts as waiting work."""


@dataclass(slots=True, kw_only=True)
class _Load:
    """What is known of one engine."""

    reported_s: float
    """Seconds of all work that waited when the engine reported."""
    reported_final_s: float
    """The part of it before a final."""
    window_s: float
    """Seconds of work of one window."""
    at_s: float
    """The time of the report."""
    sent_s: float = 0.0
    """Seconds of work of all windows that this gateway has sent since."""
    sent_final_s: float = 0.0
    """The part of it before a final."""

    def note_sent(self, priority: Priority) -> None:
        self.sent_s += self.window_s
        if priority in OVERTAKING:
            self.sent_final_s += self.window_s

    def wait_s(self, priority: Priority, now_s: float, n_gateways: int) -> float:
        """Return the expected wait of a window, in seconds, if `n_gateways` have sent as much as this one since."""
        all_s = self.reported_s + n_gateways * self.sent_s
        final_s = self.reported_final_s + n_gateways * self.sent_final_s
        waiting_s = final_s + OVERTAKEN_SHARE * (all_s - final_s) if priority in OVERTAKING else all_s
        age_s = now_s - self.at_s
        silence_s = age_s if age_s > LATE_REPORT_S else 0.0
        return max(0.0, waiting_s - min(age_s, MAX_DRAIN_S)) + silence_s


class Balancer:
    """Knows the load of each engine, as one gateway sees it.

    A window goes to the first engine with less than `FULL_AT_S` of work before it, in the order of the caller. Where
    there is none, it goes to the engine where it waits least. The gateway supposes that all others send as much as it
    does itself: otherwise all of them would choose the same engine until its next report.
    """

    def __init__(self, gateway: int = 0, n_gateways: int = 1) -> None:
        """Create a balancer that knows no engine.

        Args:
            gateway: the number of this gateway, from 0. Of engines that are equal, each gateway prefers another.
            n_gateways: how many gateways send windows to the same engines.
        """
        self._loads: dict[str, _Load] = {}
        self.set_gateways(gateway, n_gateways)

    def set_gateways(self, gateway: int, n_gateways: int) -> None:
        """Change what the constructor was given: gateways have come or gone."""
        self._gateway = gateway
        self._n_gateways = n_gateways

    def note_report(self, engine: str, stats: EngineStats, now_s: float) -> None:
        """Note the newest counters of an engine. They contain what was sent to it before."""
        self._loads[engine] = _Load(
            reported_s=stats.work_waiting_s,
            reported_final_s=stats.final_work_waiting_s,
            window_s=stats.utterance_encode_s + stats.window_decode_s,
            at_s=now_s,
        )

    def note_sent(self, engine: str, priority: Priority) -> None:
        """Note that a window was sent to an engine, which has reported before."""
        self._loads[engine].note_sent(priority)

    def is_silent(self, engine: str, now_s: float) -> bool:
        """Whether an engine, which has reported before, may be stopped now."""
        return now_s - self._loads[engine].at_s > LATE_REPORT_S

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return the engine for a window.

        Args:
            engines: those that accept windows now, at least one, in the order in which they are filled. Each has
                reported before.
            priority: that of the window.
            now_s: the time in seconds, of the same clock as in `note_report`.
        """
        waits_s = {engine: self._loads[engine].wait_s(priority, now_s, self._n_gateways) for engine in engines}
        first_not_full = next((engine for engine in engines if waits_s[engine] < FULL_AT_S), None)
        own = self._gateway % len(engines)
        return first_not_full or min([*engines[own:], *engines[:own]], key=lambda engine: waits_s[engine])

    def choose_for_crash_suspect(self, engines: Sequence[str]) -> str:
        """Return the engine for a crash suspect: another one in each gateway, where there are enough engines.

        Thus a window that causes a crash does not take the crash suspects of other gateways with it.

        Args:
            engines: those that accept windows now, at least one, in any order.
        """
        return sorted(engines)[self._gateway % len(engines)]
