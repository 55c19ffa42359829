"""How many engines the work needs. Serve asks for it again and again, and applies the delays of its configuration."""

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from tutti_server.engine.api import EngineStats

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

WORK_WAITING = "work_waiting_s"
"""The measure of an engine: seconds of work of all windows that wait or run."""
BUSY = "busy_share"
"""The measure of an engine: the share of the last period in which it encoded or decoded."""
TARGET_WAITING_S = 0.3
"""The work that may wait for each engine, in seconds. With more there are too few engines: finals must be quick."""
TARGET_BUSY = 0.6
"""The share of the time that engines are busy if there are neither too many nor too few of them.

Work that waits cannot tell that there are too many engines: nearly none waits long before they are idle.
"""


class WorkMeter:
    """Measures one engine from report to report."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at_s = clock()
        self._busy_s = 0.0

    def measure(self, stats: EngineStats) -> dict[str, float]:
        """Measure the work that waits, and how busy the engine was since the last call."""
        now_s, busy_s = self._clock(), stats.busy_s
        elapsed_s = max(now_s - self._at_s, 1e-6)
        busy_share = min(1.0, (busy_s - self._busy_s) / elapsed_s)
        self._at_s, self._busy_s = now_s, busy_s
        return {WORK_WAITING: stats.work_waiting_s, BUSY: busy_share}


def n_engines_needed(n_running: int, waiting_s: float, busy: float) -> int:
    """How many engines the work needs; at least 1.

    Args:
        n_running: how many engines have measured.
        waiting_s: seconds of work that wait in all of them.
        busy: the sum of their busy shares.
    """
    for_waiting = math.ceil(waiting_s / TARGET_WAITING_S) if waiting_s > n_running * TARGET_WAITING_S else 0
    # At most twice as many at a time: the queue that has grown meanwhile will be gone.
    for_waiting = min(for_waiting, 2 * n_running)
    return max(1, for_waiting, math.ceil(busy / TARGET_BUSY))


def scale_engines(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Serve's policy for the deployment of engines: the number of replicas, and no state."""
    measures: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
    waiting, busy = measures.get(WORK_WAITING, {}), measures.get(BUSY, {})
    if not busy:
        return context.target_num_replicas, {}
    return n_engines_needed(len(busy), sum(waiting.values()), sum(busy.values())), {}
