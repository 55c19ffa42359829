"""What clients and the operator see while the database of jobs is locked, damaged or out of reach."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import URL, make_url, text

from app.database import database as module
from app.database.database import Database
from app.jobs import callbacks, worker
from tests.app.conftest import Running
from tests.app.jobs.conftest import ServeJobs
from tests.app.jobs.test_jobs_endpoint import submit

LOCK_TIMEOUT_S = 1
"""The least that PostgreSQL's setting takes here, in seconds."""
AWAY = "without the database: jobs wait, and requests about them are refused"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", LOCK_TIMEOUT_S)
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(worker, "POLL_S", 0.02)
    monkeypatch.setattr(callbacks, "POLL_S", 0.02)


def make_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)


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


async def test_a_lock_delays_requests_until_it_is_released(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, url: URL
) -> None:
    server = await serve_jobs(job_workers=0, database_url=url.render_as_string(hide_password=False))
    id_ = (await submit(http, server)).json()["id"]
    others = Database(url)._connected()
    with others.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("LOCK TABLE tutti_jobs, tutti_job_callbacks IN ACCESS EXCLUSIVE MODE"))
        await check(server, http, id_)
    others.dispose()
    while (await http.get(f"{server.http}/readyz")).text != "ready\n":
        pass
    # A request that was refused may be done all the same, once the lock is released.
    assert (await http.get(f"{server.http}/v1/jobs/{id_}")).status_code in (200, 404)


@pytest.mark.parametrize("make", [make_no_database, make_damaged, make_unreachable])
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


async def test_who_waits_behind_others_is_answered_in_time(tmp_path: Path) -> None:
    """SQLite has one writer: those who wait for it wait no longer than one that is alone."""
    database = Database(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))
    goes_on = threading.Event()
    waiting = [lambda connection: goes_on.wait(20), lambda connection: None, lambda connection: None]
    answers = await asyncio.gather(*map(database.run, waiting), return_exceptions=True)
    assert {f"{answer}".rpartition(": ")[2] for answer in answers} == {"no answer within 0.5 s"}
    assert database.is_away
    goes_on.set()
    await database.run(lambda connection: None)
    assert not database.is_away
    await database.close()
