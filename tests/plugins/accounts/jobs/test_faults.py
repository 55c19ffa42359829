"""A campaign over both databases and the store of recordings, with the faults that operators see.

Whatever fails, no job is lost or done twice, nothing is shown to another account, and who cannot be served is told so.
"""

import asyncio
import itertools
import random
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import URL, Connection, Engine, event, make_url, text

from benchmarks.faults.job_kills import Receiver, recording, words
from tests.app.conftest import Running
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.fakes import said
from tests.plugins.accounts.conftest import accounts
from tests.plugins.accounts.jobs.conftest import ServeJobs
from tests.postgres_server import PostgresServer
from tests.s3_server import BUCKET, S3Server, Stored
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database import database as database_module
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import callbacks, job_service, s3_spool, worker
from tutti_server.plugins.accounts.keys import key_records, usage

N_ACCOUNTS = 2
N_REFUSED = 3
"""A fault lasts until so many requests were refused."""
N_ACCEPTED = 2
"""And so many jobs are accepted between two faults."""
AWAY = ("database_away", "jobs_away", "keys_away")

Fault = Callable[["Campaign"], Awaitable[None]]


class Bucket(dict[str, Stored]):
    """The objects of a store that can be restored: what was deleted comes back."""

    def __init__(self) -> None:
        self.ever: dict[str, Stored] = {}
        self.restored: set[str] = set()

    def pop(self, name: str, default: Any = None) -> Any:
        """Delete one.

        What was restored stays: a job that ended before the restore may delete it only now, and is done again.
        """
        return default if name in self.restored else super().pop(name, default)

    def restore(self) -> None:
        """Bring back all that was there."""
        self.restored.update(self.ever)
        self.update(self.ever)

    def __setitem__(self, name: str, stored: Stored) -> None:
        self.ever[name] = stored
        super().__setitem__(name, stored)


class Sqlite:
    """Faults of all SQLite databases of this process.

    They are switched, as SQLAlchemy's listeners must not change while another thread goes through them.
    """

    is_gone = False
    is_full = False

    def connect(self, dialect: Any, *_: object) -> None:
        if self.is_gone and dialect.name == "sqlite":
            raise sqlite3.OperationalError("unable to open database file")

    def begin(self, connection: Connection) -> None:
        if self.is_full and connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA max_page_count = 1")


SQLITE = Sqlite()


@pytest.fixture(autouse=True)
def faults_of_sqlite() -> Iterator[None]:
    """Listen before a server opens its database, and until it has closed it."""
    event.listen(Engine, "do_connect", SQLITE.connect)
    event.listen(Engine, "begin", SQLITE.begin)
    yield
    event.remove(Engine, "do_connect", SQLITE.connect)
    event.remove(Engine, "begin", SQLITE.begin)


@dataclass(kw_only=True)
class Campaign:
    """Accounts that send jobs to a server, again and again until each is accepted, and look at each other's."""

    server: Running
    http: httpx.AsyncClient
    url: URL
    postgres: PostgresServer | None
    s3: S3Server
    keys: dict[str, str]
    receiver: Receiver
    callback: str
    bucket: "Bucket"
    n_refused: int = 0
    n_accepted: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_over: bool = False
    ids: dict[tuple[str, int], str] = field(default_factory=dict)
    """The job of each number of each account, as the server has answered last."""
    done_again: set[str] = field(default_factory=set)
    """Jobs that ended after the copy was made which was restored."""

    @property
    def engine(self) -> Engine:
        database = accounts(self.server).database
        return database._opened()

    async def request(self, account: str, method: str, path: str, **named: Any) -> httpx.Response:
        """Send a request. It is answered, and one that is refused says when to try again and what is away."""
        headers = {"Authorization": f"Bearer {self.keys[account]}", **named.pop("headers", {})}
        answer = await self.http.request(method, self.server.http + path, headers=headers, **named)
        async with self.changed:
            if answer.status_code == 503:
                assert answer.headers["retry-after"] and answer.json()["error"]["code"] in AWAY, answer.text
                self.n_refused += 1
            self.changed.notify_all()
        assert answer.status_code in (200, 202, 404, 409, 503), answer.text
        return answer

    async def send(self, account: str, number: int) -> None:
        """Send a job in, until it is accepted."""
        key = {"Idempotency-Key": f"job {number}"}
        file, fields = {"file": wav(recording(self.place(account, number)))}, {"callback": self.callback}
        while True:
            answer = await self.request(account, "POST", "/v1/jobs", headers=key, files=file, data=fields)
            if answer.status_code in (200, 202):
                break
        self.ids[account, number] = answer.json()["id"]
        async with self.changed:
            self.n_accepted += 1
            self.changed.notify_all()

    def place(self, account: str, number: int) -> int:
        """Tells the recording of an account from those of others."""
        return number * len(self.keys) + list(self.keys).index(account)

    async def keep_sending(self, account: str) -> None:
        """Send one job after another, and look at a job of somebody else."""
        for number in itertools.count():
            if self.is_over:
                return
            await self.send(account, number)
            for (owner, _), id_ in list(self.ids.items())[-N_ACCOUNTS:]:
                for path in (f"/v1/jobs/{id_}", f"/v1/jobs/{id_}/result"):
                    answer = await self.request(account, "GET", path)
                    assert owner == account or answer.status_code in (404, 503)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the requests so far."""
        async with self.changed:
            await self.changed.wait_for(holds)

    async def accepted(self, n_more: int) -> None:
        """Wait until so many more jobs were accepted."""
        n = self.n_accepted + n_more
        await self.until(lambda: self.n_accepted >= n)

    async def run(self, faults: list[Fault]) -> None:
        """Let these faults happen while jobs are sent."""
        async with asyncio.TaskGroup() as tasks:
            for account in self.keys:
                tasks.create_task(self.keep_sending(account))
            for fault in faults:
                await self.accepted(N_ACCEPTED)
                await fault(self)
            self.is_over = True

    async def readyz(self) -> str:
        return (await self.http.get(f"{self.server.http}/readyz")).text

    async def refusals(self) -> None:
        """Wait until a fault is felt, and see that the operator is told what is away."""
        n = self.n_refused + N_REFUSED
        await self.until(lambda: self.n_refused >= n)
        while "without the " not in await self.readyz():
            pass

    async def check(self) -> None:
        """Every job was done once and reported, its text is its own, and its account alone has it and its audio."""
        while await self.readyz() != "ready\n":
            pass
        # What a copy that was restored does not know is sent again, with the same names.
        for account, number in list(self.ids):
            await self.send(account, number)
        for account in self.keys:
            mine = {id_: number for (owner, number), id_ in self.ids.items() if owner == account}
            while True:
                listed = (await self.request(account, "GET", "/v1/jobs?limit=100")).json()["data"]
                if all(job["status"] not in ("queued", "running") for job in listed):
                    break
            assert [job for job in listed if job["status"] != "done"] == []
            assert {job["id"] for job in listed} == mine.keys()
            for id_, number in mine.items():
                result = await self.request(account, "GET", f"/v1/jobs/{id_}/result")
                assert result.json()["text"] == said(words(self.place(account, number)))
            while not self.receiver.reports.keys() >= mine.keys():
                await self.readyz()
        assert {id_ for id_, bodies in self.receiver.bodies.items() if len(bodies) > 1} <= self.done_again
        assert not self.receiver.n_unsigned
        used = await accounts(self.server).database.run(usage.used, date.min, date.max)
        assert sorted(each.n for each in used) == sorted(
            sum(owner == account for owner, _ in self.ids) for account in self.keys
        )


async def locked(campaign: Campaign) -> None:
    """Another program holds the tables."""
    other = Database(campaign.url)._connected()
    with other.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("LOCK TABLE tutti_jobs, tutti_job_callbacks IN ACCESS EXCLUSIVE MODE"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database_module, "ANSWER_TIMEOUT_S", 0.3)
            await campaign.refusals()
    other.dispose()


async def gone(campaign: Campaign) -> None:
    """The server was killed, or the disk of the file is not there."""
    if campaign.postgres:
        await asyncio.to_thread(campaign.postgres.kill)
        await campaign.refusals()
        await asyncio.to_thread(campaign.postgres.start)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SQLITE, "is_gone", True)
            await campaign.refusals()


async def slow(campaign: Campaign) -> None:
    """What is asked for is done, and the answer comes too late."""
    goes_on = threading.Event()
    dialect = campaign.engine.dialect
    commit = dialect.do_commit

    def commit_slowly(connection: Any) -> None:
        commit(connection)
        goes_on.wait(30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "do_commit", commit_slowly)
        patch.setattr(database_module, "ANSWER_TIMEOUT_S", 0.3)
        await campaign.refusals()
    goes_on.set()


async def full(campaign: Campaign) -> None:
    """Nothing can be written any more."""
    engine = campaign.engine
    if campaign.postgres:
        with engine.begin() as connection:
            body = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END"
            connection.execute(text(f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"))
            for table in ("tutti_jobs", "tutti_job_results", "tutti_job_callbacks"):
                connection.execute(
                    text(f"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_disk()")
                )
        await campaign.refusals()
        with engine.begin() as connection:
            connection.execute(text("DROP FUNCTION full_disk CASCADE"))
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SQLITE, "is_full", True)
            await campaign.refusals()


async def answers_lost(campaign: Campaign) -> None:
    """Each second commit is done, and its connection is lost before the answer."""
    dialect = campaign.engine.dialect
    commit, numbers = dialect.do_commit, itertools.count()

    def commit_and_vanish(connection: Any) -> None:
        commit(connection)
        if next(numbers) % 2:
            if campaign.postgres:
                connection.driver_connection.close()
            raise dialect.loaded_dbapi.OperationalError("server closed the connection unexpectedly")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "do_commit", commit_and_vanish)
        await campaign.refusals()


async def restored(campaign: Campaign) -> None:
    """The operator restores a copy: what came after it is unknown, and is sent in again."""
    reported = set(campaign.receiver.reports)
    path = campaign.url.database or ""
    if campaign.postgres:
        await asyncio.to_thread(campaign.postgres.copy_database, path, "copy")
    else:
        with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(f"{path}.copy")) as copy:
            live.backup(copy)
    await campaign.accepted(N_ACCOUNTS + 1)
    # The bucket is restored first: recordings that were deleted since are there again.
    campaign.bucket.restore()
    if campaign.postgres:
        await asyncio.to_thread(campaign.postgres.copy_database, "copy", path)
    else:
        with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(f"{path}.copy")) as copy:
            copy.backup(live)
    # A job that had not ended in the copy is done again, and ends at another time.
    campaign.done_again |= set(campaign.ids.values()) - reported


def store_answers(status: int) -> Fault:
    """The store of the recordings answers every request with this status."""

    async def fault(campaign: Campaign) -> None:
        campaign.s3.failing = status
        await campaign.refusals()
        campaign.s3.failing = 0

    return fault


async def store_hangs(campaign: Campaign) -> None:
    """The store takes requests and does not answer."""
    with campaign.s3.lock:
        await campaign.refusals()


FAULTS: list[Fault] = [locked, gone, slow, full, answers_lost, restored]
FAULTS += [store_hangs, store_answers(404), store_answers(503)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(s3_spool, "RETRIED_S", 0)
    monkeypatch.setattr(s3_spool, "TIMEOUT_S", 1)
    monkeypatch.setattr(job_service, "MEASURE_EVERY_S", 0.1)
    monkeypatch.setattr(callbacks, "LEASE_S", 2.0)
    for module in (worker, callbacks):
        monkeypatch.setattr(module, "POLL_S", 0.02)
        monkeypatch.setattr(module, "FIRST_WAIT_S", 0.05)


async def campaign(serve_jobs: ServeJobs, url: URL, postgres: PostgresServer | None, faults: list[Fault]) -> None:
    """Run one, and check what has become of its jobs."""
    made = Database(url)
    names = ("anna", "bo", "cleo")[:N_ACCOUNTS]
    keys = await made.run(lambda each: {name: key_records.create(each, ApiKey(name=name))[0] for name in names})
    await made.close()
    receiver, s3 = Receiver(), S3Server()
    s3.objects = bucket = Bucket()
    with s3.running(), pytest.MonkeyPatch.context() as patch:
        s3.use(patch)
        async with receiver.running() as callback, httpx.AsyncClient(timeout=60) as http, asyncio.timeout(300):
            server = await serve_jobs(
                database_keys=True,
                database_url=url.render_as_string(hide_password=False),
                job_spool=f"s3://{BUCKET}/jobs",
                job_lease_s=2.0,
                job_attempts=20,
                job_secret="secret",
                callback_hosts="127.0.0.1",
                private_networks="127.0.0.0/8",
            )
            run = Campaign(
                server=server,
                http=http,
                url=url,
                postgres=postgres,
                s3=s3,
                keys=keys,
                receiver=receiver,
                callback=callback,
                bucket=bucket,
            )
            await run.run(faults)
            await run.check()


async def test_no_fault_of_sqlite_or_the_store_loses_or_doubles_a_job(serve_jobs: ServeJobs, tmp_path: Path) -> None:
    await campaign(serve_jobs, make_url(f"sqlite:///{tmp_path / 'folder' / 'tutti.db'}"), None, FAULTS)


@pytest.mark.nightly
async def test_no_fault_of_postgresql_loses_or_doubles_a_job(serve_jobs: ServeJobs, postgres: PostgresServer) -> None:
    await campaign(serve_jobs, make_url(postgres.new_database()), postgres, FAULTS[:6])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_file", [True, False])
async def test_faults_in_any_order(
    serve_jobs: ServeJobs, tmp_path: Path, request: Any, is_file: bool, seed: int
) -> None:
    """Each of them three times."""
    faults = FAULTS * 3
    random.Random(seed).shuffle(faults)
    postgres = None if is_file else request.getfixturevalue("postgres")
    url = make_url(postgres.new_database() if postgres else f"sqlite:///{tmp_path / 'folder' / 'tutti.db'}")
    await campaign(serve_jobs, url, postgres, faults)
