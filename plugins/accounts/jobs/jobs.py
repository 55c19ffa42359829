"""The jobs of a service: takes them in, tells what has become of them, and forgets them in time."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import IO, Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection

from tutti_server.app.errors import DISK_FULL
from tutti_server.app.jobs import Job, Request
from tutti_server.plugins.accounts.database.daemon_threads import DaemonThreads
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.database.seals import NO_SEALS, Seals
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.job_store import CountUsage
from tutti_server.plugins.accounts.jobs.spool import PIECE_BYTES, AllAway, Spool, SpoolAway, SpoolFull, try_out
from tutti_server.plugins.accounts.settings import AccountSettings

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

MAX_FORGOTTEN = 200
"""How many jobs one transaction forgets."""
DAY_S = 86_400.0
ORPHAN_S = DAY_S
"""A recording that belongs to no job is deleted after this time, in seconds: its upload was cut short."""

N_SPOOL_THREADS = 16
"""Recordings that are kept, read or deleted at the same time."""
SPOOL_WAIT_S = 10.0
"""How long one waits for the others, in seconds, before the store of the recordings counts as away: it hangs."""
SPOOL_ANSWER_S = 15.0
"""How long one may take, in seconds, until the store counts as away; of a recording so long and by its length."""
SPOOL_BYTES_PER_S = 1_000_000
"""The least speed at which a recording is kept, in bytes per second."""
SPOOL_COPY_S = 3600.0
"""How long the longest may take, in seconds: a store that is far away is copied from, or has many recordings."""
SPOOL_CLOSE_S = 5.0
"""How long a stopping gateway waits for recordings that are under way, in seconds."""


class Jobs:
    """All jobs of a service, whichever gateway took them in."""

    def __init__(
        self,
        database: Database,
        spool: Spool,
        settings: AccountSettings,
        count_usage: CountUsage | None = None,
        seals: Seals = NO_SEALS,
    ) -> None:
        """Prepare for the jobs of this database.

        Args:
            count_usage: called in the transaction that ends a job which is done.
            seals: seals the addresses of jobs, which may hold passwords.
        """
        self.database = database
        self.spool = spool
        self.settings = settings
        self.count_usage = count_usage
        self.seals = seals
        # Threads of their own: a store that hangs takes none from decoders or from the look-up of names.
        self._spool_threads = DaemonThreads(N_SPOOL_THREADS, "recordings")
        self._free_spool_threads = asyncio.Semaphore(N_SPOOL_THREADS)
        self.spool_is_away = False
        """Whether the spool could not do what it was asked for last."""
        self.spool_is_full = False
        """Whether the spool had no room for what it was to keep last. What it has may be read nevertheless."""
        self.has_come = asyncio.Event()
        """Set when a job has come to this gateway, or may be taken now. Whoever waits for it clears it."""

    async def close(self) -> None:
        """Wait for the recordings that are under way, for a limited time: one that hangs is left."""
        await asyncio.to_thread(self._spool_threads.wait, SPOOL_CLOSE_S)

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
            account: under which its audio is counted.
            file: the recording, at its beginning; `None` where it is fetched.
            idempotency_key: the client's own name for the job, if it has one.
            check: called with the number of open jobs of this owner; what it raises is raised, and no job is made.

        Returns:
            The job, and whether it is new. It is not where the owner has sent this idempotency key before.

        Raises:
            KeyReused: the other job had another recording or other options.
            SpoolAway: the recording cannot be kept. `SpoolFull` says that there is no room for it.
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
            await self.put(id_, file)
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
        job = await self.database.run(job_store.cancel, id_, owner)
        if job is not None:
            await self.note_ended(job)
        return job

    async def remove(self, id_: str, owner: str) -> bool:
        """Forget a job, its recording and its result, at once. Returns whether the owner had it.

        Raises:
            SpoolAway: the recording cannot be deleted. The job is cancelled then, and is there to be removed again.
        """
        job = await self.database.run(job_store.cancel, id_, owner)
        if job is None:
            return False
        if job.may_have_audio:
            await self._delete(id_)
        return await self.database.run(job_store.remove, id_, owner)

    async def note_ended(self, job: Job) -> None:
        """Delete the recording of a job that has ended, if it is not to be kept."""
        if job.may_have_audio and not self.settings.job_audio_days:
            try:
                await self._delete_audio([job.id])
            except SpoolAway as error:
                logger.warning("[%s] its recording is deleted later: %s", job.id, error)

    async def sweep(self) -> None:
        """Delete recordings and results that are old enough, and recordings that belong to no job."""
        keep_s, results_s = self.settings.job_audio_days * DAY_S, self.settings.job_result_days * DAY_S
        # First, as the store of recordings may be away for long.
        n = await self.database.run(job_store.remove_old, results_s)
        if n:
            logger.info("%d old jobs are forgotten", n)
        after = ""
        while ids := await self.database.run(job_store.with_old_audio, keep_s, MAX_FORGOTTEN, after):
            await self._delete_audio(ids)
            after = ids[-1]
        names = await self.on_spool(lambda spool: list(spool.older_than(ORPHAN_S)), SPOOL_COPY_S)
        for at in range(0, len(names), MAX_FORGOTTEN):
            await self._delete_orphans(names[at : at + MAX_FORGOTTEN])

    async def _delete_orphans(self, names: list[str]) -> None:
        known = await self.database.run(job_store.known_among, names)
        for name in set(names) - known:
            await self._has_deleted(name)

    async def drop_audio(self, id_: str) -> None:
        """Delete a recording that no job needs."""
        try:
            await self._delete(id_)
        except SpoolAway as error:
            logger.warning("[%s] a recording that no job needs is deleted later: %s", id_, error)

    async def put(self, id_: str, file: IO[bytes]) -> None:
        """Keep a recording, which is read from its beginning. Raises as `on_spool`."""
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            await self.on_spool(lambda spool: spool.put(id_, file), SPOOL_ANSWER_S + n_bytes / SPOOL_BYTES_PER_S)
        except SpoolFull:
            self.spool_is_full = True
            raise
        self.spool_is_full = False

    async def on_spool(
        self,
        work: Callable[[Spool], _Result],
        limit_s: float = SPOOL_ANSWER_S,
        discard: Callable[[_Result], object] = lambda _: None,
    ) -> _Result:
        """Have the spool do something in a thread. Neither cancelling nor the end of the wait stops what has begun.

        Args:
            discard: receives the result if the caller was cancelled or its time limit has passed.

        Raises:
            FileNotFoundError: the recording is not there.
            SpoolAway: it cannot be done at present.
        """
        try:
            async with asyncio.timeout(SPOOL_WAIT_S):
                await self._free_spool_threads.acquire()
        except TimeoutError:
            self.spool_is_away = True
            raise SpoolAway(f"{N_SPOOL_THREADS} recordings have been under way for {SPOOL_WAIT_S:g} s") from None
        done = asyncio.get_running_loop().run_in_executor(self._spool_threads, work, self.spool)
        # Whoever waits may leave; the thread is busy until then.
        done.add_done_callback(self._note_done)
        is_received = False
        try:
            async with asyncio.timeout(limit_s) as limit:
                result = await asyncio.shield(done)
            is_received = True
        except FileNotFoundError:
            self.spool_is_away = False
            raise
        except SpoolAway:
            self.spool_is_away = True
            raise
        except OSError as error:
            # That a time limit ends is an `OSError`, too.
            self.spool_is_away = True
            what = f"no answer within {limit_s:g} s" if limit.expired() else f"{error}"
            raise (SpoolFull if error.errno in DISK_FULL else SpoolAway)(what) from error
        finally:
            if not is_received:
                done.add_done_callback(lambda each: each.cancelled() or each.exception() or discard(each.result()))
        self.spool_is_away = False
        return result

    def _note_done(self, done: "asyncio.Future[Any]") -> None:
        self._free_spool_threads.release()
        if not done.cancelled():
            # An error that has no reader any more is no warning.
            done.exception()

    async def spool_works(self) -> bool:
        """Try the spool out. What fails although it works does not fail because of it."""
        try:
            await self.on_spool(try_out)
        except OSError as error:
            logger.debug("the spool does not work: %s", error)
            self.spool_is_away, self.spool_is_full = True, isinstance(error, SpoolFull)
            return False
        self.spool_is_full = False
        return True

    async def _delete(self, id_: str) -> None:
        await self.on_spool(lambda spool: spool.delete(id_))

    async def _has_deleted(self, id_: str) -> bool:
        """Delete a recording. False where this one alone cannot be deleted, which keeps no other one.

        Raises:
            SpoolAway: none can be.
        """
        try:
            await self._delete(id_)
        except SpoolAway as error:
            if isinstance(error, AllAway) or not await self.spool_works():
                raise
            logger.warning("[%s] its recording cannot be deleted: %s", id_, error)
            return False
        return True

    async def _delete_audio(self, ids: list[str]) -> None:
        deleted = [id_ for id_ in ids if await self._has_deleted(id_)]
        await self.database.run(job_store.note_no_audio, deleted)


def _fingerprint(request: Request, file: IO[bytes] | None) -> str:
    """Return a hash that is the same for the same recording with the same options. Leaves the file at its beginning."""
    sha256 = hashlib.sha256("\0".join((request.kind, request.options_json, request.url, request.callback_url)).encode())
    if file is not None:
        while piece := file.read(PIECE_BYTES):
            sha256.update(piece)
        file.seek(0)
    return sha256.hexdigest()
