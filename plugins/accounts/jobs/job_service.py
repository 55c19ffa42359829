"""The jobs of one service: its settings, keys, limits and metrics around `Jobs`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import IO, TypeVar

from sqlalchemy import Connection

from tutti_server.app.background import in_background
from tutti_server.app.errors import RETRY_AFTER_S, RequestError
from tutti_server.app.files.addresses import AddressRefused, AddressRules
from tutti_server.app.files.fetch import address_rules, fetcher
from tutti_server.app.jobs import Job, JobKind, JobResult, Request, State
from tutti_server.app.service.accounts import usage_account
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.key_limits import KeyLimits
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.database.seals import seals_of_file
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.callbacks import CallbackSender
from tutti_server.plugins.accounts.jobs.job_metrics import JobMetrics
from tutti_server.plugins.accounts.jobs.job_store import KeyReused
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import FolderUnknown, SpoolAway, SpoolFull
from tutti_server.plugins.accounts.jobs.worker import JobWorker
from tutti_server.plugins.accounts.keys import usage
from tutti_server.plugins.accounts.keys.usage import Report
from tutti_server.plugins.accounts.keys.usage_counter import UsageCounter
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import spool

logger = logging.getLogger(__name__)

SWEEP_EVERY_S = 600.0
"""How often a gateway deletes what is old enough, in seconds."""
MEASURE_EVERY_S = 5.0
"""How often a gateway looks at the queue for the metrics, in seconds."""

Kinds = Mapping[str, JobKind]
_Result = TypeVar("_Result")


class JobService:
    """Takes jobs in for the endpoints, and has them done."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        limits: KeyLimits,
        metrics: JobMetrics,
        counter: UsageCounter | None,
        keys: Callable[[], Sequence[ApiKey]],
        may_work: Callable[[], bool],
    ) -> None:
        """Prepare the jobs of a service.

        Args:
            limits: count what keys may have.
            counter: counts what all keys use; `None` where that is not counted.
            keys: returns all keys with names. A key may have been withdrawn after it had sent a job.
            may_work: whether this gateway may do jobs now.
        """
        own = settings.of(AccountSettings)
        self._secret = own.job_secret
        self._limits = limits
        self._counter = counter
        self.metrics = metrics
        self._keys = keys
        self._may_work = may_work
        count = self._count if counter else None
        seals = seals_of_file(own.secret_keys_file)
        self._jobs = Jobs(database, spool(own, database), own, count, seals)
        self._callback_rules = address_rules(settings, "callback_hosts", own.callback_hosts)
        self._fetcher = fetcher(settings)

    @asynccontextmanager
    async def running(self, kinds: Kinds) -> AsyncIterator[None]:
        """Do jobs while the context is open."""
        metrics = self.metrics
        worker = JobWorker(self._jobs, kinds, self._fetcher.fetch, self._may_work, self._note_ended)
        sender = CallbackSender(
            self._jobs,
            kinds,
            self._callback_rules,
            self._secret,
            lambda outcome: metrics.callbacks_total.labels(outcome).inc(),
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._jobs.close)
            await stack.enter_async_context(worker.running())
            await stack.enter_async_context(sender.running())
            repeated = (
                self._keep(self._jobs.sweep, SWEEP_EVERY_S),
                self._keep(self._measure, MEASURE_EVERY_S),
                self._keep(self._look_for_spool, MEASURE_EVERY_S),
            )
            await stack.enter_async_context(in_background(*repeated))
            yield

    def check_addresses(self, request: Request) -> None:
        """See `account_service.Jobs.check_addresses`."""
        if request.url:
            _check(self._fetcher.rules, "url", request.url)
        if request.callback_url:
            _check(self._callback_rules, "callback", request.callback_url)

    @property
    def problem(self) -> str | None:
        """What is missing while the database or the spool is away or full, for the operator."""
        if self._jobs.database.is_away:
            return "without the database: jobs wait, and requests about them are refused"
        if self._jobs.spool_is_full:
            return "the store for the recordings of jobs is full: new ones are refused"
        if self._jobs.spool_is_away:
            return "without the store for the recordings of jobs: jobs wait, and new ones are refused"
        return None

    @property
    def signs(self) -> bool:
        """Whether callbacks are signed."""
        return bool(self._secret)

    async def submit(
        self,
        owner: str,
        key: ApiKey | None,
        request: Request,
        file: IO[bytes] | None,
        idempotency_key: str | None = None,
    ) -> tuple[Job, bool]:
        """See `account_service.Jobs.submit`. A job with an idempotency key that its owner has sent before is not new.

        Raises:
            RequestError: also where the idempotency key was used for another job.
        """
        try:
            with _refusing_while_away():
                return await self._jobs.submit(
                    owner,
                    usage_account(key),
                    request,
                    file,
                    idempotency_key,
                    lambda n_open: self._limits.check_jobs(key, n_open),
                )
        except KeyReused:
            message = "Idempotency-Key: expected a new one for another recording or other options, got one used before"
            raise RequestError(409, message, "Idempotency-Key", "idempotency_key_reused") from None

    async def find(self, id_: str, owner: str) -> Job | None:
        """The job with this id, if it is this owner's. All of these raise `RequestError` without the database."""
        return await self._there(lambda connection: job_store.find(connection, id_, owner))

    async def result(self, id_: str) -> JobResult | None:
        """What a job has made; `None` if it has not."""
        return await self._there(lambda connection: job_store.result(connection, id_))

    async def listed(self, owner: str, n: int, after: Job | None, state: State | None) -> list[Job]:
        """Up to `n` jobs of an owner, the newest first; those after one that was listed before."""
        return await self._there(lambda connection: job_store.listed(connection, owner, n, after, state))

    async def cancel(self, id_: str, owner: str) -> Job | None:
        """Cancel a job that has not ended, and return it; `None` if the owner has no such job."""
        with _refusing_while_away():
            return await self._jobs.cancel(id_, owner)

    async def remove(self, id_: str, owner: str) -> bool:
        """Forget a job, its recording and its result, at once. Returns whether the owner had it."""
        with _refusing_while_away():
            return await self._jobs.remove(id_, owner)

    async def _there(self, work: Callable[[Connection], _Result]) -> _Result:
        with _refusing_while_away():
            return await self._jobs.database.run(work)

    def _note_ended(self, job: Job) -> None:
        self.metrics.ended_total.labels(job.state).inc()
        if job.audio_s and self._counter is not None:
            key = next((each for each in self._keys() if each.account == job.account), None)
            # It was counted with the end of the job. Only the metrics learn of it here.
            self._counter.note_saved(key, "job", job.audio_s)

    def _count(self, connection: Connection, job: Job) -> None:
        """Count the audio of a job in the transaction that ends it. Its id is the source, so it counts once."""
        day = datetime.now(UTC).date()
        report = Report(source=job.id, account=job.account, kind="job", audio_s=job.audio_s or 0.0, day=day)
        usage.save(connection, [report])

    async def _look_for_spool(self) -> None:
        """Find out that a spool which was away is back, or that a full one has room again."""
        if self._jobs.spool_is_away or self._jobs.spool_is_full:
            await self._jobs.spool_works()

    async def _measure(self) -> None:
        n_queued, n_running, oldest_s = await self._jobs.database.run(job_store.backlog)
        self.metrics.n_queued.set(n_queued)
        self.metrics.n_running.set(n_running)
        self.metrics.oldest_s.set(oldest_s)

    async def _keep(self, work: Callable[[], Awaitable[None]], period_s: float) -> None:
        while True:
            try:
                if self._jobs.database.is_there:
                    await work()
            except DatabaseAway as error:
                logger.debug("later: %s", error)
            except OSError as error:
                logger.warning("the spool of jobs cannot be cleaned: %s", error)
            except Exception:
                logger.exception("jobs cannot be looked after; trying again in %g s", period_s)
            await asyncio.sleep(period_s)


def _check(rules: AddressRules, name: str, url: str) -> None:
    try:
        rules.check(url)
    except AddressRefused as error:
        raise RequestError(400, f"{name}: {error}", name, "address_refused") from error


@contextmanager
def _refusing_while_away() -> Iterator[None]:
    """Refuse what needs the database or the spool while it is away."""
    try:
        yield
    except (DatabaseAway, SpoolAway) as error:
        what = "database" if isinstance(error, DatabaseAway | FolderUnknown) else "store for the recordings"
        logger.warning("a request about jobs is refused: %s", error)
        problem = "is full" if isinstance(error, SpoolFull) else "cannot be reached"
        message = f"the {what} of jobs {problem}; try again in {RETRY_AFTER_S} s"
        raise RequestError(503, message, code="jobs_away") from error
