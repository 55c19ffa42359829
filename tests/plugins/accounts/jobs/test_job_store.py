"""Who works on a job, and that it ends once, in SQLite and in PostgreSQL."""

import asyncio
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from sqlalchemy import Connection, func, select

from tutti_server.app.errors import KeyLimitExceeded
from tutti_server.app.jobs import Job, JobFailed, JobResult, Request
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.job_store import KeyReused
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import FolderSpool
from tutti_server.plugins.accounts.settings import AccountSettings

RESULT = JobResult(content=b"text", media_type="text/plain", audio_s=1.5)
REQUEST = Request(kind="openai", options={"task": "transcribe"}, callback_url="https://example.org/")
LEASE_S = 60.0
_Result = TypeVar("_Result")


class Store:
    """The store of one database, with shorter calls."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def __call__(self, work: Callable[..., _Result], *arguments: Any, **named: Any) -> _Result:
        return await self.database.run(work, *arguments, **named)

    async def add(self, owner: str = "o", **named: Any) -> Job:
        names = (str(uuid4()), owner, owner)
        return (await self(job_store.add, names, REQUEST, **{"has_audio": True, "fingerprint": "f", **named}))[0]

    async def claim(self, lease: str, lease_s: float = LEASE_S, max_attempts: int = 5) -> Job | None:
        return await self(job_store.claim, lease, lease_s, max_attempts)


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


async def test_a_job_is_taken_by_one_and_ends_once(store: Store) -> None:
    """The oldest first; a lease that was lost changes nothing."""
    first, second = await store.add(), await store.add()
    taken = await store.claim("a", lease_s=0.0)
    assert taken and (taken.id, taken.state, taken.n_attempts) == (first.id, "running", 1)
    again = await store.claim("b")
    assert again and (again.id, again.n_attempts, again.started) == (first.id, 2, taken.started)
    assert not await store(job_store.renew, first.id, "a", LEASE_S)
    assert await store(job_store.renew, first.id, "b", LEASE_S)
    assert await store(job_store.finish, first.id, "a", RESULT) is None
    done = await store(job_store.finish, first.id, "b", RESULT)
    assert done and (done.state, done.audio_s, done.has_ended) == ("done", 1.5, True)
    assert await store(job_store.finish, first.id, "b", RESULT) == done
    assert await store(job_store.result, first.id) == RESULT
    other = await store.claim("c")
    assert other and other.id == second.id
    assert await store.claim("d") is None


async def test_a_job_that_has_ended_is_held_by_no_lease(store: Store) -> None:
    """A gateway that comes late with the lease that ended it changes nothing."""
    id_ = (await store.add()).id
    await store.claim("a")
    ended = await store(job_store.finish, id_, "a", RESULT)
    assert not await store(job_store.renew, id_, "a", LEASE_S)
    assert not await store(job_store.put_back, id_, "a", 0.0)
    assert not await store(job_store.note_fetched, id_, "a")
    assert not await store(job_store.undo_claim, "a")
    assert await store(job_store.finish, id_, "a", JobFailed("code", "why")) == ended
    assert await store(job_store.find, id_, "o") == ended


async def test_of_many_owners_nobody_waits_longer_than_their_share(store: Store) -> None:
    """With four workers and jobs of one length, each other owner has begun at most n jobs when one begins its n-th."""
    numbers = random.Random(5)
    n_jobs = {f"owner {number}": numbers.choice((1, 2, 3, 12)) for number in range(15)}
    owners = [owner for owner, n in n_jobs.items() for _ in range(n)]

    def work(connection: Connection) -> list[str]:
        for number, owner in enumerate(owners):
            names = (f"{number}", owner, owner)
            job_store.add(connection, names, REQUEST, has_audio=True, fingerprint="f")
        taken, running = list[str](), list[tuple[str, str]]()
        while len(taken) < len(owners):
            if len(running) == 4:
                job_store.finish(connection, *running.pop(0), RESULT)
            lease = f"lease {len(taken)}"
            job = job_store.claim(connection, lease, LEASE_S, 5)
            assert job
            taken.append(job.owner)
            running.append((job.id, lease))
        return taken

    taken = await store.database.run(work)
    for at, owner in enumerate(taken):
        turn = taken[: at + 1].count(owner)
        assert all(taken[:at].count(other) <= turn for other in n_jobs), (at, owner)


async def test_many_who_take_jobs_at_once_take_each_once(store: Store) -> None:
    ids = {(await store.add()).id for _ in range(12)}
    taken = await asyncio.gather(*(store.claim(f"lease {number}") for number in range(20)))
    found = [each.id for each in taken if each]
    assert sorted(found) == sorted(ids)


async def test_what_is_counted_is_undone_with_the_end_of_its_job(store: Store) -> None:
    """The result, the count and the end are one transaction."""
    job = await store.add()
    await store.claim("a")

    def fail(connection: Connection, ended: Job) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store(job_store.finish, job.id, "a", RESULT, fail)
    found = await store(job_store.find, job.id, "o")
    assert found and found.state == "running" and await store(job_store.result, job.id) is None


async def test_a_job_that_ends_its_gateways_has_failed(store: Store) -> None:
    job = await store.add()
    for number in range(2):
        assert await store.claim(f"lease {number}", lease_s=0.0, max_attempts=2)
    assert await store.claim("last", max_attempts=2) is None
    found = await store(job_store.find, job.id, "o")
    assert found and (found.state, found.error_code) == ("failed", "attempts")


async def test_a_job_that_was_put_back_waits(store: Store) -> None:
    """An attempt that was given back does not count; one that failed does, and its reason is kept."""
    job = await store.add()
    await store.claim("a")
    assert await store(job_store.put_back, job.id, "a", 0.0)
    taken = await store.claim("b")
    assert taken and taken.n_attempts == 1
    assert await store(job_store.put_back, job.id, "b", LEASE_S, "away", counts=True)
    assert await store.claim("c") is None
    assert not await store(job_store.put_back, job.id, "b", 0.0)
    found = await store(job_store.find, job.id, "o")
    assert found and (found.state, found.n_attempts, found.error) == ("queued", 1, "away")


async def test_an_idempotency_key_names_one_job_of_an_owner(store: Store) -> None:
    first = await store.add(idempotency_key="k")
    assert (await store.add(idempotency_key="k")).id == first.id
    assert (await store.add("other", idempotency_key="k")).id != first.id
    with pytest.raises(KeyReused):
        await store.add(idempotency_key="k", fingerprint="g")


async def test_jobs_that_are_sent_at_the_same_time_with_one_idempotency_key_are_one(store: Store) -> None:
    """A client that repeats a request does not wait for the answer to the first one."""
    for key in ("a", "b", "c"):
        jobs = await asyncio.gather(*(store.add(idempotency_key=key) for _ in range(8)))
        assert len({each.id for each in jobs}) == 1
    assert await store(job_store.n_open, "o") == 3


async def test_requests_at_the_same_time_exceed_no_limit_of_their_owner(database: Database, tmp_path: Path) -> None:
    """Each counts the jobs of those before it. Of what is refused no recording stays."""
    spool = FolderSpool(tmp_path / "jobs")
    jobs = Jobs(database, spool, AccountSettings())

    def check(n_open: int) -> None:
        if n_open:
            raise KeyLimitExceeded("job_limit", "expected at most one job", 1)

    await database.check()
    for owner in "abcd":
        requests = (jobs.submit(owner, owner, REQUEST, io.BytesIO(b"x"), check=check) for _ in range(4))
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert sum(isinstance(each, KeyLimitExceeded) for each in outcomes) == 3, outcomes
    assert len(list(spool.older_than(0.0))) == 4


async def test_old_jobs_are_forgotten_after_their_recordings(store: Store) -> None:
    done, failed, waiting = [await store.add() for _ in range(3)]
    for outcome in (RESULT, JobFailed("code", "why")):
        taken = await store.claim("a")
        assert taken and await store(job_store.finish, taken.id, "a", outcome)
    assert await store(job_store.with_old_audio, LEASE_S, 9) == []
    assert sorted(await store(job_store.with_old_audio, 0.0, 9)) == sorted([done.id, failed.id])
    assert await store(job_store.remove_old, 0.0) == 0
    await store(job_store.note_no_audio, [done.id])
    assert await store(job_store.remove_old, LEASE_S) == 0
    assert await store(job_store.remove_old, 0.0) == 1
    assert await store(job_store.result, done.id) is None
    assert await store(job_store.known_among, [done.id, failed.id, waiting.id]) == {failed.id, waiting.id}
    turns = select(func.count()).select_from(job_store._turns)
    assert not await store.database.run(lambda connection: connection.scalar(turns)), "turns are forgotten as well"


async def test_the_backlog_is_counted(store: Store) -> None:
    assert await store(job_store.backlog) == (0, 0, 0.0)
    for _ in range(3):
        await store.add()
    await store.claim("a")
    n_queued, n_running, oldest_s = await store(job_store.backlog)
    assert (n_queued, n_running) == (2, 1) and 0 <= oldest_s < 60
    assert await store(job_store.n_open, "o") == 3
    assert await store(job_store.n_open, "other") == 0
