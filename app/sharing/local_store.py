"""The shared store of a service that is one process: in memory, and gone with the process."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile

from tutti_server.app.sharing.store import KEEP_LOG_S, LEASE_S, MAX_ENTRIES, READ_S, Entry, Lease

PURGE_EVERY = 1000
"""After this many changes everything that has ended is dropped, so that memory stays bounded."""


@dataclass(slots=True)
class _Log:
    """The entries of one log, each with its number, and when the log ends."""

    ends_at: float
    entries: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))
    newest: int = 0
    """The number of the newest entry."""


class LocalStore:
    """A `SharedStore` in the memory of this process. It is always up."""

    is_up = True
    can_be_emptied = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leases: dict[str, dict[str, float]] = {}
        """When each holder's lease ends, by the name of the lease."""
        self._counters: dict[str, tuple[float, float]] = {}
        """Each counter, and when it ends."""
        self._values: dict[str, tuple[str, float]] = {}
        """Each value, and when it ends."""
        self._logs: dict[str, _Log] = {}
        self._n_entries = 0
        self._n_changes = 0
        self._n_numbers = 0
        self._has_news = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start nothing: all values are in this process."""
        yield

    async def wait_until_up(self) -> None:
        """Return at once."""

    async def take(self, lease: Lease, limit: int) -> bool:
        """See `SharedStore`."""
        holders = self._holders(lease.name)
        if lease.holder not in holders and len(holders) >= limit:
            return False
        holders[lease.holder] = self._clock() + LEASE_S
        self._leases[lease.name] = holders
        self._note_change()
        return True

    async def renew(self, leases: Collection[Lease]) -> None:
        """See `SharedStore`."""
        for name, holder in leases:
            self._leases.setdefault(name, {})[holder] = self._clock() + LEASE_S

    async def release(self, leases: Collection[Lease]) -> None:
        """See `SharedStore`."""
        for name, holder in leases:
            self._leases.get(name, {}).pop(holder, None)

    async def holders(self, names: Sequence[str]) -> list[frozenset[str]]:
        """See `SharedStore`."""
        return [frozenset(self._holders(name)) for name in names]

    async def add(self, amounts: Mapping[str, float], keep_s: float) -> None:
        """See `SharedStore`."""
        for (counter, amount), total in zip(amounts.items(), await self.totals(list(amounts)), strict=True):
            self._counters[counter] = (total + amount, self._clock() + keep_s)
            self._note_change()

    async def totals(self, counters: Sequence[str]) -> list[float]:
        """See `SharedStore`."""
        found = [self._counters.get(counter, (0.0, 0.0)) for counter in counters]
        return [total if self._clock() < ends_at else 0.0 for total, ends_at in found]

    async def next_number(self, name: str) -> int:
        """See `SharedStore`. One sequence serves all names."""
        self._n_numbers += 1
        return self._n_numbers

    async def put(self, name: str, value: str, keep_s: float) -> None:
        """See `SharedStore`."""
        self._values[name] = (value, self._clock() + keep_s)
        self._note_change()

    async def put_new(self, name: str, value: str, keep_s: float) -> bool:
        """See `SharedStore`."""
        is_new = await self.get(name) is None
        if is_new:
            await self.put(name, value, keep_s)
        return is_new

    async def keep(self, name: str, keep_s: float) -> None:
        """See `SharedStore`."""
        if (value := await self.get(name)) is not None:
            self._values[name] = (value, self._clock() + keep_s)

    async def get(self, name: str) -> str | None:
        """See `SharedStore`."""
        value, ends_at = self._values.get(name, ("", 0.0))
        return value if self._clock() < ends_at else None

    async def append(self, log: str, value: str) -> None:
        """See `SharedStore`."""
        self._n_entries += 1
        kept = self._logs.setdefault(log, _Log(0.0))
        if self._clock() >= kept.ends_at:
            kept.entries.clear()
        kept.ends_at = self._clock() + KEEP_LOG_S
        kept.entries.append((self._n_entries, value))
        kept.newest = self._n_entries
        self._note_change()
        async with self._has_news:
            self._has_news.notify_all()

    async def last(self, log: str) -> Entry | None:
        """See `SharedStore`."""
        entries = self._entries(log, 0)
        return entries[-1] if entries else None

    async def read(self, positions: Mapping[str, str]) -> list[tuple[str, Entry]]:
        """See `SharedStore`."""
        after = {log: int(position) for log, position in positions.items()}

        def entries() -> list[tuple[str, Entry]]:
            # Each entry of any log wakes all readers, and most of their logs have nothing new.
            logs = [log for log, number in after.items() if log in self._logs and self._logs[log].newest > number]
            return [(log, entry) for log in logs for entry in self._entries(log, after[log])]

        try:
            async with asyncio.timeout(READ_S), self._has_news:
                return await self._has_news.wait_for(entries)
        except TimeoutError:
            return []

    def _holders(self, name: str) -> dict[str, float]:
        return {holder: ends_at for holder, ends_at in self._leases.get(name, {}).items() if self._clock() < ends_at}

    def _entries(self, log: str, after: int) -> list[Entry]:
        kept = self._logs.get(log)
        if kept is None or self._clock() >= kept.ends_at:
            return []
        # From the end, as readers mostly have all but the newest entry.
        newer = takewhile(lambda entry: entry[0] > after, reversed(kept.entries))
        return [Entry(str(number), value) for number, value in newer][::-1]

    def _note_change(self) -> None:
        self._n_changes += 1
        if self._n_changes % PURGE_EVERY == 0:
            self._purge()

    def _purge(self) -> None:
        now = self._clock()
        self._leases = {name: holders for name in self._leases if (holders := self._holders(name))}
        self._counters = {name: each for name, each in self._counters.items() if now < each[1]}
        self._values = {name: each for name, each in self._values.items() if now < each[1]}
        self._logs = {name: each for name, each in self._logs.items() if now < each.ends_at}
