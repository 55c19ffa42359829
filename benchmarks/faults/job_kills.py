"""Kills gateways while they do jobs, and counts that each job is done once and none is lost.

    python -m benchmarks.faults jobs --jobs 1000 --kills 50 --gateways 3
    python -m benchmarks.faults jobs --database postgresql://tutti@/name?host=/folder
    python -m benchmarks.faults jobs --spool s3

The engine is a fake that takes a random time: what is measured is what becomes of jobs. Clients send a job again, with
the same idempotency key, when their gateway has died. The command exits with 1 when a job is missing, is there twice,
has failed or has the text of another one, when audio was not counted once, when the end of a job was not reported, or
when a recording of an ended job is left after the cleaning that gateways do from time to time. It does so, too, when
the kills have interrupted hardly any work, and show nothing.
"""

import asyncio
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np
from sqlalchemy import URL

from benchmarks import machine, report
from benchmarks.child_processes import start_child
from benchmarks.options import benchmark_command, result_options
from benchmarks.report import Table
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.fakes import said, silence, speech
from tests.s3_server import BUCKET, S3Server
from tutti_server.app.publish.webhook import SIGNATURE_HEADER
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.plugins.accounts.database.address import database_address
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.s3_spool import S3Spool
from tutti_server.plugins.accounts.jobs.spool import FolderSpool, Spool
from tutti_server.plugins.accounts.keys import key_records, usage
from tutti_server.plugins.accounts.settings import AccountSettings

N_CLIENTS = 8
RETRY_S = 0.1
START_TIMEOUT_S = 120.0
STALLED_S = 180.0
"""The run has failed when no job has ended for this time, in seconds."""
MAX_PAUSE_S = 1.0
"""The longest time between two kills, in seconds, besides the start of a new gateway."""
SHARE_AT_WORK = 0.5
"""The share of kills that wait until a job is worked on. Where the machine is busy, others hit uploads or nothing."""
MAX_WAIT_S = 10.0
"""How long such a kill waits, in seconds."""
KILLS_PER_INTERRUPTED = 10
"""A run with fewer jobs begun again than one for each of this many kills shows nothing, and fails."""
WORDS = 12


@dataclass(slots=True, kw_only=True)
class Gateways:
    """Gateways in processes, each of which is started anew after its death."""

    command: list[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)
    """Those of the gateways that serve, by their numbers."""
    _processes: dict[int, Any] = field(default_factory=dict)

    async def start(self, number: int) -> None:
        """Start a gateway, and return when it serves."""
        path = self.folder / f"gateway-{number}-{time.monotonic_ns()}"
        with path.open("w") as output:
            process = start_child(self.command, output, self.environment)
        self._processes[number] = process
        async with asyncio.timeout(START_TIMEOUT_S):
            while not (text := path.read_text()).startswith("127.0.0.1:") or "\n" not in text:
                if process.poll() is not None:
                    raise RuntimeError(f"a gateway did not start: {text}")
                await asyncio.sleep(RETRY_S)
        self.addresses[number] = text.split()[0]

    def kill(self, number: int) -> None:
        self.addresses.pop(number, None)
        self._processes[number].kill()
        self._processes[number].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()


@dataclass(slots=True)
class Receiver:
    """Counts the reports of jobs that have ended, by job."""

    reports: Counter[str] = field(default_factory=Counter)
    bodies: dict[str, set[str]] = field(default_factory=dict)
    n_unsigned: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve while the context is open. Yields the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            id_ = headers["idempotency-key"].removeprefix("evt_")
            self.reports[id_] += 1
            self.bodies.setdefault(id_, set()).add(hashlib.sha256(body).hexdigest())
            self.n_unsigned += SIGNATURE_HEADER not in headers
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            # The gateway was killed while it sent, and another one sends again.
            pass
        finally:
            writer.close()


@dataclass(slots=True, kw_only=True)
class Campaign:
    n_jobs: int
    n_kills: int
    gateways: Gateways
    key: str
    callback: str
    rng: random.Random
    kills: int = 0
    has_killed: asyncio.Event = field(default_factory=asyncio.Event)
    ids: dict[int, set[str]] = field(default_factory=dict)
    """The ids that were answered for each job that was sent in."""
    n_retries: int = 0

    async def run(self) -> None:
        """Send all jobs in while gateways die; returns when all were sent and all kills have been."""
        numbers = iter(range(self.n_jobs))
        async with self.client() as http, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_killing(http))
            for _ in range(N_CLIENTS):
                tasks.create_task(self._send(http, numbers))

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=30)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def address(self) -> str | None:
        """A gateway that serves; `None` if there is none."""
        addresses = sorted(self.gateways.addresses.values())
        return self.rng.choice(addresses) if addresses else None

    async def _keep_killing(self, http: httpx.AsyncClient) -> None:
        while self.kills < self.n_kills:
            await asyncio.sleep(self.rng.random() * MAX_PAUSE_S)
            if self.rng.random() < SHARE_AT_WORK:
                await self._until_at_work(http)
            number = self.rng.choice(sorted(self.gateways.addresses))
            self.gateways.kill(number)
            await self.gateways.start(number)
            # More jobs come now, and not during the start: the next kill must find them unfinished.
            self.kills += 1
            self.has_killed.set()
            self.has_killed = asyncio.Event()

    async def _until_at_work(self, http: httpx.AsyncClient) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_S):
                while True:
                    answer = await http.get(f"http://{self.address()}/v1/jobs?status=running", headers=self.headers)
                    if answer.json().get("data"):
                        return
                    await asyncio.sleep(RETRY_S)

    async def _send(self, http: httpx.AsyncClient, numbers: Any) -> None:
        for number in numbers:
            # So that there is work until the last kill.
            while self.kills < self.n_kills and number > (self.kills + 1) * self.n_jobs / (self.n_kills + 1):
                await self.has_killed.wait()
            while not await self._sent(http, number):
                self.n_retries += 1
                await asyncio.sleep(RETRY_S)

    async def _sent(self, http: httpx.AsyncClient, number: int) -> bool:
        address = self.address()
        if address is None:
            return False
        try:
            answer = await http.post(
                f"http://{address}/v1/jobs",
                files={"file": wav(recording(number))},
                data={"callback": self.callback},
                headers={"Idempotency-Key": f"job {number}", **self.headers},
            )
        except httpx.HTTPError:
            return False
        if answer.status_code in (429, 503):
            return False
        answer.raise_for_status()
        self.ids.setdefault(number, set()).add(answer.json()["id"])
        return True


def words(number: int) -> list[int]:
    """The words of a recording: others for each, as far as there are enough."""
    return [1 + number % WORDS, 1 + number // WORDS % WORDS, 1 + number // WORDS**2 % WORDS]


def recording(number: int) -> np.ndarray:
    return np.concatenate((silence(0.3), speech(words(number)), silence(0.3)))


@dataclass(frozen=True, slots=True)
class Storage:
    spool: Spool
    address: str
    """The setting of the gateways; empty for the folder that they take by themselves."""
    environment: Mapping[str, str]


@contextmanager
def storage(name: str, folder: Path) -> Iterator[Storage]:
    """What keeps the recordings while the context is open: a folder, or a stand-in of S3 in this process."""
    if name == "folder":
        yield Storage(FolderSpool(folder / "state" / "jobs"), "", {})
        return
    with S3Server().running() as server:
        os.environ |= server.environment()
        yield Storage(S3Spool(BUCKET, "jobs"), f"s3://{BUCKET}/jobs", server.environment())


async def campaign(
    n_jobs: int, n_kills: int, n_gateways: int, url: URL, seed: int, folder: Path, stored: Storage
) -> dict[str, Any]:
    database, receiver = Database(url), Receiver()
    key, _ = await database.run(key_records.create, ApiKey(name=f"kills-{seed}"))
    address = url.render_as_string(hide_password=False)
    started = time.monotonic()
    async with receiver.running() as callback:
        arguments = [address, str(folder / "state"), "127.0.0.1", stored.address]
        command = [sys.executable, "-m", "tests.plugins.accounts.jobs.gateway_process", *arguments]
        gateways = Gateways(command=command, folder=folder, environment=stored.environment)
        run = Campaign(
            n_jobs=n_jobs, n_kills=n_kills, gateways=gateways, key=key, callback=callback, rng=random.Random(seed)
        )
        try:
            await asyncio.gather(*(gateways.start(number) for number in range(n_gateways)))
            await run.run()
            jobs = await _all_ended(run, receiver)
            wrong = await _wrong_texts(run, jobs)
        finally:
            gateways.stop()
    cleaning = await _cleaned(database, stored.spool)
    entries = await database.run(usage.used, date.min, date.max)
    await database.close()
    return {
        "jobs": n_jobs,
        "kills": run.kills,
        "gateways": n_gateways,
        "database": url.get_backend_name(),
        "spool": "s3" if stored.address else "folder",
        "sent_again": run.n_retries,
        "listed": len(jobs),
        "done": sum(job["status"] == "done" for job in jobs.values()),
        "several_attempts": sum(job["attempts"] > 1 for job in jobs.values()),
        "doubled": sum(len(ids) > 1 for ids in run.ids.values()),
        "wrong_texts": wrong,
        "counted": sum(each.n for each in entries),
        "counted_s": round(sum(each.audio_s for each in entries), 3),
        "audio_s": round(sum(len(recording(number)) for number in range(n_jobs)) / SAMPLE_RATE, 3),
        "reported": len(receiver.reports),
        "reports": receiver.reports.total(),
        "reports_that_differ": sum(len(bodies) > 1 for bodies in receiver.bodies.values()),
        "unsigned": receiver.n_unsigned,
        **cleaning,
        "seconds": round(time.monotonic() - started, 1),
    }


async def _cleaned(database: Database, spool: Spool) -> dict[str, int]:
    """Clean up as gateways do from time to time, and count the recordings that are there before and after.

    Those of no job are younger than the time after which they are deleted.
    """

    async def left() -> tuple[int, int]:
        names = await asyncio.to_thread(lambda: list(spool.older_than(0.0)))
        return len(names), len(await database.run(job_store.known_among, names))

    n_before, _ = await left()
    await Jobs(database, spool, AccountSettings(job_result_days=1.0)).sweep()
    n_after, n_of_jobs = await left()
    return {"recordings_left": n_before, "without_a_job": n_after - n_of_jobs, "left_after_cleaning": n_of_jobs}


async def _all_ended(run: Campaign, receiver: Receiver) -> dict[str, dict[str, Any]]:
    """All jobs of the key, once each has ended and was reported."""
    n_before, at = -1, time.monotonic()
    async with run.client() as http:
        while True:
            jobs = await _listed(run, http)
            ended = [job for job in jobs.values() if job["status"] not in ("queued", "running")]
            if len(ended) == len(jobs) and len(receiver.reports) >= len(jobs):
                return jobs
            if len(ended) + len(receiver.reports) > n_before:
                n_before, at = len(ended) + len(receiver.reports), time.monotonic()
            if time.monotonic() - at > STALLED_S:
                return jobs
            await asyncio.sleep(RETRY_S)


async def _listed(run: Campaign, http: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = {}
    after, has_more = "", True
    while has_more:
        address = f"http://{run.address()}/v1/jobs?limit=100{after}"
        page = (await http.get(address, headers=run.headers)).raise_for_status().json()
        jobs |= {job["id"]: job for job in page["data"]}
        has_more = page["has_more"]
        after = f"&after={page['data'][-1]['id']}" if has_more else ""
    return jobs


def _numbered(run: Campaign, jobs: dict[str, dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((number, jobs[id_]) for number, ids in run.ids.items() for id_ in ids & jobs.keys())


async def _wrong_texts(run: Campaign, jobs: dict[str, dict[str, Any]]) -> int:
    n_wrong = 0
    async with run.client() as http:
        for number, job in _numbered(run, jobs):
            address = f"http://{run.address()}/v1/jobs/{job['id']}/result"
            result = await http.get(address, headers=run.headers)
            n_wrong += result.status_code != 200 or result.json()["text"] != said(words(number))
    return n_wrong


def complain(figures: dict[str, Any]) -> list[str]:
    n = figures["jobs"]
    expected = {"listed": n, "done": n, "counted": n, "reported": n, "doubled": 0, "wrong_texts": 0, "unsigned": 0}
    expected |= {"reports_that_differ": 0, "left_after_cleaning": 0}
    found = [
        f"{name}: expected {value}, got {figures[name]}" for name, value in expected.items() if figures[name] != value
    ]
    n_interrupted = figures["kills"] // KILLS_PER_INTERRUPTED
    if figures["several_attempts"] < n_interrupted:
        found.append(f"several_attempts: expected at least {n_interrupted}, got {figures['several_attempts']}")
    if abs(figures["counted_s"] - figures["audio_s"]) > 0.01:
        found.append(f"counted_s: expected {figures['audio_s']}, got {figures['counted_s']}")
    return found


def table(figures: dict[str, Any]) -> Table:
    rows = [(name.replace("_", " "), str(value)) for name, value in figures.items()]
    return Table("Jobs under kills", ("count", "value"), rows)


@benchmark_command()
@click.option("--jobs", "n_jobs", default=1000, show_default=True, help="Number of jobs.")
@click.option("--kills", "n_kills", default=50, show_default=True, help="Number of kills.")
@click.option("--gateways", "n_gateways", default=3, show_default=True, help="Gateways at the same time.")
@click.option("--database", default="", help="Address of an empty database. Default: a file of SQLite.")
@click.option("--spool", default="folder", show_default=True, type=click.Choice(["folder", "s3"]), help="Recordings.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random times.")
@result_options("job_kills")
def main(
    n_jobs: int,
    n_kills: int,
    n_gateways: int,
    database: str,
    spool: str,
    seed: int,
    path: Path,
    markdown: bool,
) -> None:
    """Kill gateways, and see that each job is done once."""
    with tempfile.TemporaryDirectory() as name, storage(spool, Path(name)) as stored:
        url = database_address(database or f"sqlite:///{name}/tutti.db")
        figures = asyncio.run(campaign(n_jobs, n_kills, n_gateways, url, seed, Path(name), stored))
    result = {**machine.describe(), **figures}
    report.finish([table(figures)], result, complain(figures), as_markdown=markdown, path=path)
