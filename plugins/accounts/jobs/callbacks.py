"""Reports the ends of jobs to the addresses that their clients named: signed, and retried, also after a crash.

A report is sent at least once. Its body is the same each time, so a receiver knows a repetition.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Literal

import httpx
from sqlalchemy import Connection, select, update

from tutti_server.app.background import in_background
from tutti_server.app.files.addresses import AddressRefused, AddressRules
from tutti_server.app.files.fetch import sent
from tutti_server.app.jobs import CallbackMessage, Job, JobKind, JobResult
from tutti_server.app.publish.webhook import REQUEST_TIMEOUT_S, SIGNATURE_HEADER, signature
from tutti_server.app.retries import backoff_s, is_transient
from tutti_server.plugins.accounts.database.database import DatabaseAway
from tutti_server.plugins.accounts.database.seals import SealKeyMissing
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.job_store import callbacks
from tutti_server.plugins.accounts.jobs.jobs import Jobs

logger = logging.getLogger(__name__)

Outcome = Literal["delivered", "refused", "expired"]
"""How a report ended.

delivered: the receiver answered with a status from 200 to 299.
refused: the receiver answered with a status that will not change, or its address is not allowed.
expired: `MAX_ATTEMPTS` were in vain.
"""
MAX_ATTEMPTS = 12
"""How often a report is sent: over more than two hours, with these waits."""
FIRST_WAIT_S = 5.0
"""The wait before the second attempt, in seconds; later waits double."""
MAX_WAIT_S = 3600.0
LEASE_S = 60.0
"""A report whose gateway died while it was being sent is sent again after this time, in seconds."""
POLL_S = 1.0
"""How often a gateway without reports asks for those of jobs that other gateways have ended, in seconds."""
N_SENDERS = 8
"""Reports that one gateway sends at the same time."""
MAX_OF_OWNER = 4
"""The most of these reports that are of one owner, whose receiver may be slow."""

_Taken = tuple[Job, JobResult | None, int]
"""A report to send: its job, the result, and the number of this attempt."""


class CallbackSender:
    """Sends the reports that are due, of all gateways."""

    def __init__(
        self,
        jobs: Jobs,
        kinds: Mapping[str, JobKind],
        rules: AddressRules,
        secret: str,
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        """Prepare to send.

        Args:
            kinds: what each protocol reports.
            secret: signs the reports; empty for none.
            on_outcome: called once for each report that has ended.
        """
        self._jobs = jobs
        self._kinds = kinds
        self._rules = rules
        self._secret = secret
        self._on_outcome = on_outcome
        self._taking = asyncio.Lock()
        """Held by the sender that waits for a report: each is counted before the next is chosen."""
        self._n_sending: Counter[str] = Counter()
        """The reports that are being sent, by the owners of their jobs."""
        self._has_sent = asyncio.Event()
        """Set when a report has been sent, so that its owner may have a share again. Whoever waits for it clears it."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send while the context is open."""
        async with in_background(*(self._keep_sending() for _ in range(N_SENDERS))):
            yield

    async def _keep_sending(self) -> None:
        while True:
            try:
                async with self._taking:
                    taken = await self._take_in_time()
                await self._send(taken)
                continue
            except DatabaseAway as error:
                # What became of the report is not noted, so it is sent again.
                logger.warning("no report of a job can be noted: %s", error)
            except Exception:
                logger.exception("a report of a job failed")
            await asyncio.sleep(POLL_S)

    async def _take_in_time(self) -> _Taken:
        """Take the next report, when there is one. The other senders wait for their turn, and ask the database nothing.

        That it is away is logged once.
        """
        has_logged = False
        while True:
            try:
                if (taken := await self._take()) is not None:
                    return taken
                has_logged = False
                await self._wait_for_reports()
            except DatabaseAway as error:
                if not has_logged:
                    logger.warning("no report of a job can be sent: %s", error)
                has_logged = True
                await asyncio.sleep(POLL_S)

    async def _wait_for_reports(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._has_sent.wait()
        self._has_sent.clear()

    async def send_one(self) -> bool:
        """Send the next report that is due. Returns whether there was one."""
        taken = await self._take()
        if taken is None:
            return False
        await self._send(taken)
        return True

    async def _take(self) -> _Taken | None:
        if not self._jobs.database.is_there:
            return None
        but = [owner for owner, n in self._n_sending.items() if n >= MAX_OF_OWNER]
        taken = await self._jobs.database.run(_claim, self._kinds.keys(), but)
        if taken is not None:
            self._n_sending[taken[0].owner] += 1
        return taken

    async def _send(self, taken: _Taken) -> None:
        job, result, n_attempts = taken
        try:
            await self._report(job, result, n_attempts)
        finally:
            self._n_sending -= Counter([job.owner])
            self._has_sent.set()

    async def _report(self, job: Job, result: JobResult | None, n_attempts: int) -> None:
        answer = await self._post(job, self._kinds[job.request.kind].callback(job, result))
        outcome = _outcome(answer, n_attempts)
        wait_s = backoff_s(n_attempts, FIRST_WAIT_S, MAX_WAIT_S)
        if await self._jobs.database.run(_note, job.id, n_attempts, outcome, wait_s) and outcome:
            self._on_outcome(outcome)
        if outcome != "delivered":
            logger.warning("[%s] attempt %d to report its end: %s", job.id, n_attempts, answer)

    async def _post(self, job: Job, message: CallbackMessage) -> int | str:
        headers = {"content-type": message.media_type, "idempotency-key": f"evt_{job.id}", **message.headers}
        if self._secret:
            headers[SIGNATURE_HEADER] = signature(self._secret, int(time.time()), message.body)
        request = job.request
        try:
            url = self._jobs.seals.open(request.callback_url)
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                # Only the head of the answer is read. A redirect is no success.
                sent(self._rules, request.callback_method, url, headers=headers, content=message.body) as response,
            ):
                return response.status_code
        except AddressRefused as error:
            return f"refused: {error}"
        except SealKeyMissing as error:
            return f"its address cannot be opened: {error}"
        except TimeoutError:
            return f"no answer within {REQUEST_TIMEOUT_S:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return f"{type(error).__name__}"


def _outcome(answer: int | str, n_attempts: int) -> Outcome | None:
    """How the report has ended; `None` if it is sent again."""
    if isinstance(answer, int) and 200 <= answer < 300:
        return "delivered"
    is_final = isinstance(answer, int) and not is_transient(answer)
    if is_final or (isinstance(answer, str) and answer.startswith("refused")):
        return "refused"
    return "expired" if n_attempts >= MAX_ATTEMPTS else None


def _claim(connection: Connection, kinds: Collection[str], but: Collection[str] = ()) -> _Taken | None:
    """Take the report that is due first, of jobs of these kinds and of other owners than these."""
    at = job_store.now(connection)
    is_wanted = callbacks.c.job.in_(job_store.ids_of(kinds, but))
    due = select(callbacks).where(callbacks.c.due <= at, is_wanted).order_by(callbacks.c.due).limit(1)
    row = connection.execute(due.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    taken = update(callbacks).where(callbacks.c.job == row.job)
    connection.execute(taken.values(due=at + LEASE_S, n_attempts=row.n_attempts + 1))
    job = job_store.by_id(connection, row.job)
    assert job, "a report is forgotten with its job"
    return job, job_store.result(connection, row.job), row.n_attempts + 1


def _note(connection: Connection, id_: str, n_attempts: int, outcome: Outcome | None, wait_s: float) -> bool:
    """Note what became of an attempt. Returns whether it was the newest."""
    due = None if outcome else job_store.now(connection) + wait_s
    newest = (callbacks.c.job == id_, callbacks.c.n_attempts == n_attempts)
    return connection.execute(update(callbacks).where(*newest).values(due=due, outcome=outcome)).rowcount == 1
