"""Secrets of the database are sealed with the operator's keys, which can be changed."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, make_url, text

from tutti_server.app.cli.commands import cli
from tutti_server.app.dialects.deepgram.recordings_endpoint import KIND
from tutti_server.app.errors import RequestError, SettingsError
from tutti_server.app.jobs import CallbackMessage, Job, JobKind, JobResult, Request
from tutti_server.app.server.plugins import make_settings
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.database.seals import NO_SEALS, SealKeyMissing, Seals, key_id
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.jobs.callbacks import CallbackSender
from tutti_server.plugins.accounts.jobs.jobs import Jobs
from tutti_server.plugins.accounts.jobs.spool import FolderSpool
from tutti_server.plugins.accounts.jobs.worker import JobWorker
from tutti_server.plugins.accounts.keys import key_records
from tutti_server.plugins.accounts.keys.key_directory import KeyDirectory
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import check_database

OLD, NEW = bytes(32), bytes(range(32))
URL, CALLBACK = "https://user:password@example.org/audio", "https://user:password@example.org/callback"
SETTINGS = AccountSettings(job_workers=1)
REQUEST = Request(kind="k", options={}, url=URL, callback_url=CALLBACK)


def line(key: bytes) -> str:
    return base64.b64encode(key).decode() + "\n"


@given(st.text(min_size=4).filter(lambda each: not each.startswith("sealed:")))
def test_what_is_sealed_can_be_opened_and_not_read(secret: str) -> None:
    sealed = Seals([NEW]).seal(secret)
    assert Seals([NEW]).open(sealed) == secret and secret not in sealed.partition(":")[2].partition(":")[2]
    assert NO_SEALS.seal(secret) == secret == Seals([NEW]).open(secret)
    assert Seals([NEW]).seal("") == ""


def test_every_key_opens_and_the_first_one_seals() -> None:
    """A text that is sealed with the first key already is not sealed again."""
    old, both = Seals([OLD]).seal("secret"), Seals([NEW, OLD])
    assert both.open(old) == "secret"
    new = both.seal(old)
    assert key_id(new) == both.key_ids[0] != key_id(old) == both.key_ids[1]
    assert both.seal(new) == new and Seals([NEW]).open(new) == "secret"
    with pytest.raises(SealKeyMissing, match=rf"expected the key {both.key_ids[1]}, which has sealed it, got no key"):
        NO_SEALS.open(old)
    with pytest.raises(SealKeyMissing, match="got something else"):
        both.open(new[:-8])


def everything(connection: Connection) -> str:
    """All rows of the tables with secrets."""
    return str([connection.execute(text(f"SELECT * FROM {table}")).all() for table in ("tutti_jobs", "tutti_keys")])


async def fetch_as_told(url: str, file: IO[bytes]) -> None:
    file.write(url.encode())


async def test_addresses_of_jobs_are_sealed(file_database: Database, tmp_path: Path) -> None:
    """The worker opens that of the recording, and the sender that of the callback. The same request is the same job."""
    jobs = Jobs(file_database, FolderSpool(tmp_path), SETTINGS, seals=Seals([NEW]))
    job, _ = await jobs.submit("o", "o", REQUEST, None, "key")
    assert (await jobs.submit("o", "o", REQUEST, None, "key"))[0].id == job.id
    assert "password" not in await file_database.run(everything)
    fetched: asyncio.Queue[bytes] = asyncio.Queue()

    async def work(job: Job, file: IO[bytes]) -> JobResult:
        fetched.put_nowait(file.read())
        return JobResult(content=b"text", media_type="text/plain", audio_s=1.0)

    kinds = {"k": JobKind(work=work, callback=lambda job, result: CallbackMessage(body=b""))}
    ended: asyncio.Queue[Job] = asyncio.Queue()
    async with asyncio.timeout(20), JobWorker(jobs, kinds, fetch_as_told, lambda: True, ended.put_nowait).running():
        assert await fetched.get() == URL.encode()
        await ended.get()
    rules = Rules()
    assert await CallbackSender(jobs, kinds, rules, "", lambda outcome: None).send_one()  # type: ignore[arg-type]
    assert rules.asked == [CALLBACK]


class Rules:
    """Rules for addresses that note what they are asked, and reach nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def target(self, url: str) -> Any:
        self.asked.append(url)
        raise OSError


async def test_a_job_whose_key_is_missing_waits(file_database: Database, tmp_path: Path) -> None:
    """It is neither lost nor sent to an address that nobody gave."""
    database = file_database
    sealing = Jobs(database, FolderSpool(tmp_path), SETTINGS, seals=Seals([OLD]))
    job, _ = await sealing.submit("o", "o", REQUEST, None)
    jobs = Jobs(database, FolderSpool(tmp_path), SETTINGS, seals=Seals([NEW]))
    kinds = {"k": JobKind(work=None, callback=lambda job, result: CallbackMessage(body=b""))}  # type: ignore[arg-type]
    async with asyncio.timeout(20), JobWorker(jobs, kinds, fetch_as_told, lambda: True, print).running():
        while not (found := await database.run(job_store.by_id, job.id)) or not found.error:
            pass
    assert (found.state, found.error) == ("queued", "url: this server lacks the key to it")
    assert await database.run(job_store.claim, "a", 60.0, 3, "fetch") is None
    await database.run(lambda each: each.execute(text("UPDATE tutti_jobs SET due = 0")))
    async with asyncio.timeout(20):
        # A claim of the worker may still be under way; it is undone, and holds the job until then.
        while not await database.run(job_store.claim, "a", 60.0, 3, "fetch"):
            pass
    result = JobResult(content=b"text", media_type="text/plain", audio_s=1.0)
    await database.run(job_store.finish, job.id, "a", result)
    rules, outcomes = Rules(), list[str]()
    assert await CallbackSender(jobs, kinds, rules, "", outcomes.append).send_one()  # type: ignore[arg-type]
    assert (rules.asked, outcomes) == ([], [])


async def test_signing_keys_are_sealed(file_database: Database) -> None:
    database = file_database
    seals = Seals([NEW])
    await database.run(key_records.create, ApiKey(name="acme"), None, seals)
    async with directory_of(database, seals) as directory, directory_of(database, Seals([OLD])) as other:
        (record,) = directory.records
        assert len(bytes.fromhex(directory.signing_key(record.id))) == key_records.KEY_BYTES
        assert directory.signing_key(record.id) not in await database.run(everything)
        with pytest.raises(RequestError, match="client secrets of this key cannot be used") as refused:
            other.signing_key(record.id)
        assert refused.value.status == 503


@asynccontextmanager
async def directory_of(database: Database, seals: Seals) -> AsyncIterator[KeyDirectory]:
    directory = KeyDirectory(database, seals=seals)
    async with directory.running():
        yield directory


async def test_a_start_without_the_key_says_which_is_missing(tmp_path: Path) -> None:
    """Keys are changed in three steps: a new one before the old one, all sealed again, the old one left out.

    What was sealed with a key that is lost can be dropped.
    """
    file = tmp_path / "keys"
    database = Database(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))
    jobs = Jobs(database, FolderSpool(tmp_path / "jobs"), SETTINGS, seals=Seals([OLD]))
    await jobs.submit("o", "o", REQUEST, io.BytesIO(b"audio"))
    await database.close()
    settings = AccountSettings(jobs=True, data_folder=str(tmp_path), secret_keys_file=str(file))
    (old,) = Seals([OLD]).key_ids
    file.write_text(line(NEW))
    for wanted in (settings, replace(settings, secret_keys_file="")):
        with pytest.raises(SettingsError, match=f"secret_keys_file: expected the key {old}, with which secrets"):
            await check_database(wanted)
    file.write_text(line(NEW) + line(OLD))
    await check_database(settings)
    places = {"TUTTI_DATA_FOLDER": str(tmp_path), "TUTTI_SECRET_KEYS_FILE": str(file), "TUTTI_DATABASE_URL": ""}
    made = CliRunner().invoke(cli, ["keys", "create", "acme", "--json"], env=places | {"TUTTI_SECRET_KEYS_FILE": ""})
    assert json.loads(made.stdout)["name"] == "acme"
    done = CliRunner().invoke(cli, ["keys", "reseal"], env=places)
    assert done.output == f"1 jobs and 1 keys are sealed with the key {Seals([NEW]).key_ids[0]} now.\n"
    file.write_text(line(NEW))
    await check_database(settings)
    assert CliRunner().invoke(cli, ["keys", "reseal"], env=places).output.startswith("0 jobs and 0 keys")
    file.write_text(line(OLD))
    refused = CliRunner().invoke(cli, ["keys", "reseal"], env=places)
    assert refused.exit_code == 1 and "which has sealed it" in refused.stderr
    dropped = CliRunner().invoke(cli, ["keys", "reseal", "--drop-lost"], env=places)
    assert dropped.output == f"1 jobs and 1 keys are sealed with the key {old} now.\n"
    await check_database(settings)


async def test_addresses_among_the_options_of_the_first_release_are_removed(database: Database, tmp_path: Path) -> None:
    """The other options stay, and those of other protocols are left as they are."""
    assert job_store.DEEPGRAM == KIND
    options = {"query": [["callback", CALLBACK], ["callback_method", "put"], ["model", "é"], ["model", "b"]]}
    jobs = Jobs(database, FolderSpool(tmp_path), SETTINGS)
    kinds = (KIND, "k")
    ids = [
        (await jobs.submit("o", "o", Request(kind=kind, options=options, callback_url=CALLBACK), io.BytesIO()))[0].id
        for kind in kinds
    ]
    for n_changed in (2, 0):
        assert await database.run(job_store.seal_again, Seals([NEW])) == n_changed
    deepgram, other = await database.run(lambda each: [job_store.by_id(each, id_) for id_ in ids])
    assert deepgram and deepgram.request.options == {"query": [["model", "é"], ["model", "b"]]}
    assert other and other.request.options == options


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected a text file with keys, got"),
        ("", "expected keys, got an empty file"),
        ("c2hvcnQ=", "expected 32 bytes in base64 on each line, .*: got 5 bytes"),
        ("not base64 at all", "expected 32 bytes in base64 on each line, .*: Only base64 data is allowed"),
    ],
)
def test_a_file_without_keys_ends_the_start(tmp_path: Path, content: str | None, message: str) -> None:
    """Its content is not shown."""
    if content is not None:
        (tmp_path / "keys").write_text(content)
    with pytest.raises(SettingsError, match=message) as caught:
        make_settings({"secret_keys_file": str(tmp_path / "keys")})
    assert not content or content not in str(caught.value)
