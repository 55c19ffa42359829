"""The interface of the shared store: leases, counters, values and logs that all gateways see."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

LEASE_S = 10.0
"""A lease that is not renewed ends after this time, in seconds: so long a dead gateway still counts."""
READ_S = 2.0
"""How long `read` waits for new entries, in seconds."""
MAX_ENTRIES = 512
"""About how many entries of a log are kept. Older ones are dropped, so that memory stays bounded."""
KEEP_NUMBER_S = 172_800.0
"""How long the last number of a name is kept, in seconds."""
KEEP_LOG_S = 600.0
"""A log to which nothing is appended is dropped after this time, in seconds."""


class StoreAway(Exception):
    """Raised when the store cannot be reached. The call may have had its effect or not."""


class Lease(NamedTuple):
    """One holder's part of something that a limited number may hold."""

    name: str
    holder: str


class Entry(NamedTuple):
    """One entry of a log."""

    position: str
    """The position of the entry in its log: `read` continues after it."""
    value: str


class SharedStore(Protocol):
    """Small pieces of state under names. Every piece ends by itself after some time.

    Each method answers within a fraction of a second, `read` excepted, or raises `StoreAway`.
    """

    can_be_emptied: bool
    """Whether it may lose what it had while this process goes on."""

    @property
    def is_up(self) -> bool:
        """Whether the store could be reached last time; if not, every method raises `StoreAway` at once."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store while the context is open. A store that cannot be reached is no error: it may come back."""
        ...

    async def wait_until_up(self) -> None:
        """Return when the store can be reached."""
        ...

    async def take(self, lease: Lease, limit: int) -> bool:
        """Take or renew a lease for `LEASE_S`. False if `limit` others hold one of this name."""
        ...

    async def renew(self, leases: Collection[Lease]) -> None:
        """Take or renew leases for `LEASE_S`, whatever their limit is."""
        ...

    async def release(self, leases: Collection[Lease]) -> None:
        """Give leases back. Those that have ended already are ignored."""
        ...

    async def holders(self, names: Sequence[str]) -> list[frozenset[str]]:
        """Who holds a lease of each of these names."""
        ...

    async def add(self, amounts: Mapping[str, float], keep_s: float) -> None:
        """Add to counters, which begin at 0 and end `keep_s` after the last addition."""
        ...

    async def totals(self, counters: Sequence[str]) -> list[float]:
        """Return the values of counters."""
        ...

    async def next_number(self, name: str) -> int:
        """A number that is higher than all that were returned under this name in the last days.

        Also if the store has lost what it had: its own clock is a part of it.
        """
        ...

    async def put(self, name: str, value: str, keep_s: float) -> None:
        """Set a value, which ends after `keep_s`."""
        ...

    async def put_new(self, name: str, value: str, keep_s: float) -> bool:
        """Set a value like `put`, unless there is one: false then. Of several who do it at once, one succeeds."""
        ...

    async def keep(self, name: str, keep_s: float) -> None:
        """Let a value end after `keep_s` from now, whatever it is by now. Without a value nothing happens."""
        ...

    async def get(self, name: str) -> str | None:
        """A value; `None` if it was not set or has ended, or is no text."""
        ...

    async def append(self, log: str, value: str) -> None:
        """Append an entry to a log, of which about the newest `MAX_ENTRIES` are kept for `KEEP_LOG_S`."""
        ...

    async def last(self, log: str) -> Entry | None:
        """The newest entry of a log; `None` if it has none."""
        ...

    async def read(self, positions: Mapping[str, str]) -> list[tuple[str, Entry]]:
        """The next entries of these logs, each with its log and in the order of the log.

        Waits for at most `READ_S` until there is an entry. Cancelling loses none.

        Args:
            positions: for each log the position after which to read; "0" reads all that is kept.
        """
        ...
