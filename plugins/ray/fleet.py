"""One place where the gateways of a cluster leave their counts and metrics for each other: a Serve deployment.

It holds what they sent last, and nothing that they could not send again. So when it is gone, Serve starts another one,
and a moment later that one knows as much. Meanwhile gateways go on with what they knew.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

FORGET_S = 60.0
"""A gateway that has sent nothing for this many seconds is forgotten."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a gateway sent last."""

    counts: tuple[int, ...]
    """The gateway's row of counts; see `app/service/shared_state.py`."""
    age_s: float
    """How long ago that was, in seconds."""


@dataclass(slots=True)
class _Gateway:
    at_s: float
    counts: tuple[int, ...]
    metrics: Sequence[Metric] = ()


class FleetReplica:
    """The only replica of the deployment."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gateways: dict[str, _Gateway] = {}

    async def exchange(
        self, name: str, counts: tuple[int, ...], metrics: Sequence[Metric] | None
    ) -> Mapping[str, Entry]:
        """Leave the counts of a gateway, and return those of all.

        Args:
            metrics: its metrics; `None`: as before.
        """
        now_s = self._clock()
        gateway = self._gateways.setdefault(name, _Gateway(now_s, counts))
        gateway.at_s, gateway.counts = now_s, counts
        if metrics is not None:
            gateway.metrics = metrics
        self._gateways = {name: each for name, each in self._gateways.items() if now_s - each.at_s < FORGET_S}
        return {name: Entry(each.counts, now_s - each.at_s) for name, each in self._gateways.items()}

    async def metrics(self) -> Mapping[str, Sequence[Metric]]:
        """The metrics of each gateway, by its name."""
        return {name: each.metrics for name, each in self._gateways.items()}
