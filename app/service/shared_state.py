"""State that all gateways of one service share, so that a client may be served by any of them.

It is the counts of sessions and uploads, the key that signs client secrets, the start time and the metrics folder.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["sessions", "uploads", "lost", "rooms", "readers"]
"""What is counted.

These are live sessions, file transcriptions, the places that are kept of sessions that were lost, rooms in which a
session speaks, and their readers.
"""

_COLUMNS: dict[Kind, int] = {"sessions": 0, "uploads": 1, "lost": 2, "rooms": 3, "readers": 4}
"""The column of each kind in the array of counts, which has a row for each gateway."""

N_COUNTS = len(_COLUMNS)
"""How many counts each gateway shares with the others."""


class AdmissionCounter:
    """Counts the live sessions and uploads of all gateways. Each gateway writes its own counts and reads all."""

    def __init__(self, counts: NDArray[np.int64] | None = None, gateway: int = 0) -> None:
        """Use the shared counts of all gateways, or make new ones.

        Args:
            counts: an array `(n_gateways, N_COUNTS)` in shared memory; `None` for a service that is one process.
            gateway: the row of this gateway.
        """
        self._counts = np.zeros((1, N_COUNTS), np.int64) if counts is None else counts
        self._own_counts = self._counts[gateway]

    def total(self, kind: Kind) -> int:
        """The count of all gateways."""
        return int(self._counts[:, _COLUMNS[kind]].sum())

    def change(self, kind: Kind, by: int) -> None:
        """Add a number to the count of this gateway, which may become negative: then another one counts too many."""
        self._own_counts[_COLUMNS[kind]] += by

    @contextmanager
    def one_more(self, kind: Kind) -> Iterator[int]:
        """Count one more for as long as the context is open. Yields the number of others.

        The caller compares it with the limit afterwards: two gateways that count at the same moment then both see each
        other, and never exceed the limit together.
        """
        self._own_counts[_COLUMNS[kind]] += 1
        try:
            yield self.total(kind) - 1
        finally:
            self._own_counts[_COLUMNS[kind]] -= 1


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
    """More than one where there may be others, even if their number changes."""
    metrics_folder: str | None = None
    """The folder in which prometheus_client keeps the metrics of all gateways; `None` if there is one process."""
