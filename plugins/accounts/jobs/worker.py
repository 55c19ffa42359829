"""Works on jobs: takes those that are due, transcribes them, and keeps their results."""

import asyncio
import logging
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from secrets import token_hex
from typing import IO, TypeVar

from sqlalchemy import Connection

from tutti_server.app.background import in_background
from tutti_server.app.jobs import Job, JobDelayed, JobFailed, JobKind, JobResult, Step
from tutti_server.app.retries import backoff_s
from tutti_server.plugins.accounts.database.database import DatabaseAway
from tutti_server.plugins.accounts.database.seals import SealKeyMissing
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.jobs import SPOOL_COPY_S, Jobs
from tutti_server.plugins.accounts.jobs.spool import AllAway, SpoolAway

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""How often a gateway without work asks for jobs that other gateways took in, in seconds."""
FETCHERS_PER_WORKER = 4
"""Fetching mostly waits for other servers. So several owners with slow ones do not keep each other waiting."""
RENEWALS = 3
"""How often a lease is renewed before it ends."""
FIRST_WAIT_S = 5.0
"""How long a job waits at most that could not be done at present, in seconds; it doubles with each attempt."""
MAX_WAIT_S = 600.0
PUT_BACK_S = 3.0
"""How long a stopping gateway tries to give its jobs back, in seconds. Others take them later otherwise."""

_Result = TypeVar("_Result")
Fetch = Callable[[str, IO[bytes]], Awaitable[None]]
"""Fetches the recording of a job from its address into a file.

It raises `JobFailed` or `JobDelayed`, and `OSError` where the file cannot be written.
"""
_StepOfJob = Callable[[Job, asyncio.Event], Awaitable[JobResult | None]]
"""Does a step of a job. Returns what it has made; `None` where another step follows.

It sets the event where it begins to keep something, after which it is not left before its end.
"""


class JobWorker:
    """The workers of one gateway. Any number of gateways may work on the same jobs."""

    def __init__(
        self,
        jobs: Jobs,
        kinds: Mapping[str, JobKind],
        fetch: Fetch,
        may_work: Callable[[], bool],
        on_ended: Callable[[Job], None],
    ) -> None:
        """Prepare to work.

        Args:
            kinds: what each protocol does with its jobs.
            fetch: fetches the recordings of jobs that name an address.
            may_work: whether jobs may be taken at present.
            on_ended: called once for each job that this gateway has ended.
        """
        self._jobs = jobs
        self._kinds = kinds
        self._fetch = fetch
        self._may_work = may_work
        self._on_ended = on_ended
        self._claiming = asyncio.Lock()
        """Held by the one that waits for a recording to fetch: each is counted before the next is chosen."""
        self._n_fetched: Counter[str] = Counter()
        """The recordings that are being fetched, by their owners."""
        self._has_logged = False
        """Whether the log says that no job can be taken."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the context is open. Jobs that are not done at its end are given back."""
        n_workers = self._jobs.settings.job_workers
        works = [self._decode_one] * n_workers + [self._fetch_one] * (n_workers * FETCHERS_PER_WORKER)
        async with in_background(*map(self._keep_working, works)):
            yield

    async def _keep_working(self, work_on_one: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work_on_one()
            except DatabaseAway as error:
                logger.warning("no job can be taken: %s", error)
                await asyncio.sleep(POLL_S)
            except Exception:
                # A defect ends one attempt, which another gateway repeats when the lease has ended.
                logger.exception("an attempt at a job failed")
                await asyncio.sleep(POLL_S)

    async def _wait_for_jobs(self) -> None:
        has_come = self._jobs.has_come
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await has_come.wait()
        has_come.clear()

    async def _decode_one(self) -> None:
        while (claimed := await self._claim("decode")) is None:
            await self._wait_for_jobs()
        await self._do(*claimed, self._result)

    async def _fetch_one(self) -> None:
        """Fetch the next recording into the spool, when there is one.

        It does not count as decoding, and an owner fetches at most as many at a time as are decoded: a slow server
        does not keep other owners waiting.
        """
        async with self._claiming:
            while (claimed := await self._claim("fetch", self._without_share())) is None:
                await self._wait_for_jobs()
            job, lease = claimed
            self._n_fetched[job.owner] += 1
        try:
            await self._do(job, lease, self._fetched)
        finally:
            self._n_fetched -= Counter([job.owner])
            # The owner has a share again, perhaps of the recording that the one who waits has left.
            self._jobs.has_come.set()

    def _without_share(self) -> list[str]:
        """The owners that fetch at present as many recordings as they may."""
        return [owner for owner, n in self._n_fetched.items() if n >= self._jobs.settings.job_workers]

    async def _claim(self, step: Step, but: Collection[str] = ()) -> tuple[Job, str] | None:
        """Take a job, with a new lease. Returns nothing when the database has been away, as soon as it is there again.

        A claim without an answer may be committed all the same. It is undone: else its job stood still until the lease
        ends, and lost an attempt.
        """
        if not self._may_work() or not self._jobs.database.is_there:
            return None
        settings = self._jobs.settings
        lease = token_hex(16)
        is_over = threading.Event()
        given_up: list[Job] = []

        def claim(connection: Connection) -> Job | None:
            # It may be run again.
            given_up.clear()
            job = job_store.claim(
                connection,
                lease,
                settings.job_lease_s,
                settings.job_attempts,
                step,
                but,
                given_up.append,
                self._kinds.keys(),
            )
            if is_over.is_set():
                # No one waits for it any more. Undone here, as what undoes it below may come first.
                connection.rollback()
            return job

        try:
            job = await self._jobs.database.run(claim)
        except DatabaseAway as error:
            if not self._has_logged:
                logger.warning("no job can be taken: %s", error)
            self._has_logged = True
            is_over.set()
            await self._kept(lambda each: job_store.undo_claim(each, lease), has_logged=True)
            return None
        finally:
            is_over.set()
        self._has_logged = False
        for each in given_up:
            logger.info("[%s] failed after %d attempts", each.id, each.n_attempts)
            self._on_ended(each)
        return None if job is None else (job, lease)

    async def _do(self, job: Job, lease: str, step: _StepOfJob) -> None:
        """Do a step of a job, and give the job back if this gateway stops."""
        try:
            await self._hold(job, lease, step)
        except asyncio.CancelledError:
            with suppress(TimeoutError, DatabaseAway):
                async with asyncio.timeout(PUT_BACK_S):
                    await self._jobs.database.run(job_store.put_back, job.id, lease, 0.0)
            raise

    async def _hold(self, job: Job, lease: str, step: _StepOfJob) -> None:
        """Work on a job while its lease is renewed, and leave it when the lease is lost."""
        saving = asyncio.Event()
        work = asyncio.create_task(self._attempt(job, lease, step, saving))
        renewing = asyncio.create_task(self._keep_lease(job, lease))
        try:
            await asyncio.wait((work, renewing), return_when=asyncio.FIRST_COMPLETED)
            if saving.is_set():
                # The lease has ended with the job, perhaps. Saving finds out, and has things to do after it.
                await asyncio.wait((work,))
            if work.done():
                work.result()
            else:
                logger.info("[%s] is no longer this gateway's: cancelled, or done by another one", job.id)
        finally:
            for task in (work, renewing):
                task.cancel()
            await asyncio.gather(work, renewing, return_exceptions=True)

    async def _keep_lease(self, job: Job, lease: str) -> None:
        lease_s = self._jobs.settings.job_lease_s
        while True:
            await asyncio.sleep(lease_s / RENEWALS)
            with suppress(DatabaseAway):
                # While the database is away, other gateways cannot take the job either.
                if not await self._jobs.database.run(job_store.renew, job.id, lease, lease_s):
                    return

    async def _attempt(self, job: Job, lease: str, step: _StepOfJob, saving: asyncio.Event) -> None:
        """Try to do a step of a job, and keep what comes of it, for which `saving` is set."""
        outcome: JobResult | JobFailed | None
        try:
            outcome = await step(job, saving)
        except JobDelayed as error:
            delay = error
            saving.set()
            wait_s = await self._kept(lambda each: _put_back(each, job, lease, delay))
            logger.warning("[%s] is tried again in %.0f s: %s", job.id, wait_s, error)
            return
        except JobFailed as error:
            outcome = error
        except Exception as error:
            logger.exception("[%s] attempt %d failed", job.id, job.n_attempts)
            outcome = JobFailed("internal_error", f"the server has failed: {type(error).__name__}")
        saving.set()
        if outcome is None:
            await self._note_fetched(job, lease)
        else:
            await self._finish(job, lease, outcome)

    async def _finish(self, job: Job, lease: str, outcome: JobResult | JobFailed) -> None:
        count_usage = self._jobs.count_usage
        ended = await self._kept(lambda each: job_store.finish(each, job.id, lease, outcome, count_usage))
        if ended is None:
            logger.info("[%s] was ended by somebody else; this result is dropped", job.id)
            return
        logger.info("[%s] %s after %d attempts", job.id, ended.state, ended.n_attempts)
        self._on_ended(ended)
        await self._jobs.note_ended(ended)

    async def _result(self, job: Job, _saving: asyncio.Event) -> JobResult:
        kind = self._kinds[job.request.kind]
        try:
            recording = await self._jobs.on_spool(
                lambda spool: spool.open(job.id), SPOOL_COPY_S, lambda each: each.close()
            )
        except FileNotFoundError:
            raise JobFailed("no_audio", "the recording is no longer in the spool") from None
        except SpoolAway as error:
            raise await self._delayed_by_spool(job, "read", error) from error
        with recording:
            return await kind.work(job, recording)

    async def _fetched(self, job: Job, saving: asyncio.Event) -> None:
        """Fetch a recording into the spool. Nothing is asked of its server while it could not be kept."""
        if self._jobs.spool_is_away and not await self._jobs.spool_works():
            raise JobDelayed("the store of recordings cannot be written at present", counts=False)
        with ExitStack() as stack:
            try:
                file = stack.enter_context(tempfile.TemporaryFile())
                await self._fetch(self._url(job), file)
                file.seek(0)
            except OSError as error:
                logger.warning("[%s] its recording cannot be kept: %s", job.id, error)
                message = "the recording cannot be kept at present"
                raise JobDelayed(message, counts=False, is_costly=True) from error
            # The job may end meanwhile. What the spool has then is deleted when it is there.
            saving.set()
            try:
                await self._jobs.put(job.id, file)
            except OSError as error:
                raise await self._delayed_by_spool(job, "written", error) from error

    async def _delayed_by_spool(self, job: Job, what: str, error: OSError) -> JobDelayed:
        """The delay of a job whose recording cannot be read or written: no attempt, unless the spool itself works."""
        logger.warning("[%s] its recording cannot be %s: %s", job.id, what, error)
        counts = not isinstance(error, AllAway) and await self._jobs.spool_works()
        return JobDelayed(f"the store of recordings cannot be {what} at present", counts=counts)

    async def _note_fetched(self, job: Job, lease: str) -> None:
        if await self._kept(lambda each: job_store.note_fetched(each, job.id, lease)):
            self._jobs.has_come.set()
            return
        # Another gateway may have it, and needs the recording, or it was noted although no answer came: then it is
        # deleted when the job has ended, or kept as long as the operator wants.
        found = await self._kept(lambda each: job_store.by_id(each, job.id))
        if found is None or (found.has_ended and not found.has_audio):
            await self._jobs.drop_audio(job.id)

    def _url(self, job: Job) -> str:
        try:
            return self._jobs.seals.open(job.request.url)
        except SealKeyMissing as error:
            logger.warning("[%s] its address cannot be opened: %s", job.id, error)
            raise JobDelayed("url: this server lacks the key to it") from error

    async def _kept(self, work: Callable[[Connection], _Result], has_logged: bool = False) -> _Result:
        """Run a transaction, as often as it takes while the database is away, which is logged once."""
        while True:
            try:
                return await self._jobs.database.run(work)
            except DatabaseAway as error:
                if not has_logged:
                    logger.warning("what came of a job is saved later: %s", error)
                has_logged = True
                await asyncio.sleep(POLL_S)


def _put_back(connection: Connection, job: Job, lease: str, delay: JobDelayed) -> float:
    """Have a delayed job done later. Returns in how many seconds."""
    wait_s = backoff_s(job.n_attempts, FIRST_WAIT_S, MAX_WAIT_S)
    if delay.is_costly and job.started is not None:
        # As long again as it has been tried, since the number of its attempts does not grow.
        wait_s = max(wait_s, min(job_store.now(connection) - job.started, MAX_WAIT_S))
    job_store.put_back(connection, job.id, lease, wait_s, str(delay), counts=delay.counts)
    return wait_s
