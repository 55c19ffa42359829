"""What the gateways of one service have in common, so that it does not matter which of them a client meets."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["sessions", "uploads"]
_COLUMNS: dict[Kind, int] = {"sessions": 0, "uploads": 1}


class AdmissionCounter:
    """How many live sessions and uploads there are, counted over all gateways. Each writes what it has itself."""

    def __init__(self, taken: NDArray[np.int64] | None = None, own: int = 0) -> None:
        """Args:
        taken: `(n_gateways, 2)`, shared by the gateways.
        own: the row of this one.
        """
        self._taken = np.zeros((1, len(_COLUMNS)), np.int64) if taken is None else taken
        self._own = self._taken[own]

    def n_taken(self, kind: Kind) -> int:
        """By all gateways."""
        return int(self._taken[:, _COLUMNS[kind]].sum())

    @contextmanager
    def one(self, kind: Kind) -> Iterator[int]:
        """Take a place before it is known whether there is one: two gateways that take the last one at the same moment
        both see it. Tells how many others there are.
        """
        self._own[_COLUMNS[kind]] += 1
        try:
            yield self.n_taken(kind) - 1
        finally:
            self._own[_COLUMNS[kind]] -= 1


@dataclass(frozen=True, slots=True)
class Shared:
    """For a service in one process, its own."""

    key: str = field(default_factory=lambda: token_hex(32), repr=False)
    """Signs client secrets where there are no API keys; then nobody is asked for them either."""
    started: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""
    places: AdmissionCounter = field(default_factory=AdmissionCounter)
    n_gateways: int = 1
    metrics_folder: str | None = None
    """Where prometheus_client keeps what the gateways count, if there are others."""
