"""Reservations for sessions that were lost: their clients can go on with them for a while, also on a full service.

Without reservations, an overloaded service whose clients lose their connections for a moment would admit newcomers, and
refuse those who were in the middle of a call.
"""

import asyncio
from collections import deque

from tutti_server.app.service.shared_state import AdmissionCounter

RESERVED_S = 15.0
"""How long a reservation lasts, in seconds. Clients connect again within a few seconds, and retry after a refusal."""


class Reservations:
    """The reservations of all gateways: a client may come back to another gateway than it had before."""

    def __init__(self, counter: AdmissionCounter) -> None:
        self._counter = counter
        self._resumable: set[object] = set()
        """The sessions of this gateway whose clients would come back."""
        self._timers: deque[asyncio.TimerHandle] = deque()
        """They end the reservations of this gateway, the oldest first."""

    @property
    def n(self) -> int:
        """The number of reservations now."""
        return max(self._counter.total("lost"), 0)

    def note_resumable(self, session: object) -> None:
        """Note that the client of an open session would come back: also if this gateway dies and cannot say so."""
        if session not in self._resumable:
            self._resumable.add(session)
            self._counter.change("resumable", 1)

    def forget(self, session: object) -> None:
        """Note that a session has ended."""
        if session in self._resumable:
            self._resumable.discard(session)
            self._counter.change("resumable", -1)

    def add(self) -> None:
        """Add a reservation for a session that is being lost."""
        self._counter.change("lost", 1)
        self._timers.append(asyncio.get_running_loop().call_later(RESERVED_S, self._expire))

    def take(self) -> bool:
        """Take one of the reservations for a client that comes back. Returns false where there is none."""
        if not self.n:
            return False
        self._counter.change("lost", -1)
        if self._timers:
            self._timers.popleft().cancel()
        else:
            # It is another gateway's, which counts it until its time is over.
            asyncio.get_running_loop().call_later(RESERVED_S, self._counter.change, "lost", 1)
        return True

    def _expire(self) -> None:
        self._timers.popleft()
        self._counter.change("lost", -1)
