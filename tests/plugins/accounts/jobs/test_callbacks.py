"""Reports of jobs that have ended: signed, sent again until they are received, also after a crash."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import update

from tests.plugins.accounts.conftest import accounts
from tests.plugins.accounts.jobs.conftest import ServeJobs
from tests.plugins.accounts.jobs.test_jobs_endpoint import ended, submit
from tutti_server.app.files.addresses import AddressRules
from tutti_server.app.jobs import Job, JobFailed, JobKind, JobResult, Request
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import callbacks as module
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.callbacks import MAX_ATTEMPTS, MAX_OF_OWNER, N_SENDERS, CallbackSender
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import FolderSpool
from tutti_server.plugins.accounts.jobs.wire import KIND, callback_message
from tutti_server.plugins.accounts.settings import AccountSettings

SECRET = "secret"
RESULT = JobResult(content=b"text", media_type="text/plain", audio_s=1.5)
SETTINGS = AccountSettings(job_workers=0)
HERE = {"job_secret": SECRET, "callback_hosts": "127.0.0.1", "private_networks": "127.0.0.0/8"}
"""Settings of a server that may report to this machine."""


class Receiver:
    """Answers with these statuses, one after another, and keeps what it has got."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = iter(statuses)
        self.received: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Receiver"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {
            name.lower(): value for name, value in (line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        writer.write(
            f"HTTP/1.1 {next(self._statuses, 200)} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()
        await self.received.put((headers, body))


class Sender:
    """A sender for one database, and the outcomes that it has noted."""

    def __init__(self, database: Database, tmp_path: Any, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.database = database
        self.outcomes: list[str] = []
        jobs = Jobs(database, FolderSpool(tmp_path), SETTINGS)
        networks = [ipaddress.ip_network("127.0.0.0/8")]
        rules = AddressRules("callback_hosts", hosts, private_networks=networks)
        kinds = {KIND: JobKind(work=None, callback=callback_message)}  # type: ignore[arg-type]  # nothing is worked on
        self.sender = CallbackSender(jobs, kinds, rules, SECRET, self.outcomes.append)

    async def end_job(self, url: str, outcome: JobResult | JobFailed = RESULT, owner: str = "o") -> Job:
        request = Request(kind=KIND, options={}, callback_url=url)
        names = (str(uuid4()), owner, owner)
        await self.database.run(job_store.add, names, request, has_audio=False, fingerprint="f")
        await self.database.run(job_store.claim, "a", 60.0, 5)
        job = await self.database.run(job_store.finish, names[0], "a", outcome)
        assert job
        return job

    async def hurry(self) -> None:
        """Let what waits be due."""
        waiting = update(job_store.callbacks).where(job_store.callbacks.c.due.is_not(None))
        await self.database.run(lambda each: each.execute(waiting.values(due=0)))


@pytest.fixture
def sender(file_database: Database, tmp_path: Any) -> Sender:
    return Sender(file_database, tmp_path)


async def test_a_report_is_signed_and_sent_until_it_is_received(database: Database, tmp_path: Any) -> None:
    """With the same body each time, in both databases. What is delivered is not sent again."""
    sender = Sender(database, tmp_path)
    async with Receiver(503, 429, 204).running() as receiver:
        job = await sender.end_job(receiver.url)
        for n_before in range(3):
            assert sender.outcomes == [] and receiver.received.qsize() == n_before
            assert await sender.sender.send_one()
            assert not await sender.sender.send_one()
            await sender.hurry()
        assert sender.outcomes == ["delivered"] and not await sender.sender.send_one()
        messages = [receiver.received.get_nowait() for _ in range(3)]
    assert len({body for _, body in messages}) == 1
    headers, body = messages[-1]
    at, digest = (part.partition("=")[2] for part in headers["tutti-signature"].split(","))
    assert digest == hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    message = json.loads(body)
    assert (message["type"], message["job"]["id"], message["id"]) == ("job.done", job.id, headers["idempotency-key"])


async def test_a_report_of_a_newer_release_is_left_to_it(sender: Sender, tmp_path: Any) -> None:
    """It loses no attempt, and keeps no other report waiting."""
    old = Sender(sender.database, tmp_path)
    old.sender._kinds = {}
    async with Receiver(204).running() as receiver:
        await sender.end_job(receiver.url)
        assert not await old.sender.send_one()
        assert await sender.sender.send_one()
    assert sender.outcomes == ["delivered"]


async def test_a_slow_receiver_of_one_owner_keeps_no_other_report_waiting(sender: Sender) -> None:
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(None)
        await reader.read()
        writer.close()

    slow = await asyncio.start_server(answer_nothing, "127.0.0.1", 0)
    async with asyncio.timeout(20), slow, Receiver().running() as receiver:
        for _ in range(N_SENDERS + 1):
            await sender.end_job(f"http://127.0.0.1:{slow.sockets[0].getsockname()[1]}/")
        async with sender.sender.running():
            for _ in range(MAX_OF_OWNER):
                await asked.get()
            await sender.end_job(receiver.url, owner="other")
            await receiver.received.get()
            assert asked.empty()


async def test_a_report_is_sent_as_soon_as_its_owner_has_a_share_again(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when the database is asked the next time."""
    async with asyncio.timeout(20), Receiver().running() as receiver:
        for _ in range(3 * MAX_OF_OWNER):
            await sender.end_job(receiver.url)
        monkeypatch.setattr(module, "POLL_S", 3600.0)
        async with sender.sender.running():
            for _ in range(3 * MAX_OF_OWNER):
                await receiver.received.get()


async def test_a_report_whose_gateway_has_died_is_sent_again(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE_S", 0.0)
    async with Receiver().running() as receiver:
        await sender.end_job(receiver.url, JobFailed("code", "why"))
        # It took the report, and came no further.
        assert await sender.database.run(module._claim, [KIND])
        assert await sender.sender.send_one()
        _, body = receiver.received.get_nowait()
    assert json.loads(body)["job"]["error"] == {"code": "code", "message": "why"}
    assert sender.outcomes == ["delivered"]


@pytest.mark.parametrize("status", [301, 410])
async def test_a_receiver_may_refuse(sender: Sender, status: int) -> None:
    async with Receiver(status).running() as receiver:
        await sender.end_job(receiver.url)
        assert await sender.sender.send_one()
    await sender.hurry()
    assert sender.outcomes == ["refused"] and not await sender.sender.send_one()


async def test_hosts_are_checked_when_a_report_is_sent(sender: Sender) -> None:
    """The operator may have changed the setting meanwhile."""
    await sender.end_job("http://127.0.0.2/")
    assert await sender.sender.send_one()
    assert sender.outcomes == ["refused"]


async def test_a_receiver_that_stays_away_is_given_up(sender: Sender) -> None:
    async with Receiver().running() as receiver:
        url = receiver.url
    await sender.end_job(url)
    for _ in range(MAX_ATTEMPTS):
        assert sender.outcomes == []
        assert await sender.sender.send_one()
        await sender.hurry()
    assert sender.outcomes == ["expired"] and not await sender.sender.send_one()


@pytest.mark.default
async def test_a_server_reports_its_jobs(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    server = await serve_jobs(**HERE)
    async with asyncio.timeout(60), Receiver().running() as receiver:
        id_ = (await submit(http, server, callback=receiver.url)).json()["id"]
        _, body = await receiver.received.get()
        assert json.loads(body)["job"] == await ended(http, server, id_)
        refused = await submit(http, server, callback="https://example.org/")
        assert refused.status_code == 400 and "TUTTI_CALLBACK_HOSTS" in refused.json()["error"]["message"]
        while not server.metric("tutti_job_callbacks_total", outcome="delivered"):
            await http.get(f"{server.http}/healthz")


@pytest.mark.default
async def test_an_address_is_kept_nowhere_but_sealed(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    """In both protocols. It is opened for the report, whose receiver gets the password."""
    keys = tmp_path / "keys"
    keys.write_text(b64encode(bytes(32)).decode())
    server = await serve_jobs(secret_keys_file=str(keys), **HERE)
    async with asyncio.timeout(60), Receiver().running() as receiver:
        address = receiver.url.replace("://", "://user:password@")
        await submit(http, server, callback=address)
        await http.post(
            f"{server.http}/v1/listen", params={"callback": address, "callback_method": "put"}, content=b"x"
        )
        for _ in range(2):
            headers, _ = await receiver.received.get()
            assert headers["authorization"] == f"Basic {b64encode(b'user:password').decode()}"
        files = tmp_path / "state"
        kept = await accounts(server).database.run(
            # An open transaction keeps the files where they are.
            lambda connection: b"".join(each.read_bytes() for each in files.glob("tutti.db*"))
        )
    assert b"sealed:" in kept and b"password" not in kept
