"""What clients and the operator see while the database of jobs is locked, damaged or out of reach."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import URL, make_url, text

from tests.app.conftest import Running
from tests.plugins.accounts.jobs.conftest import ServeJobs
from tests.plugins.accounts.jobs.test_jobs_endpoint import submit
from tests.plugins.accounts.jobs.test_worker import cannot_fetch
from tutti_server.app.files.addresses import AddressRules
from tutti_server.plugins.accounts.database import database as module
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.jobs import callbacks, worker
from tutti_server.plugins.accounts.jobs.callbacks import CallbackSender
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import FolderSpool
from tutti_server.plugins.accounts.jobs.worker import JobWorker
from tutti_server.plugins.accounts.settings import AccountSettings

LOCK_TIMEOUT_S = 1
"""The least that PostgreSQL's setting takes here, in seconds."""
N_ASKED = 50
"""How often a database is asked that is away."""
N_ANSWERS = 10
ANSWER_TIMEOUT_S = 0.5
"""Patched only while the database does not answer: a server that opens it and makes its tables may take longer."""
AWAY = "without the database: jobs wait, and requests about them are refused"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", LOCK_TIMEOUT_S)
    monkeypatch.setattr(worker, "POLL_S", 0.02)
    monkeypatch.setattr(callbacks, "POLL_S", 0.02)


def make_damaged(path: Path) -> None:
    """The head of the file is what it was, and the tables are not."""
    database = Database(make_url(f"sqlite:///{path}"))
    database.run_here(lambda connection: None)
    database.close_here()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def make_unreachable(path: Path) -> None:
    """A folder has its name."""
    path.mkdir(parents=True)


async def check(server: Running, http: httpx.AsyncClient, id_: str) -> None:
    """Every request about jobs is refused in time, and says when to try again."""
    requests = [("GET", "/v1/jobs"), ("GET", f"/v1/jobs/{id_}"), ("GET", f"/v1/jobs/{id_}/result")]
    requests += [("POST", f"/v1/jobs/{id_}/cancel"), ("DELETE", f"/v1/jobs/{id_}")]
    answers = [await http.request(method, server.http + path) for method, path in requests]
    for answer in (*answers, await submit(http, server)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "jobs_away")
        assert answer.headers["retry-after"]
    assert (await http.get(f"{server.http}/readyz")).text == f"ready; {AWAY}\n"


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.default
async def test_a_lock_delays_requests_until_it_is_released(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve_jobs(job_workers=0, database_url=url.render_as_string(hide_password=False))
    id_ = (await submit(http, server)).json()["id"]
    others = Database(url)._connected()
    with others.begin() as connection:
        connection.execute(text("LOCK TABLE tutti_jobs, tutti_job_callbacks IN ACCESS EXCLUSIVE MODE"))
        with monkeypatch.context() as patched:
            patched.setattr(module, "ANSWER_TIMEOUT_S", ANSWER_TIMEOUT_S)
            await check(server, http, id_)
    others.dispose()
    while (await http.get(f"{server.http}/readyz")).text != "ready\n":
        pass
    # A request that was refused may be done all the same, once the lock is released.
    assert (await http.get(f"{server.http}/v1/jobs/{id_}")).status_code in (200, 404)


@pytest.mark.parametrize("make", [make_damaged, make_unreachable])
async def test_a_file_that_is_no_database_refuses_requests_about_jobs(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """Live sessions go on, so the server starts. A folder is left to those who may use it."""
    path = tmp_path / "state" / "tutti.db"
    make(path)
    mode = path.stat().st_mode
    server = await serve_jobs(job_workers=0)
    await check(server, http, str(uuid4()))
    assert path.is_file() or path.stat().st_mode == mode


async def test_who_waits_behind_others_is_answered_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has one writer: those who wait for it wait no longer than one that is alone."""
    database = Database(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))
    goes_on = threading.Event()
    waiting = [lambda connection: goes_on.wait(20), lambda connection: None, lambda connection: None]
    with monkeypatch.context() as patched:
        patched.setattr(module, "ANSWER_TIMEOUT_S", ANSWER_TIMEOUT_S)
        answers = await asyncio.gather(*map(database.run, waiting), return_exceptions=True)
    assert {f"{answer}".rpartition(": ")[2] for answer in answers} == {"no answer within 0.5 s"}
    assert database.is_away
    goes_on.set()
    await database.run(lambda connection: None)
    assert not database.is_away
    await database.close()


class AwayTwice(Database):
    """Does not answer, but for once. `has_asked` is set when it was asked often before and after."""

    def __init__(self, path: Path) -> None:
        super().__init__(make_url(f"sqlite:///{path}"))
        self.n_asked = 0
        self.has_asked = asyncio.Event()

    @property
    def is_there(self) -> bool:
        return True

    async def run(self, *arguments: Any, **named: Any) -> Any:
        self.n_asked += 1
        if self.n_asked >= 2 * N_ASKED:
            self.has_asked.set()
        if N_ASKED <= self.n_asked < N_ASKED + N_ANSWERS:
            return None
        raise DatabaseAway("no answer")


async def test_the_log_says_once_that_the_database_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for jobs and reports; and once more when it is away again."""
    monkeypatch.setattr(worker, "POLL_S", 0.001)
    monkeypatch.setattr(callbacks, "POLL_S", 0.001)
    for is_worker in (True, False):
        database = AwayTwice(tmp_path / "tutti.db")
        jobs = Jobs(database, FolderSpool(tmp_path), AccountSettings(job_workers=4))
        workers = JobWorker(jobs, {}, cannot_fetch, lambda: True, print)
        senders = CallbackSender(jobs, {}, AddressRules("callback_hosts", ()), "", print)
        caplog.clear()
        async with asyncio.timeout(20), workers.running() if is_worker else senders.running():
            await database.has_asked.wait()
        what = "no job can be taken" if is_worker else "no report of a job can be sent"
        assert [each.getMessage() for each in caplog.records] == [f"{what}: no answer"] * 2
