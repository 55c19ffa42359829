"""The jobs of a service: takes them in, tells what has become of them, and forgets them in time."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO
from uuid import uuid4

from sqlalchemy import Connection

from app.database.database import Database, DatabaseAway
from app.database.seals import NO_SEALS, Seals
from app.jobs import job_store
from app.jobs.job import Job, Request
from app.jobs.job_store import CountUsage
from app.jobs.spool import PIECE_BYTES, Spool

logger = logging.getLogger(__name__)

MAX_FORGOTTEN = 200
"""How many jobs one transaction forgets."""
FETCHERS_PER_WORKER = 4
"""Fetching mostly waits for other servers. So several owners with slow ones do not keep each other waiting."""
ORPHAN_S = 86_400.0
"""A recording that belongs to no job is deleted after this time, in seconds: its upload was cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """What the operator has set."""

    n_workers: int
    """Jobs that one gateway decodes at the same time."""
    lease_s: float
    """How long a gateway that has died keeps its jobs, in seconds."""
    max_attempts: int
    keep_audio_s: float
    """How long the recording of a job that has ended is kept, in seconds."""
    keep_results_s: float
    """How long a job that has ended is kept, with its result."""

    @property
    def n_fetchers(self) -> int:
        """Recordings that one gateway fetches at the same time; of one owner at most `n_workers`."""
        return self.n_workers * FETCHERS_PER_WORKER


class Jobs:
    """All jobs of a service, whichever gateway took them in."""

    def __init__(
        self,
        database: Database,
        spool: Spool,
        config: JobsConfig,
        count_usage: CountUsage | None = None,
        seals: Seals = NO_SEALS,
    ) -> None:
        """Prepare for the jobs of this database.

        Args:
            database: has the jobs and their results.
            spool: has the recordings.
            config: the operator's settings.
            count_usage: called in the transaction that ends a job which is done.
            seals: seals the addresses of jobs, which may hold passwords.
        """
        self.database = database
        self.spool = spool
        self.config = config
        self.count_usage = count_usage
        self.seals = seals
        self.has_come = asyncio.Event()
        """Set when a job has come to this gateway, or may be taken now. Whoever waits for it clears it."""

    async def submit(
        self,
        owner: str,
        account: str,
        request: Request,
        file: IO[bytes] | None,
        idempotency_key: str | None = None,
        check: Callable[[int], None] = lambda n_open: None,
    ) -> tuple[Job, bool]:
        """Take a job in. It survives any crash once this returns.

        Args:
            owner: whose it is.
            account: under which its audio is counted.
            request: what the client wants.
            file: the recording, at its beginning; `None` where it is fetched.
            idempotency_key: the client's own name for the job, if it has one.
            check: called with the number of open jobs of this owner; what it raises is raised, and no job is made.

        Returns:
            The job, and whether it is new. It is not where the owner has sent this idempotency key before.

        Raises:
            KeyReused: the other job had another recording or other options.
            OSError: the recording cannot be kept; `SpoolAway` if its store is away.
        """
        id_ = str(uuid4())
        fingerprint = await asyncio.to_thread(_fingerprint, request, file)
        url, callback_url = self.seals.seal(request.url), self.seals.seal(request.callback_url)
        sealed = replace(request, url=url, callback_url=callback_url)

        def add(connection: Connection) -> tuple[Job, bool]:
            added = job_store.add(
                connection,
                (id_, owner, account),
                sealed,
                has_audio=file is not None,
                fingerprint=fingerprint,
                idempotency_key=idempotency_key,
            )
            if added[1]:
                check(job_store.n_open(connection, owner) - 1)
            return added

        if file is not None:
            await asyncio.to_thread(self.spool.put, id_, file)
        try:
            job, is_new = await self.database.run(add)
        except DatabaseAway:
            # The job may be there, and only the answer lost. Otherwise the sweep deletes the recording.
            raise
        except Exception:
            await self.drop_audio(id_)
            raise
        if not is_new and file is not None:
            await self.drop_audio(id_)
        self.has_come.set()
        return job, is_new

    async def cancel(self, id_: str, owner: str) -> Job | None:
        """Cancel a job that has not ended, and return it; `None` if the owner has no such job."""
        job = await self.database.run(lambda connection: job_store.cancel(connection, id_, owner))
        if job is not None:
            await self.note_ended(job)
        return job

    async def remove(self, id_: str, owner: str) -> bool:
        """Forget a job, its recording and its result, at once. Returns whether the owner had it.

        Raises:
            OSError: the recording cannot be deleted. The job is cancelled then, and is there to be removed again.
        """
        job = await self.database.run(lambda connection: job_store.cancel(connection, id_, owner))
        if job is None:
            return False
        if job.may_have_audio:
            await asyncio.to_thread(self.spool.delete, id_)
        return await self.database.run(lambda connection: job_store.remove(connection, id_, owner))

    async def note_ended(self, job: Job) -> None:
        """Delete the recording of a job that has ended, if it is not to be kept."""
        if job.may_have_audio and not self.config.keep_audio_s:
            try:
                await self._delete_audio([job.id])
            except OSError as error:
                logger.warning("[%s] its recording is deleted later: %s", job.id, error)

    async def sweep(self) -> None:
        """Delete recordings and results that are old enough, and recordings that belong to no job."""
        keep_s = self.config.keep_audio_s
        while ids := await self.database.run(lambda each: job_store.with_old_audio(each, keep_s, MAX_FORGOTTEN)):
            await self._delete_audio(ids)
        n = await self.database.run(lambda connection: job_store.remove_old(connection, self.config.keep_results_s))
        if n:
            logger.info("%d old jobs are forgotten", n)
        names = await asyncio.to_thread(lambda: list(self.spool.older_than(ORPHAN_S)))
        for at in range(0, len(names), MAX_FORGOTTEN):
            await self._delete_orphans(names[at : at + MAX_FORGOTTEN])

    async def _delete_orphans(self, names: list[str]) -> None:
        known = await self.database.run(lambda connection: job_store.known_among(connection, names))
        for name in set(names) - known:
            await asyncio.to_thread(self.spool.delete, name)

    async def drop_audio(self, id_: str) -> None:
        """Delete a recording that no job needs."""
        try:
            await asyncio.to_thread(self.spool.delete, id_)
        except OSError as error:
            logger.warning("[%s] a recording that no job needs is deleted later: %s", id_, error)

    async def _delete_audio(self, ids: list[str]) -> None:
        for id_ in ids:
            await asyncio.to_thread(self.spool.delete, id_)
        await self.database.run(lambda connection: job_store.note_no_audio(connection, ids))


def _fingerprint(request: Request, file: IO[bytes] | None) -> str:
    """The same for the same recording with the same options. Leaves the file at its beginning."""
    sha256 = hashlib.sha256("\0".join((request.kind, request.options_json, request.url, request.callback_url)).encode())
    if file is not None:
        while piece := file.read(PIECE_BYTES):
            sha256.update(piece)
        file.seek(0)
    return sha256.hexdigest()
