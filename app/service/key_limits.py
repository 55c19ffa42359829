"""What the clients of an API key may use together, counted over all gateways."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from secrets import token_hex

from tutti_server.app.background import in_background, repeat
from tutti_server.app.errors import RETRY_AFTER_S, KeyLimitExceeded
from tutti_server.app.service.account_service import Kind, Meters, Usage
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.store import Lease, SharedStore, StoreAway

COUNT_EVERY_S = 5.0
"""How often the audio of open sessions is counted, in seconds. As much may be missing after a gateway has died."""
KEEP_S = 40 * 86_400.0
"""A count is kept for this time after its last change, in seconds: longer than a month."""


AdmitSession = Callable[[bool], None]
"""Admits a session. The argument tells whether its client goes on with one that it lost.

Raises `LimitExceeded` where it is refused.
"""


def _admit_any(is_resumed: bool) -> None:
    """Admit any session, as the key has no limit."""


class _Meter:
    """The audio of one session or upload, counted bit by bit."""

    def __init__(self, key: ApiKey, audio_s: Callable[[], float]) -> None:
        self.key = key
        self._audio_s = audio_s
        self._counted_s = 0.0

    def uncounted_s(self) -> float:
        before_s, self._counted_s = self._counted_s, self._audio_s()
        return self._counted_s - before_s


class KeyLimits:
    """Admits the sessions and uploads of each key within its limits, and counts their audio.

    A session that was admitted is never ended: a key without minutes left gets no further one. While the store is away,
    every key is admitted; what is used meanwhile is counted when it is back.
    """

    def __init__(
        self,
        store: SharedStore,
        on_refused: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._on_refused = on_refused
        self.usage: Usage | None = None
        """Keeps the audio of all keys, with limits and without; `None` where it is not kept."""
        self.meters: Meters | None = None
        """Counts the same audio, kept or not; `None` where it is not counted."""
        self._now = now
        self._leases = Leases(store)
        self._meters: set[_Meter] = set()
        self._uncounted_s: dict[str, float] = {}
        """Seconds of audio that the store does not have yet, by their counter."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count while the context is open, and once more at its end."""
        async with self._leases.running():
            try:
                async with in_background(
                    repeat(self._count_all, COUNT_EVERY_S, "the limits of keys cannot be counted")
                ):
                    yield
            finally:
                await self._count()

    @asynccontextmanager
    async def session(
        self, key: ApiKey | None, audio_s: Callable[[], float], *, may_return: bool = False
    ) -> AsyncIterator[AdmitSession]:
        """Count one live session for as long as the context is open.

        Args:
            may_return: whether its client may go on with a session that it lost, whose lease may still count.

        Yields:
            To be called when it is known whether the client goes on with a lost session. It raises `KeyLimitExceeded`
            if it does not, and the key has as many sessions as it may have.

        Raises:
            KeyLimitExceeded: the key has used what it may. Of its sessions only if the client cannot be one that
                returns.
        """
        with self._counting(key, "live", audio_s):
            if key is None or not key.has_limits:
                yield _admit_any
                return
            async with self._metered(key, audio_s), self._leased(key, may_return) as admit:
                yield admit

    @asynccontextmanager
    async def upload(self, key: ApiKey | None, kind: Kind = "file") -> AsyncIterator[Callable[[float], None]]:
        """Count the audio of one upload or job; raises like `session`. They are no sessions.

        Yields:
            To be called with the seconds of audio that are done.
        """
        done_s = 0.0

        def note(until_s: float) -> None:
            nonlocal done_s
            done_s = until_s

        with self._counting(key, kind, lambda: done_s):
            if key is None or not key.has_limits:
                yield note
                return
            async with self._metered(key, lambda: done_s):
                yield note

    def check_jobs(self, key: ApiKey | None, n_open: int) -> None:
        """Check that a key may have one job more than these, which wait or run.

        Raises:
            KeyLimitExceeded: it has as many as it may have.
        """
        if key is not None and key.jobs is not None and n_open >= key.jobs:
            self._on_refused()
            message = f"the key {key.name} has {n_open} jobs of {key.jobs} that wait or run"
            raise KeyLimitExceeded("job_limit", f"{message}; try again in {RETRY_AFTER_S} s", RETRY_AFTER_S)

    def _counting(self, key: ApiKey | None, kind: Kind, audio_s: Callable[[], float]) -> AbstractContextManager[None]:
        return self.meters.counting(key, kind, audio_s) if self.meters else nullcontext()

    @asynccontextmanager
    async def _leased(self, key: ApiKey, may_return: bool) -> AsyncIterator[AdmitSession]:
        """Hold the lease of one session. A key may have as many leases as its limit of sessions says."""
        if key.sessions is None:
            yield _admit_any
            return
        lease = Lease(f"sessions:{key.account}", token_hex(8))
        try:
            is_free = await self._leases.take(lease, key.sessions)
        except StoreAway:
            # It counts when the store is back.
            self._leases.hold(lease)
            is_free = True

        def admit(is_resumed: bool) -> None:
            if is_resumed:
                # The lease of the lost session ends by itself; until then the key has one more.
                self._leases.hold(lease)
            elif not is_free:
                self._on_refused()
                message = f"the key {key.name} has {key.sessions} of {key.sessions} sessions open"
                raise KeyLimitExceeded("session_limit", f"{message}; try again in {RETRY_AFTER_S} s", RETRY_AFTER_S)

        if not may_return:
            admit(False)
        try:
            yield admit
        finally:
            self._leases.drop(lease)

    @asynccontextmanager
    async def _metered(self, key: ApiKey, audio_s: Callable[[], float]) -> AsyncIterator[None]:
        """Check that the key has minutes left, and count audio while the context is open."""
        if key.minutes_per_day is None and key.minutes_per_month is None:
            yield
            return
        await self._check_minutes(key)
        if self.usage is not None:
            # Which counts the audio in the database, for good.
            yield
            return
        meter = _Meter(key, audio_s)
        self._meters.add(meter)
        try:
            yield
        finally:
            self._meters.discard(meter)
            self._note(meter)

    async def _check_minutes(self, key: ApiKey) -> None:
        now = self._now()
        tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        next_month = (now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=32)).replace(day=1)
        limits = [
            (key.minutes_per_day, "this day", tomorrow),
            (key.minutes_per_month, "this month", next_month),
        ]
        totals = await self._used_s(key, now)
        for (limit, period, ends), total_s in zip(limits, totals, strict=True):
            if limit is not None and total_s >= limit * 60:
                self._on_refused()
                message = f"the key {key.name} has used its {limit:g} minutes of audio for {period} (UTC)"
                raise KeyLimitExceeded("quota_exceeded", message, int((ends - now).total_seconds()) + 1)

    async def _used_s(self, key: ApiKey, now: datetime) -> list[float]:
        """The seconds of audio of a key on this day and in this month; none while they cannot be known."""
        if self.usage is not None:
            return await self.usage.audio_since(key, [now.date(), now.date().replace(day=1)]) or [0.0, 0.0]
        counters = [_day(key, now), _month(key, now)]
        try:
            totals = await self._store.totals(counters)
        except StoreAway:
            return [0.0, 0.0]
        return [
            total_s + self._uncounted_s.get(counter, 0.0) for counter, total_s in zip(counters, totals, strict=True)
        ]

    async def _count_all(self) -> None:
        for meter in self._meters:
            self._note(meter)
        await self._count()

    def _note(self, meter: _Meter) -> None:
        audio_s, now = meter.uncounted_s(), self._now()
        if not audio_s:
            return
        for counter in (_day(meter.key, now), _month(meter.key, now)):
            self._uncounted_s[counter] = self._uncounted_s.get(counter, 0.0) + audio_s

    async def _count(self) -> None:
        """Give the store what it does not have yet. What it does not take is kept for the next time."""
        given_s = dict(self._uncounted_s)
        if not given_s:
            return
        with suppress(StoreAway):
            await self._store.add(given_s, KEEP_S)
            left_s = {counter: seconds - given_s.get(counter, 0.0) for counter, seconds in self._uncounted_s.items()}
            self._uncounted_s = {counter: seconds for counter, seconds in left_s.items() if seconds}


def _day(key: ApiKey, now: datetime) -> str:
    return f"audio_s:{key.account}:{now:%Y-%m-%d}"


def _month(key: ApiKey, now: datetime) -> str:
    return f"audio_s:{key.account}:{now:%Y-%m}"
