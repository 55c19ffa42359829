"""Recordings in an object store: what is sent to it and read from it, and the errors that the operator sees."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from uuid import uuid4

import httpx
import obstore
import pytest

from tests.plugins.accounts.jobs.conftest import ServeJobs
from tests.plugins.accounts.jobs.test_jobs_endpoint import ended, submit
from tests.s3_server import BUCKET, S3Server
from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.jobs import s3_spool
from tutti_server.plugins.accounts.jobs.s3_spool import PART_BYTES, S3Spool
from tutti_server.plugins.accounts.jobs.spool import PARTIAL, AllAway, SpoolAway, try_out
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import try_spool

ADDRESS = f"s3://{BUCKET}/tutti/jobs"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr(s3_spool, "RETRIED_S", 0)
    with S3Server().running() as server:
        server.use(monkeypatch)
        yield server


@pytest.fixture
def spool(server: S3Server) -> S3Spool:
    return S3Spool(BUCKET, "tutti/jobs")


def read(spool: S3Spool, id_: str) -> bytes:
    with spool.open(id_) as file:
        return file.read()


@pytest.mark.parametrize("n_bytes", [0, PART_BYTES, PART_BYTES + 1])
def test_a_recording_comes_back_as_it_was(server: S3Server, spool: S3Spool, n_bytes: int) -> None:
    """A large one goes and comes in parts, which leave nothing behind."""
    id_, content = str(uuid4()), bytes(each % 251 for each in range(1000)) * (n_bytes // 1000 + 1)
    spool.put(id_, io.BytesIO(content[:n_bytes]))
    assert read(spool, id_) == content[:n_bytes]
    assert list(server.objects) == [f"tutti/jobs/{id_}"] and not server.uploads
    n_parts = sum("partNumber" in each for each in server.requests)
    assert n_parts == (-(-n_bytes // PART_BYTES) if n_bytes > PART_BYTES else 0)
    spool.delete(id_)
    assert not server.objects
    spool.delete(id_)
    with pytest.raises(FileNotFoundError):
        spool.open(id_)


def test_a_recording_that_cannot_be_read_to_its_end_is_not_kept(server: S3Server, spool: S3Spool) -> None:
    class Broken(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            if self.tell():
                raise OSError("broken")
            return super().read(n)

    with pytest.raises(OSError, match="broken"):
        spool.put(str(uuid4()), Broken(bytes(3 * PART_BYTES)))
    assert not server.objects


def test_old_recordings_are_listed_and_nothing_else_of_the_bucket(server: S3Server, spool: S3Spool) -> None:
    """Not those of other programs, which would be deleted, nor those of other folders."""
    server.page_size = 2
    old, new = [str(uuid4()) for _ in range(5)], str(uuid4())
    for id_ in (*old, new, f"{PARTIAL}1", "holiday.jpg", f"deeper/{uuid4()}"):
        spool.put(id_, io.BytesIO(b"x"))
    S3Spool(BUCKET, "tutti/jobs2").put(str(uuid4()), io.BytesIO(b"x"))
    S3Spool(BUCKET).put(str(uuid4()), io.BytesIO(b"x"))
    for name, stored in server.objects.items():
        if not name.endswith(new):
            stored.changed = datetime.now(UTC) - timedelta(hours=2)
    assert set(spool.older_than(3600.0)) == {*old, f"{PARTIAL}1"}
    assert set(spool.older_than(0.0)) >= {*old}


@pytest.mark.parametrize("status", [404, 503])
def test_a_store_that_fails_is_away(server: S3Server, spool: S3Spool, status: int) -> None:
    """One that answers that there is no such place, too: its recordings are not taken for lost, nor for deleted."""
    id_ = str(uuid4())
    spool.put(id_, io.BytesIO(b"x"))
    server.failing = status
    calls = (lambda: spool.put(id_, io.BytesIO(b"x")), lambda: spool.open(id_), lambda: spool.delete(id_))
    for call in calls:
        with pytest.raises(AllAway if status == 404 else SpoolAway):
            call()
    with pytest.raises(SpoolAway):
        list(spool.older_than(0))
    server.failing = 0
    assert read(spool, id_) == b"x"


@pytest.mark.parametrize("then", [0, 404])
def test_a_store_that_comes_back_while_it_is_asked_has_lost_nothing(
    server: S3Server, spool: S3Spool, monkeypatch: pytest.MonkeyPatch, then: int
) -> None:
    """It said that a recording was missing, and has all of them when it is asked for any; it may go away again."""
    id_ = str(uuid4())
    spool.put(id_, io.BytesIO(b"x"))
    list_any = obstore.list

    def list_after_it_came_back(*arguments: Any, **options: Any) -> Any:
        server.failing = 0
        pages = [*list_any(*arguments, **options)]
        server.failing = then
        return iter(pages)

    monkeypatch.setattr(obstore, "list", list_after_it_came_back)
    for call in (spool.open, spool.delete):
        server.failing = 404
        with pytest.raises(AllAway):
            call(id_)
    server.failing = then = 0
    assert read(spool, id_) == b"x"
    with pytest.raises(FileNotFoundError):
        spool.open(str(uuid4()))


def settings(address: str) -> AccountSettings:
    return AccountSettings(jobs=True, job_spool=address)


def test_a_spool_that_works_is_left_as_it_was(server: S3Server) -> None:
    try_spool(settings(ADDRESS))
    assert not server.objects
    assert {each.partition(" ")[0] for each in server.requests} == {"PUT", "HEAD", "GET", "DELETE"}


@pytest.mark.parametrize(
    ("changes", "address", "expected"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, ADDRESS, f"to write, read, list and delete in {ADDRESS}"),
        ({}, "s3://other/jobs", "to write, read, list and delete in s3://other/jobs"),
        # Only the operator's `http://` allows a connection without encryption.
        ({"AWS_ENDPOINT_URL": "https://127.0.0.1:1"}, ADDRESS, f"to write, read, list and delete in {ADDRESS}"),
        ({"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "perhaps"}, ADDRESS, "variables AWS_"),
    ],
    ids=["wrong key", "other bucket", "no encryption", "variable that cannot be used"],
)
def test_a_store_that_cannot_be_used_stops_the_start(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], address: str, expected: str
) -> None:
    server.use(monkeypatch, **changes)
    with pytest.raises(SettingsError, match=f"job_spool: expected {expected}"):
        try_spool(settings(address))
    assert not server.objects


def test_a_store_that_gives_something_else_is_noticed(server: S3Server) -> None:
    class Forgetful(S3Spool):
        def put(self, id_: str, file: IO[bytes]) -> None:
            super().put(id_, io.BytesIO())

    with pytest.raises(SpoolAway, match="expected what was written, got 0 bytes"):
        try_out(Forgetful(BUCKET))


@pytest.mark.default
async def test_a_job_that_one_gateway_takes_in_is_done_by_another(
    server: S3Server, serve_jobs: ServeJobs, http: httpx.AsyncClient
) -> None:
    """The one that works on it has no folder in common with the first; afterwards the recording is gone."""
    first = await serve_jobs(job_spool=ADDRESS, job_workers=0)
    id_ = (await submit(http, first)).json()["id"]
    assert list(server.objects) == [f"tutti/jobs/{id_}"]
    second = await serve_jobs(job_spool=ADDRESS)
    job = await ended(http, first, id_)
    assert (job["status"], job["error"]) == ("done", None)
    while server.objects:
        await http.get(f"{second.http}/healthz")


async def test_a_recording_that_cannot_be_kept_is_refused(
    server: S3Server, serve_jobs: ServeJobs, http: httpx.AsyncClient
) -> None:
    """The client may try again. The error names nothing of the store."""
    gateway = await serve_jobs(job_spool=ADDRESS, job_workers=0)
    server.failing = 503
    refused = await submit(http, gateway)
    assert refused.status_code == 503 and refused.headers["retry-after"]
    assert (await http.get(f"{gateway.http}/readyz")).text == (
        "ready; without the store for the recordings of jobs: jobs wait, and new ones are refused\n"
    )
    assert refused.json()["error"] == {
        "message": "the store for the recordings of jobs cannot be reached; try again in 5 s",
        "type": "server_error",
        "param": None,
        "code": "jobs_away",
    }
    assert (await http.get(f"{gateway.http}/v1/jobs")).json()["data"] == []
