"""State that all gateways of one service share, so that a client may be served by any of them.

It is the counts of sessions and uploads, the key that signs client secrets, the start time and the metrics folder.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import Metric

GatherMetrics = Callable[[], Awaitable[Mapping[str, Sequence[Metric]]]]
"""Returns the metrics of each gateway by its name; none if they cannot be had now."""

Kind = Literal["sessions", "uploads", "lost", "readers", "resumable", "connections", "finals"]
"""What is counted: see `COLUMNS`."""

COLUMNS: dict[Kind, int] = {kind: column for column, kind in enumerate(get_args(Kind))}
"""The column of each kind in the array of counts, which has a row for each gateway.

They are live sessions; file transcriptions; reservations for sessions that were lost; readers of rooms; live sessions
whose clients would come back if they were lost; connections, one more while others are accepted, and many more in a
drain; and, of the time since the start, finals of live sessions.
"""

N_COUNTS = len(COLUMNS)
"""How many counts each gateway shares with the others."""


class AdmissionCounter:
    """Counts the live sessions and uploads of all gateways. Each gateway writes its own counts and reads all."""

    def __init__(
        self, counts: NDArray[np.int64] | None = None, gateway: int = 0, *, outlives_gateway: bool = False
    ) -> None:
        """Use the shared counts of all gateways, or make new ones.

        Args:
            counts: an array with a row of `N_COUNTS` for each gateway, and perhaps one for those that have ended;
                `None` for a service that is one process.
            outlives_gateway: whether the service goes on when this gateway stops.
        """
        self.outlives_gateway = outlives_gateway
        self._counts = np.zeros((1, N_COUNTS), np.int64) if counts is None else counts
        self._own_counts = self._counts[gateway]

    def total(self, kind: Kind) -> int:
        """The count of all gateways."""
        return int(self._counts[:, COLUMNS[kind]].sum())

    def surplus(self, kind: Kind) -> int:
        """This gateway's count less the smallest count above 0 of all gateways."""
        own, counts = self._own_counts[COLUMNS[kind]], self._counts[:, COLUMNS[kind]]
        return int(own - counts.min(where=counts > 0, initial=own))

    def n_with(self, kind: Kind) -> int:
        """The number of gateways whose count is above 0."""
        return int(np.count_nonzero(self._counts[:, COLUMNS[kind]] > 0))

    def change(self, kind: Kind, by: int) -> None:
        """Add a number to the count of this gateway, which may become negative: then another one counts too many."""
        self._own_counts[COLUMNS[kind]] += by

    @contextmanager
    def one_more(self, kind: Kind) -> Iterator[int]:
        """Count one more for as long as the context is open. Yields the number of others.

        The caller compares it with the limit afterwards: two gateways that count at the same moment then both see each
        other, and never exceed the limit together.
        """
        self._own_counts[COLUMNS[kind]] += 1
        try:
            yield self.total(kind) - 1
        finally:
            self._own_counts[COLUMNS[kind]] -= 1


def keep_counts(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What remains of the counts of a gateway that has died: the reservations for its clients, and its finals.

    The first array counts for `RESERVED_S` (`reservations.py`), and the second one always.
    """
    reservations, always = np.zeros(N_COUNTS, np.int64), np.zeros(N_COUNTS, np.int64)
    reservations[COLUMNS["lost"]] = counts[COLUMNS["lost"]] + counts[COLUMNS["resumable"]]
    always[COLUMNS["finals"]] = counts[COLUMNS["finals"]]
    return reservations, always


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """What the gateways of one service have in common. The defaults are for a service that is one process."""

    key: str = field(default_factory=lambda: token_hex(32), repr=False)
    """Signs client secrets if the service has no API keys; all requests are allowed then."""
    started: int = field(default_factory=lambda: int(time.time()))
    """When the service started, in seconds since 1970."""
    counter: AdmissionCounter = field(default_factory=AdmissionCounter)
    """The sessions and uploads of all gateways."""
    n_gateways: int = 1
    """The number of gateways; more than one where there may be others, even if their number changes."""
    metrics_folder: str | None = None
    """The folder in which prometheus_client keeps the metrics of all gateways; `None` if they share no folder.

    It is there as long as the server runs, so it says as well whether one of them has opened the database.
    """
    metrics_of_all: GatherMetrics | None = None
    """Returns the metrics of all gateways where these are on several machines; else `None`."""
