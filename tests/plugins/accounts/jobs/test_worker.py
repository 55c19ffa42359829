"""Work on jobs: what is tried again, what is taken over, and what is cleaned up."""

import asyncio
import errno
import io
import itertools
import os
import queue
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, make_url

from tutti_server.app.errors import SettingsError
from tutti_server.app.jobs import CallbackMessage, Job, JobDelayed, JobFailed, JobKind, JobResult, Request, Step
from tutti_server.plugins.accounts.database import database as database_module
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.jobs import job_store, jobs, worker
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import MARK, PARTIAL, AllAway, FolderSpool, SpoolAway, recall_nothing
from tutti_server.plugins.accounts.jobs.worker import FETCHERS_PER_WORKER, Fetch, JobWorker
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import keep_data_private, recall_of, try_spool

Work = Callable[[Job, IO[bytes]], Awaitable[JobResult]]
N_REFUSED = 20
RESULT = JobResult(content=b"text", media_type="text/plain", audio_s=1.5)


class LosesAnswers(Database):
    """Does a transaction, and loses its answer, if there is one, when it is told to. `meanwhile` comes between."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def run(self, work: Any, *arguments: Any, **named: Any) -> Any:
        result = await super().run(work, *arguments, **named)
        if (meanwhile := self.meanwhile) is not None and result is not None:
            self.meanwhile = None
            await meanwhile()
            raise DatabaseAway("no answer")
        return result


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[LosesAnswers]:
    """A file alone: what a worker asks of a database is in `test_job_store.py`, for PostgreSQL as well."""
    opened = LosesAnswers(make_url(f"sqlite:///{tmp_path / 'folder' / 'tutti.db'}"))
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
async def quick(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(worker, "POLL_S", 0.01)
    monkeypatch.setattr(worker, "FIRST_WAIT_S", 0.0)
    async with asyncio.timeout(60):
        yield


async def cannot_fetch(url: str, file: IO[bytes]) -> None:
    raise JobDelayed("url: its server cannot be reached")


async def done(job: Job, file: IO[bytes]) -> JobResult:
    assert file.read() == b"audio"
    return RESULT


class Place:
    """Jobs of one database, and the workers of one gateway."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        lease_s: float = 60.0,
        audio_days: float = 0.0,
        *,
        recalls: bool = False,
    ) -> None:
        settings = AccountSettings(job_workers=1, job_lease_s=lease_s, job_attempts=3, job_audio_days=audio_days)
        self.database, self.folder = database, folder
        recall = recall_of(database) if recalls else recall_nothing
        self.jobs = Jobs(database, FolderSpool(folder, recall), settings)
        self.ended: asyncio.Queue[Job] = asyncio.Queue()

    def worker(self, work: Work, fetch: Fetch = cannot_fetch) -> JobWorker:
        kinds = {"k": JobKind(work=work, callback=lambda job, result: CallbackMessage(body=b""))}
        return JobWorker(self.jobs, kinds, fetch, lambda: True, self.ended.put_nowait)

    async def submit(self, url: str = "", owner: str = "o") -> Job:
        file = None if url else io.BytesIO(b"audio")
        job, _ = await self.jobs.submit(owner, owner, Request(kind="k", options={}, url=url), file)
        return job

    async def work(self, work: Work = done, fetch: Fetch = cannot_fetch) -> Job:
        """The first job that ends while there is a worker."""
        async with self.worker(work, fetch).running():
            return await self.ended.get()

    async def until(self, id_: str, holds: Callable[[Job], object]) -> Job:
        """A job, as soon as something holds of it."""
        while not (job := await self.database.run(job_store.by_id, id_)) or not holds(job):
            pass
        return job


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Place:
    return Place(database, tmp_path)


@pytest.fixture
def lease_ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Whether a worker has stopped to renew a lease."""
    has_ended, keep_lease = threading.Event(), JobWorker._keep_lease

    async def noted(self: JobWorker, job: Job, lease: str) -> None:
        await keep_lease(self, job, lease)
        has_ended.set()

    monkeypatch.setattr(JobWorker, "_keep_lease", noted)
    return has_ended


async def test_it_is_tried_so_often_only(place: Place) -> None:
    """The reason of the last attempt is that of the job, which counts as ended."""
    id_ = (await place.submit(url="https://example.org/")).id
    job = await place.work()
    assert job == await place.until(id_, bool)
    assert (job.state, job.n_attempts, job.error_code) == ("failed", 3, "attempts")
    assert job.error == "url: its server cannot be reached"


@pytest.mark.parametrize("error", [JobFailed("code", "why"), ZeroDivisionError()])
async def test_what_will_not_pass_is_not(place: Place, error: Exception) -> None:
    async def work(job: Job, file: IO[bytes]) -> JobResult:
        raise error

    await place.submit()
    job = await place.work(work)
    assert (job.state, job.n_attempts) == ("failed", 1)
    assert job.error_code == ("code" if isinstance(error, JobFailed) else "internal_error")


async def test_a_gateway_that_was_taken_for_dead_changes_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result comes too late: another one has done the job."""
    begun, late = asyncio.Event(), asyncio.Event()

    async def slow(job: Job, file: IO[bytes]) -> JobResult:
        begun.set()
        await late.wait()
        return JobResult(content=b"late", media_type="text/plain", audio_s=9.0)

    async def hang(self: JobWorker, job: Job, lease: str) -> None:
        await asyncio.Event().wait()

    # Neither gateway renews its lease, as if it hung.
    monkeypatch.setattr(JobWorker, "_keep_lease", hang)
    first, second = Place(database, tmp_path, lease_s=0.05), Place(database, tmp_path, lease_s=60.0)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first.worker(slow).running())
        id_ = (await first.submit()).id
        await begun.wait()
        await stack.enter_async_context(second.worker(done).running())
        assert (await second.ended.get()).id == id_
        late.set()
        # The first one goes on to the next job when it is through with that one.
        other = (await first.submit()).id
        assert (await _next(first, second)).id == other
    assert await database.run(job_store.result, id_) == RESULT


class WatchedSpool(FolderSpool):
    """Notes what it has done. `before` comes before each call, with its name and the id; it may wait, or raise."""

    def __init__(self, folder: Path, before: Callable[[str, str], object] = lambda call, id_: None) -> None:
        super().__init__(folder)
        self.before = before
        self.calls: queue.Queue[str] = queue.Queue()

    def put(self, id_: str, file: IO[bytes]) -> None:
        self.before("put", id_)
        super().put(id_, file)
        self.calls.put("put")

    def open(self, id_: str) -> IO[bytes]:
        self.before("open", id_)
        return super().open(id_)

    def delete(self, id_: str) -> None:
        self.before("delete", id_)
        super().delete(id_)
        self.calls.put("delete")

    async def next_calls(self, n: int) -> list[str]:
        return [await asyncio.to_thread(self.calls.get, timeout=20) for _ in range(n)]


class SlowServer:
    """Serves recordings when it is told to."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.may_answer = asyncio.Event()

    async def fetch(self, url: str, file: IO[bytes]) -> None:
        self.asked.put_nowait(url)
        if "slow" in url:
            await self.may_answer.wait()
        file.write(b"audio")


async def test_a_slow_address_takes_no_place_of_decoding(place: Place, tmp_path: Path) -> None:
    """A recording that is fetched is kept in the spool until its job has ended, and the attempt counts once."""
    server = SlowServer()
    place.jobs.spool = spool = WatchedSpool(tmp_path / "spool")
    slow = await place.submit("https://slow/")
    async with place.worker(done, server.fetch).running():
        await server.asked.get()
        sent_in = await place.submit()
        assert (await place.ended.get()).id == sent_in.id
        calls = await spool.next_calls(2)
        server.may_answer.set()
        ended = await place.ended.get()
        calls += await spool.next_calls(2)
    assert (ended.id, ended.state, ended.n_attempts) == (slow.id, "done", 1)
    assert calls == ["put", "delete", "put", "delete"]


async def test_an_owner_with_slow_addresses_keeps_nobody_else_waiting(place: Place) -> None:
    server = SlowServer()
    for number in range(FETCHERS_PER_WORKER + 1):
        await place.submit(f"https://slow/{number}")
    async with place.worker(done, server.fetch).running():
        assert await server.asked.get() == "https://slow/0"
        other = await place.submit("https://quick/", "other")
        assert await server.asked.get() == "https://quick/"
        assert (await place.ended.get()).id == other.id
        assert server.asked.empty()


async def test_a_recording_that_comes_after_the_end_of_its_job_is_not_kept(place: Place, tmp_path: Path) -> None:
    """The job was cancelled while its gateway could not learn of it."""
    server = SlowServer()
    place.jobs.spool = spool = WatchedSpool(tmp_path / "spool")
    job = await place.submit("https://slow/")
    async with place.worker(done, server.fetch).running():
        await server.asked.get()
        await place.jobs.cancel(job.id, "o")
        server.may_answer.set()
        calls = await spool.next_calls(3)
    assert calls == ["delete", "put", "delete"]
    assert place.ended.empty()


async def test_a_job_that_ends_while_its_recording_is_kept_leaves_none(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease_ended: threading.Event
) -> None:
    """The recording is there after the loss of the lease, and is deleted all the same."""
    is_through, do = asyncio.Event(), JobWorker._do

    async def done_with(self: JobWorker, *arguments: Any) -> None:
        await do(self, *arguments)
        is_through.set()

    def wait(call: str, id_: str) -> None:
        if call == "put":
            spool.calls.put("begun")
            assert lease_ended.wait(20)

    monkeypatch.setattr(JobWorker, "_do", done_with)
    place, server = Place(database, tmp_path, lease_s=0.5), SlowServer()
    place.jobs.spool = spool = WatchedSpool(tmp_path / "spool", wait)
    job = await place.submit("https://quick/")
    async with place.worker(done, server.fetch).running():
        assert await spool.next_calls(1) == ["begun"]
        await place.jobs.cancel(job.id, "o")
        await is_through.wait()
    calls = await spool.next_calls(3)
    assert calls == ["delete", "put", "delete"]


async def nothing() -> None:
    pass


@pytest.mark.parametrize("address", ["", "https://quick/"])
async def test_a_job_whose_claim_has_had_no_answer_does_not_stand_still(
    database: LosesAnswers, tmp_path: Path, address: str
) -> None:
    """Neither until the lease ends, nor does it lose an attempt."""
    place = Place(database, tmp_path / "spool", lease_s=3600.0)
    await place.submit(address)
    database.meanwhile = nothing
    async with asyncio.timeout(20):
        job = await place.work(done, SlowServer().fetch)
    assert (job.state, job.n_attempts) == ("done", 1)


async def test_a_job_that_was_ended_without_an_answer_counts_as_ended(database: LosesAnswers, tmp_path: Path) -> None:
    """Once: with the result that is there, and as this gateway's."""
    place = Place(database, tmp_path / "spool")
    place.jobs.spool = spool = WatchedSpool(tmp_path / "spool")

    async def work(job: Job, file: IO[bytes]) -> JobResult:
        database.meanwhile = nothing
        return await done(job, file)

    async with asyncio.timeout(20), place.worker(work).running():
        id_ = (await place.submit()).id
        job = await place.ended.get()
        # Its recording is deleted after that.
        assert await spool.next_calls(2) == ["put", "delete"]
    assert (job.id, job.state, job.audio_s) == (id_, "done", 1.5)
    assert place.ended.empty()


async def test_jobs_of_a_newer_release_are_left_to_it(place: Place) -> None:
    """They lose no attempt, and keep no other job waiting."""
    newer = Request(kind="newer", options={})
    first, _ = await place.jobs.submit("o", "o", newer, io.BytesIO(b"audio"))
    await place.submit()
    assert (await place.work()).request.kind == "k"
    left = await place.until(first.id, bool)
    assert (left.state, left.n_attempts, left.error) == ("queued", 0, None)


async def test_a_claim_that_comes_too_late_is_undone(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what undoes it has come before."""
    claim, goes_on, claims = job_store.claim, threading.Event(), queue.Queue[Step]()

    def slow(connection: Connection, lease: str, lease_s: float, n: int, step: Step, *others: Any) -> Job | None:
        job = claim(connection, lease, lease_s, n, step, *others)
        claims.put(step)
        assert goes_on.wait(20)
        return job

    place = Place(database, tmp_path, lease_s=3600.0)
    await place.submit()
    monkeypatch.setattr(database_module, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(job_store, "claim", slow)
    claimer = place.worker(done)
    first = asyncio.create_task(claimer._claim("decode"))
    assert await asyncio.to_thread(claims.get, timeout=20) == "decode"
    done_, _ = await asyncio.wait({first}, timeout=0.5)
    assert not done_
    goes_on.set()
    assert await first is None
    monkeypatch.setattr(database_module, "ANSWER_TIMEOUT_S", 20.0)
    async with asyncio.timeout(20):
        while (claimed := await claimer._claim("decode")) is None:
            pass
    assert claimed[0].n_attempts == 1


@pytest.mark.parametrize("has_ended_meanwhile", [False, True])
async def test_a_recording_that_is_noted_without_an_answer_is_kept(
    database: LosesAnswers, tmp_path: Path, has_ended_meanwhile: bool
) -> None:
    """For as long as those of jobs that have ended, although its lease is not found again."""
    place = Place(database, tmp_path / "spool", audio_days=1.0)
    job = await place.submit("https://quick/")
    assert await database.run(job_store.claim, "a", 60.0, 3, "fetch")
    place.jobs.spool.put(job.id, io.BytesIO(b"audio"))

    async def decode() -> None:
        if has_ended_meanwhile:
            assert await database.run(job_store.claim, "b", 60.0, 3)
            await database.run(job_store.finish, job.id, "b", RESULT)

    database.meanwhile = decode
    await place.worker(done)._note_fetched(job, "a")
    assert names(tmp_path / "spool") == {job.id}


async def test_what_a_gateway_that_died_has_fetched_goes_with_its_job(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    place = Place(database, folder)
    jobs = [await place.submit("https://slow/") for _ in range(2)]
    for job in jobs:
        place.jobs.spool.put(job.id, io.BytesIO(b"audio"))
    await place.jobs.cancel(jobs[0].id, "o")
    assert names(folder) == {jobs[1].id}
    await place.jobs.remove(jobs[1].id, "o")
    assert names(folder) == set()


async def test_a_spool_that_is_away_delays_what_is_fetched(place: Place, tmp_path: Path) -> None:
    place.jobs.spool = spool = AwayAtTimes(tmp_path)
    spool.is_away = True
    await place.submit("https://quick/")
    server = SlowServer()
    async with place.worker(done, server.fetch).running():
        await spool.has_refused(N_REFUSED)
        assert server.asked.qsize() == 1, "it is not fetched again and again"
        spool.is_away = False
        ended = await place.ended.get()
    assert (ended.state, ended.n_attempts, server.asked.qsize()) == ("done", 1, 2)


async def test_a_gateway_whose_disk_has_no_room_for_a_recording_delays_its_job(place: Place) -> None:
    """It costs no attempt, as the recording may be as good as any. The waits grow, as its server is asked each time."""
    asked_s: list[float] = []

    async def fetch(url: str, file: IO[bytes]) -> None:
        asked_s.append(time.monotonic())
        if len(asked_s) < 4:
            raise OSError(errno.ENOSPC, "no room")
        file.write(b"audio")

    await place.submit("https://quick/")
    job = await place.work(done, fetch)
    assert (job.state, job.n_attempts) == ("done", 1)
    for last_s, next_s in itertools.pairwise(asked_s[1:]):
        assert next_s - last_s >= (last_s - asked_s[0]) * 0.9


async def test_a_gateway_without_a_file_left_for_a_recording_delays_its_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, make = iter([OSError(errno.EMFILE, "too many")]), tempfile.TemporaryFile

    def make_or_fail() -> IO[bytes]:
        for error in errors:
            raise error
        return make()

    monkeypatch.setattr(tempfile, "TemporaryFile", make_or_fail)
    await place.submit("https://quick/")
    job = await place.work(done, SlowServer().fetch)
    assert (job.state, job.n_attempts) == ("done", 1)


async def test_a_store_that_comes_and_goes_costs_no_attempt(place: Place, tmp_path: Path) -> None:
    """It is away when the recording is read, and there again when the reason is looked for."""
    id_ = (await place.submit()).id
    errors = iter([AllAway("no such bucket")] * 5)

    def come_and_go(call: str, id_: str) -> None:
        if call == "open" and not id_.startswith(PARTIAL):
            for error in errors:
                raise error

    place.jobs.spool = WatchedSpool(tmp_path, come_and_go)
    job = await place.work()
    assert (job.id, job.state, job.n_attempts) == (id_, "done", 1)


@pytest.mark.parametrize(("is_empty", "recalls"), [(True, False), (False, False), (True, True)])
async def test_jobs_wait_for_a_folder_whose_disk_is_away(
    database: Database, tmp_path: Path, is_empty: bool, recalls: bool
) -> None:
    """An empty folder is in its place, or none; nothing is written there, nor is anything noted as deleted.

    A gateway that starts without the disk knows of the folder by the database.
    """
    folder, elsewhere = tmp_path / "spool", tmp_path / "disk"
    await Place(database, folder, recalls=recalls).submit()
    # Another gateway than the one that has made the folder.
    place = Place(database, folder)
    folder.rename(elsewhere)
    if is_empty:
        folder.mkdir()
    if recalls:
        place = Place(database, folder, recalls=True)
    async with place.worker(done).running():
        while not place.jobs.spool_is_away:
            await database.run(lambda each: None)
        with pytest.raises(SpoolAway, match=f"expected the file {MARK} in {folder}, got none: mount its disk"):
            await place.submit()
        with pytest.raises(SpoolAway):
            await place.jobs.remove((await place.submit("https://quick/")).id, "o")
        assert not await place.jobs.spool_works() and (not is_empty or names(folder) == set())
        if is_empty:
            folder.rmdir()
        elsewhere.rename(folder)
        job = await place.ended.get()
    assert (job.state, job.n_attempts) == ("done", 1)
    assert await place.jobs.spool_works()


async def test_nothing_is_deleted_on_another_disk(database: Database, tmp_path: Path) -> None:
    """Its recordings belong to no job that is known here, and may be those of another server."""
    await Place(database, tmp_path / "spool", recalls=True).submit()
    other, id_ = tmp_path / "other", str(uuid4())
    FolderSpool(other).put(id_, io.BytesIO(b"audio"))
    os.utime(other / id_, (0, 0))
    jobs = Place(database, other, recalls=True).jobs
    for work in (Place(database, other, recalls=True).submit, jobs.sweep):
        with pytest.raises(SpoolAway, match=r"not .*, the mark of the recordings: mount its disk"):
            await work()
    await jobs.drop_audio(id_)
    assert names(other) == {id_}


@pytest.mark.parametrize("was_marked", [True, False])
async def test_an_operator_goes_on_with_an_empty_folder(database: Database, tmp_path: Path, was_marked: bool) -> None:
    """By an empty mark, as folders of older releases have one as well."""
    folder = tmp_path / "new"
    if was_marked:
        await Place(database, tmp_path / "spool", recalls=True).submit()
    folder.mkdir()
    (folder / MARK).touch()
    await Place(database, folder, recalls=True).submit()
    mark = (folder / MARK).read_text()
    assert mark == await database.run(job_store.folder_mark, None)
    assert len(mark) == 16


async def test_a_folder_is_not_tried_while_the_database_is_away(tmp_path: Path) -> None:
    """It may be another one than that of the recordings. With it, a start without the disk ends."""
    url = f"sqlite:///{tmp_path / 'tutti.db'}"
    settings = AccountSettings(
        jobs=True, database_url=url, data_folder=str(tmp_path), job_spool=str(tmp_path / "spool")
    )
    await asyncio.to_thread(try_spool, settings)
    (tmp_path / "spool").rename(tmp_path / "disk")
    with pytest.raises(SettingsError, match="mount its disk"):
        await asyncio.to_thread(try_spool, settings)
    (tmp_path / "tutti.db").write_bytes(b"damaged")
    await asyncio.to_thread(try_spool, settings)
    assert not (tmp_path / "spool").exists()


async def test_a_recording_that_hangs_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, although there are places for others. The server can end: Python would wait for a thread for ever."""
    goes_on, threads = threading.Event(), queue.SimpleQueue[threading.Thread]()

    def hang(call: str, id_: str) -> None:
        threads.put(threading.current_thread())
        assert goes_on.wait(30)

    place.jobs.spool = WatchedSpool(tmp_path, hang)
    monkeypatch.setattr(jobs, "SPOOL_ANSWER_S", 0.05)
    monkeypatch.setattr(jobs, "SPOOL_CLOSE_S", 0.05)
    with pytest.raises(SpoolAway, match=r"no answer within 0\.05"):
        await place.submit()
    assert place.jobs.spool_is_away
    hanging = await asyncio.to_thread(threads.get)
    await place.jobs.close()
    assert hanging.is_alive() and hanging.daemon
    goes_on.set()
    await asyncio.to_thread(hanging.join)


async def test_a_recording_that_is_opened_too_late_is_closed(place: Place, tmp_path: Path) -> None:
    """The worker ended before the store answered."""
    goes_on, has_begun, is_closed = threading.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Recording(io.BytesIO):
        def close(self) -> None:
            super().close()
            is_closed.set()

    class SlowSpool(FolderSpool):
        def open(self, id_: str) -> IO[bytes]:
            loop.call_soon_threadsafe(has_begun.set)
            assert goes_on.wait(30)
            recordings.append(Recording())
            return recordings[0]

    recordings: list[Recording] = []
    await place.submit()
    place.jobs.spool = SlowSpool(tmp_path)
    async with place.worker(done).running():
        await has_begun.wait()
    goes_on.set()
    await is_closed.wait()


async def _next(*places: Place) -> Job:
    tasks = [asyncio.ensure_future(place.ended.get()) for place in places]
    ready, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return ready.pop().result()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {MARK}


async def test_recordings_are_deleted_in_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of jobs that have ended, and those that belong to none; a job that waits keeps its own.

    One that a stopped server has begun goes first. A file of somebody else stays, whoever's folder it is.
    """
    spool = tmp_path / "jobs"
    place = Place(database, spool, audio_days=1.0)
    kept = (await place.submit()).id
    await place.work()
    waiting = (await place.submit()).id
    orphan = str(uuid4())
    place.jobs.spool.put(orphan, io.BytesIO(b"x"))
    (spool / ".partial-1").touch()
    (spool / "holiday.jpg").touch()
    await place.jobs.sweep()
    assert names(spool) == {kept, waiting, orphan, ".partial-1", "holiday.jpg"}
    an_hour_ago = time.time() - 3600.0
    for name in (orphan, ".partial-1"):
        os.utime(spool / name, (an_hour_ago, an_hour_ago))
    await place.jobs.sweep()
    assert names(spool) == {kept, waiting, orphan, "holiday.jpg"}
    for name in (orphan, waiting, "holiday.jpg"):
        os.utime(spool / name, (0, 0))
    await place.jobs.sweep()
    assert names(spool) == {kept, waiting, "holiday.jpg"}
    monkeypatch.setattr(jobs, "MAX_FORGOTTEN", 1)
    await Place(database, spool).jobs.sweep()
    assert names(spool) == {waiting, "holiday.jpg"}


def test_only_the_user_of_the_server_may_read_recordings(tmp_path: Path) -> None:
    """Nor is the data folder open to others, which the first recording may make."""
    folder = tmp_path / "state" / "jobs"
    FolderSpool(folder).put("recording", io.BytesIO(b"audio"))
    modes = [f"{path.stat().st_mode & 0o777:o}" for path in (folder.parent, folder, folder / "recording")]
    assert modes == ["700", "700", "600"]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_folder_of_an_older_release_is_closed_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_named: bool
) -> None:
    """One that the operator has named may be for other things, and is named in the log. Links lead elsewhere."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    state = tmp_path / "tutti"
    settings = AccountSettings(jobs=True, data_folder=str(state) if is_named else "")
    assert settings.data_path == state
    (state / "jobs").mkdir(parents=True)
    recording, other, target = state / "jobs" / str(uuid4()), state / "jobs" / "holiday.jpg", tmp_path / "target"
    for each in (recording, other, target):
        each.write_bytes(b"x")
    link = state / "jobs" / str(uuid4())
    link.symlink_to(target)
    for path, mode in ((state, 0o755), (state / "jobs", 0o755), (recording, 0o644), (other, 0o644), (target, 0o644)):
        path.chmod(mode)
    keep_data_private(settings)
    modes = [f"{path.stat().st_mode & 0o777:o}" for path in (state, state / "jobs", recording, other, target)]
    assert modes == ["755" if is_named else "700", "700", "600", "644", "644"]
    warning = f"every user of this machine may look into {state}: chmod o-rwx {state}"
    assert caplog.messages == ([warning] if is_named else [])


class AwayAtTimes(WatchedSpool):
    """A store that does not answer while `is_away`."""

    is_away = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._refuse)
        self.refusals = queue.SimpleQueue[str]()

    def _refuse(self, call: str, id_: str) -> None:
        if self.is_away:
            self.refusals.put(call)
            raise SpoolAway("its host is 10.0.0.1")

    async def has_refused(self, n: int) -> None:
        """Wait until it has refused so often."""
        for _ in range(n):
            await asyncio.to_thread(self.refusals.get, timeout=30)


async def test_a_store_that_is_away_delays_its_jobs(place: Place, tmp_path: Path) -> None:
    """However long it is away: no attempt counts. It tells clients nothing of itself."""
    place.jobs.spool = store = AwayAtTimes(tmp_path)
    job = await place.submit()
    store.is_away = True
    async with place.worker(done).running():
        found = await place.until(job.id, lambda found: found.error)
        assert found.error == "the store of recordings cannot be read at present"
        await store.has_refused(N_REFUSED)
        store.is_away = False
        ended = await place.ended.get()
        assert (ended.state, ended.n_attempts) == ("done", 1)


async def test_a_recording_that_cannot_be_read_fails_in_a_store_that_works(place: Place, tmp_path: Path) -> None:
    """Its attempts count, so that it is not tried for ever."""
    job = await place.submit()
    (tmp_path / job.id).unlink()
    (tmp_path / job.id).mkdir()
    found = await place.work()
    assert (found.state, found.n_attempts, found.error_code) == ("failed", 3, "attempts")


async def test_a_store_that_hangs_keeps_nothing_else_waiting(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has threads of its own, and who finds all of them busy is refused in time."""
    monkeypatch.setattr(jobs, "SPOOL_WAIT_S", 0.01)
    goes_on, has_begun = threading.Event(), threading.Semaphore(0)

    def hang(call: str, id_: str) -> None:
        has_begun.release()
        goes_on.wait(30)

    place.jobs.spool = WatchedSpool(tmp_path, hang)
    hanging = [asyncio.create_task(place.submit()) for _ in range(jobs.N_SPOOL_THREADS)]
    for _ in hanging:
        await asyncio.to_thread(has_begun.acquire)
    with pytest.raises(SpoolAway, match="16 recordings have been under way"):
        await place.submit()
    assert place.jobs.spool_is_away
    # The loop's own threads, which decode and look names up, are free.
    await asyncio.gather(*(asyncio.to_thread(time.monotonic) for _ in range(100)))
    goes_on.set()
    assert len({job.id for job in await asyncio.gather(*hanging)}) == jobs.N_SPOOL_THREADS
    assert not place.jobs.spool_is_away


async def test_a_lease_that_ends_with_its_job_stops_nothing(
    database: Database, tmp_path: Path, lease_ended: threading.Event
) -> None:
    """The recording is deleted although the next renewal, which comes meanwhile, finds no lease."""

    def wait(call: str, id_: str) -> None:
        assert call != "delete" or lease_ended.wait(30)

    place = Place(database, tmp_path, lease_s=0.5)
    place.jobs.spool = WatchedSpool(tmp_path, wait)
    async with place.worker(done).running():
        id_ = (await place.submit()).id
        job = await place.until(id_, lambda job: not job.has_audio)
    assert job.state == "done"


async def test_a_recording_that_cannot_be_deleted_now_is_deleted_later(database: Database, tmp_path: Path) -> None:
    """The job is done, cancelled or refused all the same; one that is to be forgotten is there until it can be."""
    spool = tmp_path / "jobs"
    place = Place(database, spool)
    place.jobs.spool = store = AwayAtTimes(spool)

    async def work(job: Job, file: IO[bytes]) -> JobResult:
        store.is_away = True
        return await done(job, file)

    cancelled, removed = await place.submit(), await place.submit()
    store.is_away = True
    found = await place.jobs.cancel(cancelled.id, "o")
    assert found and found.state == "cancelled"
    with pytest.raises(SpoolAway):
        await place.jobs.remove(removed.id, "o")
    store.is_away = False
    store.refusals = queue.SimpleQueue()
    finished = await place.submit()
    async with place.worker(work).running():
        assert (await place.ended.get()).id == finished.id
        await store.has_refused(1)
    assert names(spool) == {cancelled.id, removed.id, finished.id}
    store.is_away = False
    assert await place.jobs.remove(removed.id, "o")
    assert await database.run(job_store.by_id, removed.id) is None
    await place.jobs.sweep()
    assert names(spool) == set()
    with pytest.raises(ZeroDivisionError):
        await place.jobs.submit(
            "o", "o", Request(kind="k", options={}), io.BytesIO(b"x"), check=lambda n: _refuse(store)
        )
    assert len(names(spool)) == 1


async def test_old_jobs_are_forgotten_while_the_store_is_away(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their text is not kept for longer because the recording of another job cannot be deleted."""
    monkeypatch.setattr(jobs, "DAY_S", 0.0)
    place = Place(database, tmp_path / "jobs")
    place.jobs.spool = store = AwayAtTimes(tmp_path / "jobs")
    old, other = await place.submit(), await place.submit()
    await place.jobs.cancel(old.id, "o")
    store.is_away = True
    await place.jobs.cancel(other.id, "o")
    with pytest.raises(SpoolAway):
        await place.jobs.sweep()
    assert await database.run(job_store.known_among, [old.id, other.id]) == {other.id}


async def test_a_recording_that_cannot_be_deleted_keeps_no_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of other jobs nor those of none."""
    monkeypatch.setattr(jobs, "ORPHAN_S", 0.0)
    monkeypatch.setattr(jobs, "MAX_FORGOTTEN", 2)
    spool = tmp_path / "jobs"
    place = Place(database, spool, audio_days=1.0)
    ids = sorted([(await place.submit()).id for _ in range(5)])
    for id_ in ids:
        await place.jobs.cancel(id_, "o")
    place.jobs.spool.put(str(uuid4()), io.BytesIO(b"x"))
    (spool / ids[0]).unlink()
    (spool / ids[0]).mkdir()
    await Place(database, spool).jobs.sweep()
    assert names(spool) == {ids[0]}


def _refuse(store: AwayAtTimes) -> None:
    store.is_away = True
    raise ZeroDivisionError
