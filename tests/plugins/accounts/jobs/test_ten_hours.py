"""Ten hours of jobs of fifty accounts with quotas, on a virtual clock, in one transaction."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from benchmarks.job_kills import most_of_share
from tests.plugins.accounts.jobs.test_job_store import REQUEST
from tutti_server.app.errors import KeyLimitExceeded
from tutti_server.app.jobs import Job, JobResult
from tutti_server.app.service.accounts import account_of
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.key_limits import KeyLimits
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.keys import usage
from tutti_server.plugins.accounts.keys.usage import Report

BEGIN = datetime(2026, 3, 1, 18, tzinfo=UTC).timestamp()
"""Six hours before a day of quotas ends."""
HOURS = 10
N_WORKERS = 2
LEASE_S = 60.0
MAX_SHARE = 2.0
LOST = 0.03
"""The part of attempts whose gateway dies."""


class Counted:
    """The usage of the transaction, as `KeyLimits` asks for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def counting(self, *_: object) -> AbstractContextManager[None]:
        return nullcontext()

    async def audio_since(self, key: ApiKey, days: list[date]) -> list[float]:
        return usage.audio_since(self.connection, key.account, days)


class Service:
    """Accounts that send jobs in, and workers that do them, at the time `now`."""

    def __init__(self, connection: Connection, rng: random.Random) -> None:
        self.connection, self.rng, self.now = connection, rng, BEGIN
        self.refused: Counter[tuple[str, str, int]] = Counter()
        """Refusals by account, reason and day of the month."""
        counted: Any = Counted(connection)
        self.limits = KeyLimits(LocalStore(), lambda: None, now=lambda: datetime.fromtimestamp(self.now, UTC))
        self.limits.usage = counted
        self.lengths: dict[str, float] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        """What became of each job: its account, and when it came, began and ended."""
        self.numbers = count()
        self.n_free = N_WORKERS

    async def submit(self, key: ApiKey) -> bool:
        """Send a job in, as the endpoint takes it. Returns whether it was taken."""
        id_, owner = f"job {next(self.numbers)}", account_of(key, "")
        try:
            async with self.limits.upload(key, "job"):
                self.limits.check_jobs(key, job_store.n_open(self.connection, owner))
                names = (id_, owner, key.account)
                job_store.add(self.connection, names, REQUEST, has_audio=True, fingerprint=id_)
        except KeyLimitExceeded as error:
            self.refused[key.name, error.code, datetime.fromtimestamp(self.now, UTC).day] += 1
            return False
        self.lengths[id_] = self.rng.choice((20.0, 60.0, 60.0, 300.0))
        self.jobs[id_] = {"account": owner, "created_at": self.now}
        return True

    def begin(self) -> Iterator[tuple[float, Job, str]]:
        """Begin jobs while workers are free: when each attempt ends, its job and its lease."""
        while self.n_free:
            lease = f"lease {next(self.numbers)}"
            job = job_store.claim(self.connection, lease, LEASE_S, 50)
            if job is None:
                return
            self.jobs[job.id].setdefault("started_at", self.now)
            self.n_free -= 1
            # A tenth of real time, as a GPU would need far less.
            yield self.now + self.lengths[job.id] / 10, job, lease

    def end(self, job: Job, lease: str) -> None:
        """End an attempt: with a result, or without an answer, as its gateway has died."""
        self.n_free += 1
        if self.rng.random() < LOST:
            return
        result = JobResult(content=b"text", media_type="text/plain", audio_s=self.lengths[job.id])
        ended = job_store.finish(self.connection, job.id, lease, result, self.count)
        assert ended is None or "ended_at" not in self.jobs[job.id], "a job ends once"
        if ended is not None:
            self.jobs[job.id]["ended_at"] = self.now

    def count(self, connection: Connection, job: Job) -> None:
        day = datetime.fromtimestamp(self.now, UTC).date()
        report = Report(source=job.id, account=job.account, kind="job", audio_s=job.audio_s or 0.0, day=day)
        usage.save(connection, [report])


def keys() -> list[ApiKey]:
    """Five accounts send as many as they may; of the others each fifth has few minutes a day."""
    greedy = [ApiKey(name=f"greedy {number}", id=f"g{number}", jobs=10) for number in range(5)]
    minutes = [3.0 if number % 5 == 0 else None for number in range(45)]
    return greedy + [
        ApiKey(name=f"modest {number}", id=f"m{number}", jobs=10, minutes_per_day=each)
        for number, each in enumerate(minutes)
    ]


@pytest.mark.nightly
async def test_ten_hours_of_fifty_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job is done once and counted once, nobody waits for more than twice a fair share, and quotas hold."""
    database = Database(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))
    with database._opened().begin() as connection:
        service = Service(connection, random.Random(7))
        monkeypatch.setattr(job_store, "now", lambda _: service.now)
        accounts = keys()
        order = count()
        happenings: list[Any] = []
        for key in accounts:
            heappush(happenings, (BEGIN + service.rng.random() * 600, next(order), key, None))
        until = BEGIN + HOURS * 3600
        while happenings:
            service.now, _, happening, lease = heappop(happenings)
            if isinstance(happening, Job):
                service.end(happening, lease)
            elif happening is not None:
                while await service.submit(happening) and happening.name.startswith("greedy"):
                    pass
                again = service.now + service.rng.expovariate(1 / 5400)
                if again < until:
                    heappush(happenings, (again, next(order), happening, None))
            for at, job, taken in service.begin():
                heappush(happenings, (at, next(order), job, taken))
            if not happenings and any("ended_at" not in each for each in service.jobs.values()):
                # What a dead gateway had is due when its lease has ended.
                heappush(happenings, (service.now + LEASE_S, next(order), None, None))
        check(service, accounts)
    await database.close()


def check(service: Service, accounts: list[ApiKey]) -> None:
    jobs = service.jobs
    assert len(jobs) > 400 and all("ended_at" in each for each in jobs.values())
    used = usage.used(service.connection, date.min, date.max)
    for key in accounts:
        mine = [id_ for id_, each in jobs.items() if each["account"] == account_of(key, "")]
        assert mine
        assert sum(each.n for each in used if each.account == key.account) == len(mine)
        counted_s = sum(each.audio_s for each in used if each.account == key.account)
        assert counted_s == pytest.approx(sum(service.lengths[id_] for id_ in mine))
        if key.minutes_per_day is not None:
            # What was open when the minutes were used is done all the same.
            longest_s = key.minutes_per_day * 60 + (key.jobs or 0) * 300.0
            assert all(each.audio_s <= longest_s for each in used if each.account == key.account)
    refusals = {(code, day) for _, code, day in service.refused}
    assert {("quota_exceeded", 1), ("job_limit", 1), ("job_limit", 2)} <= refusals
    assert most_of_share(list(jobs.values())) <= MAX_SHARE
    waits = [each["started_at"] - each["created_at"] for each in jobs.values() if "m" in each["account"]]
    # Not longer than the turns of the five greedy ones and the longest recording of each.
    assert max(waits) < 90
