"""A gateway as a member of the fleet: it sends its counts and metrics to `fleet.py`, and knows those of all."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from prometheus_client.core import Metric
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from tutti_server.app.service.reservations import RESERVED_S
from tutti_server.app.service.shared_state import COLUMNS, N_COUNTS, keep_counts
from tutti_server.plugins.ray.fleet import Entry

logger = logging.getLogger(__name__)

EXCHANGE_PERIOD_S = 0.25
"""How often a gateway sends its counts, in seconds. So old may be what it knows of the others."""
METRICS_EVERY = 4
"""The number of exchanges of counts after which it sends its metrics, too."""
RETRY_S = 1.0
"""How long it waits after an exchange that has failed, in seconds."""
SILENT_S = 2.0
"""A gateway of which nothing has come for this many seconds is taken for dead: its sessions are lost."""
MAX_STEP_S = 1.0
"""The longest time between two exchanges that counts, in seconds: the others are not silent while there are none."""

OWN, OTHERS = 0, 1
"""The rows of the counts of a member."""


class FleetCalls(Protocol):
    """The calls to the fleet's replica; see `FleetReplica`."""

    def exchange(
        self, name: str, counts: tuple[int, ...], metrics: Sequence[Metric] | None
    ) -> Awaitable[Mapping[str, Entry]]:
        """See `FleetReplica.exchange`."""
        ...

    def metrics(self) -> Awaitable[Mapping[str, Sequence[Metric]]]:
        """See `FleetReplica.metrics`."""
        ...


@dataclass(slots=True)
class _Other:
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    received_s: float


class FleetMember:
    """Knows the counts of all gateways."""

    def __init__(self, name: str, calls: FleetCalls, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a member that knows of no others, with a name that no other gateway has or had; see `run`."""
        self.counts = np.zeros((2, N_COUNTS), np.int64)
        """The counts of this gateway, which it writes itself, and the sum of the others'."""
        self.is_known = asyncio.Event()
        """Set after the first exchange."""
        self._name = name
        self._calls = calls
        self._clock = clock
        self._now_s = 0.0
        """The time of the last exchange, by a clock that stands still while exchanges fail."""
        self._exchanged_s = clock()
        self._others: dict[str, _Other] = {}
        self._n_finals = 0
        """Finals of the others since this gateway has known each of them."""

    async def run(self, snapshot: Callable[[], Sequence[Metric]]) -> None:
        """Exchange counts until cancelled."""
        n_exchanges, is_away = 0, False
        while True:
            metrics = None if n_exchanges % METRICS_EVERY else snapshot()
            try:
                entries = await self._calls.exchange(self._name, tuple(self.counts[OWN].tolist()), metrics)
            except (RayError, RayServeException) as error:
                if not is_away:
                    logger.warning("this gateway cannot learn of the others: %s", error)
                is_away, n_exchanges = True, 0
                await asyncio.sleep(RETRY_S)
                continue
            if is_away:
                logger.info("this gateway learns of the others again")
            self.note(entries)
            self.is_known.set()
            is_away, n_exchanges = False, n_exchanges + 1
            await asyncio.sleep(EXCHANGE_PERIOD_S)

    async def metrics(self) -> Mapping[str, Sequence[Metric]]:
        """The metrics of each gateway; none if they cannot be had now."""
        try:
            return await self._calls.metrics()
        except (RayError, RayServeException) as error:
            logger.warning("the metrics of other gateways are missing: %s", error)
            return {}

    def note(self, entries: Mapping[str, Entry]) -> None:
        """Note what an exchange has returned."""
        clock_s = self._clock()
        self._now_s += min(clock_s - self._exchanged_s, MAX_STEP_S)
        self._exchanged_s = clock_s
        for name, entry in entries.items():
            if name != self._name and entry.age_s < SILENT_S + RESERVED_S:
                counts, before = np.array(entry.counts, np.int64), self._others.get(name)
                # Finals that it had before this gateway knew of it say nothing of the last seconds.
                self._n_finals += _finals(counts) - _finals(before.counts) if before else 0
                self._others[name] = _Other(counts, self._now_s - entry.age_s)
        total = np.zeros(N_COUNTS, np.int64)
        for name, other in list(self._others.items()):
            silent_s = self._now_s - other.received_s
            if silent_s >= SILENT_S + RESERVED_S:
                del self._others[name]
            elif silent_s >= SILENT_S:
                total += keep_counts(other.counts)[0]
            else:
                total += other.counts
        total[COLUMNS["finals"]] = self._n_finals
        self.counts[OTHERS] = total


def _finals(counts: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    return int(counts[COLUMNS["finals"]])
