"""Counts the audio of one gateway's sessions, uploads and jobs, and gives it to the database and to the metrics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime

from tutti_server.app.background import in_background, repeat
from tutti_server.app.service.account_service import Kind
from tutti_server.app.service.accounts import usage_account
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database.database import ANSWER_TIMEOUT_S, Database, DatabaseAway
from tutti_server.plugins.accounts.keys import usage
from tutti_server.plugins.accounts.keys.metered_usage import Meter, MeteredUsage, NoteUsage
from tutti_server.plugins.accounts.keys.usage import Report, Used

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
"""How often the audio of open sessions is saved, in seconds. As much may be missing after a gateway has died."""
MAX_UNSAVED = 100_000
"""The most reports that are kept while the database is away. The audio of more is lost, which the log says."""


class UsageCounter(MeteredUsage):
    """Counts audio while it is used, and saves it every few seconds.

    While the database is away, the counts are kept here and saved when it is back.
    """

    def __init__(
        self, database: Database, note: NoteUsage, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        super().__init__(note)
        self._database = database
        self._now = now
        self._unsaved: dict[tuple[str, date], Report] = {}
        """The newest report of each source and day that the database does not have yet."""
        self._saving = asyncio.Lock()
        self._day: date | None = None
        """The day on which old sources were forgotten last."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Save while the context is open, and once more at its end."""
        try:
            async with in_background(repeat(self.save, SAVE_EVERY_S, "usage cannot be saved")):
                yield
        finally:
            await self.save()
            if self._unsaved:
                logger.error("the usage of %d sessions and files is lost: no database", len(self._unsaved))

    def note_saved(self, key: ApiKey | None, kind: Kind, audio_s: float) -> None:
        """Give the metrics audio that the database has already, because it was counted with what used it."""
        self._note(key, kind, audio_s, is_new=True)

    async def save(self) -> None:
        """Save what was used so far."""
        self.note_open()
        async with self._saving:
            reports, self._unsaved = self._unsaved, {}
            try:
                await self._save(list(reports.values()))
            except BaseException as error:
                # Also if this was cancelled: to save again what was saved already changes nothing.
                self._unsaved = reports | self._unsaved
                if not isinstance(error, DatabaseAway):
                    raise
                logger.warning("the usage of %d sessions and files is saved later: %s", len(self._unsaved), error)

    async def audio_since(self, key: ApiKey, days: Sequence[date]) -> list[float]:
        """The seconds of audio that a key has used since each of these days, at all gateways.

        Of those that are open, up to when they were last saved. Nothing while the database is away.
        """
        try:
            return await self._database.run(usage.audio_since, key.account, days)
        except DatabaseAway:
            return []

    async def used(self, from_day: date, to_day: date, account: str | None = None) -> list[Used]:
        """What was used on these days at all gateways, at this one up to now; of one account, or of all.

        Raises:
            DatabaseAway: it is not known.
        """
        try:
            # Together no longer than one transaction: each waits for those before it, whose time limits add up.
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self.save()
                return await self._database.run(usage.used, from_day, to_day, account)
        except TimeoutError:
            raise DatabaseAway(f"usage cannot be read within {ANSWER_TIMEOUT_S:g} s") from None

    async def _save(self, reports: Sequence[Report]) -> None:
        today = self._now().date()
        for day in sorted({each.day for each in reports}):
            await self._database.run(usage.save, [each for each in reports if each.day == day])
        if today != self._day:
            still_open = sorted(meter.source for meter in self._meters if meter.noted_s)
            await self._database.run(usage.forget_sources, today, still_open)
            self._day = today

    def _read(self, meter: Meter) -> float:
        new_s = super()._read(meter)
        if not new_s:
            return new_s
        day = self._now().date()
        if len(self._unsaved) >= MAX_UNSAVED and (meter.source, day) not in self._unsaved:
            logger.error("%.1f s of audio are not counted: the database is away for too long", new_s)
            return new_s
        account = usage_account(meter.key)
        self._unsaved[meter.source, day] = Report(
            source=meter.source, account=account, kind=meter.kind, audio_s=meter.noted_s, day=day
        )
        return new_s
