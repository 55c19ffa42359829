"""The keys of the database, in the memory of one gateway."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tutti_server.app.background import in_background, repeat
from tutti_server.app.errors import RETRY_AFTER_S, RequestError
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.database.seals import NO_SEALS, SealKeyMissing, Seals
from tutti_server.plugins.accounts.keys import key_records
from tutti_server.plugins.accounts.keys.key_records import PREFIX, KeyRecord, hash_of

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""How often a gateway asks the database for changes, in seconds: so long a withdrawn key may be used."""
READ_ALL_S = 60.0
"""How often all keys are read, in seconds: a copy that was restored between two looks may have as many changes."""
KEEP_S = 900.0
"""How long keys that are known stay valid while the database does not answer, in seconds."""


class KeyDirectory:
    """Finds keys without asking the database, so that a flood of wrong keys costs it nothing.

    While the database is away, keys that are known are valid for `KEEP_S`; others are refused with 503, as they may
    have been made or withdrawn meanwhile.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        seals: Seals = NO_SEALS,
    ) -> None:
        """Prepare for the keys of this database; `running` loads them.

        Args:
            clock: a time in seconds that only goes forward.
            now: the time in seconds since 1970.
        """
        self._database = database
        self._clock = clock
        self._now = now
        self._seals = seals
        self._version = 0
        self._by_id: dict[str, KeyRecord] = {}
        self._by_hash: dict[str, KeyRecord] = {}
        self._is_up = False
        self._read_at = self._all_read_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know the keys, and their changes while the context is open. A database that is away may come back."""
        await self.refresh()
        async with in_background(repeat(self.refresh, POLL_S, "the keys of the database cannot be read")):
            yield

    @property
    def problem(self) -> str | None:
        """What is missing while the database is away, for the operator."""
        if self._is_up:
            return None
        return "without the database: new keys are refused, withdrawn ones may still be valid, usage is counted later"

    @property
    def records(self) -> list[KeyRecord]:
        """All records, the oldest first."""
        return sorted(self._by_id.values(), key=lambda each: (each.created, each.id))

    def find(self, key: str | None) -> KeyRecord | None:
        """See `account_service.KeyDirectory.find`. Unknown keys are refused while the database is away."""
        if not key or not key.startswith(PREFIX):
            return None
        hash_ = hash_of(key)
        record = self._current(self._by_hash.get(hash_))
        return record if record is not None and record.accepts(hash_, self._now()) else None

    def find_id(self, id_: str) -> KeyRecord | None:
        """See `account_service.KeyDirectory.find_id`."""
        record = self._current(self._by_id.get(id_))
        return record if record is not None and record.is_valid(self._now()) else None

    def signing_key(self, id_: str) -> str:
        """See `account_service.KeyDirectory.signing_key`. It may be sealed with a key that is not here."""
        record = self._by_id[id_]
        try:
            return self._seals.open(record.signing_key)
        except SealKeyMissing as error:
            logger.error("the signing key of %s cannot be opened: %s", record.name, error)
            message = f"client secrets of this key cannot be used at present; try again in {RETRY_AFTER_S} s"
            raise RequestError(503, message, code="keys_away") from error

    async def refresh(self) -> None:
        """Ask the database for changes.

        Where it was away, and every `READ_ALL_S`, it is asked for all records, as an older copy may have been restored.
        """
        reads_all = not self._is_up or self._clock() - self._all_read_at >= READ_ALL_S
        since = 0 if reads_all else self._version
        try:
            version, records = await self._database.run(key_records.changes, since)
            if version < since:
                since = 0
                version, records = await self._database.run(key_records.changes)
        except DatabaseAway as error:
            if self._is_up or self._read_at == float("-inf"):
                logger.warning("the keys of the database are not known: %s", error)
            self._is_up = False
            return
        if not self._is_up:
            logger.info("%d keys of the database have changed", len(records))
        self._is_up, self._read_at, self._version = True, self._clock(), version
        if not since:
            self._all_read_at = self._read_at
            self._by_id, self._by_hash = {}, {}
        for record in records:
            self._note(record)

    def _note(self, record: KeyRecord) -> None:
        before = self._by_id.get(record.id)
        if before is not None:
            for hash_ in (before.hash, before.old_hash):
                self._by_hash.pop(hash_ or "", None)
        self._by_id[record.id] = record
        for hash_ in (record.hash, record.old_hash):
            if hash_ is not None:
                self._by_hash[hash_] = record

    def _current(self, record: KeyRecord | None) -> KeyRecord | None:
        """A record, if it is recent enough, or if there is none."""
        if not self._is_up and (record is None or self._clock() - self._read_at > KEEP_S):
            message = f"the database of keys cannot be reached; try again in {RETRY_AFTER_S} s"
            raise RequestError(503, message, code="keys_away")
        return record
