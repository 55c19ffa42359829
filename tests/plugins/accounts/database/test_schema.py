"""The schema is whole whatever is imported first, and moves forward from every older one, in both databases."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import URL, Connection, MetaData, make_url, text

from tests.fakes import FakeTranscriber
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.main import build_app
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.accounts.database import schema
from tutti_server.plugins.accounts.database.database import Database, DatabaseUnfit, metadata
from tutti_server.plugins.accounts.jobs import job_store
from tutti_server.plugins.accounts.keys import key_records, usage
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import check_database

FIRST_RELEASE = Path(__file__).parent / "first_release.sql"


def differences(connection: Connection) -> list[Any]:
    """What the rooms declare and the tables do not have, or the other way round."""
    assert {usage, key_records, job_store}, "all rooms are imported"
    context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": schema.VERSION_TABLE})
    return [each for each in compare_metadata(context, metadata) if "tutti_schema" not in str(each)]


def make_as_first_release(connection: Connection) -> None:
    statements = FIRST_RELEASE.read_text()
    if connection.dialect.name == "postgresql":
        statements = statements.replace("BLOB", "BYTEA")
    for each in statements.strip().split(";\n"):
        connection.execute(text(each.removesuffix(";")))


def before(url: URL, *work: Any) -> None:
    """Change a database without moving its schema forward."""
    engine = Database(url)._connected()
    with engine.begin() as connection:
        for each in work:
            each(connection)
    engine.dispose()


def test_it_is_what_the_rooms_declare(url: URL) -> None:
    database = Database(url)
    assert database.run_here(differences) == []
    assert database.run_here(schema.version) == schema.newest()
    database.close_here()


@pytest.mark.nightly
def test_it_is_whole_whatever_is_imported_first(tmp_path: Path) -> None:
    """Also after a restart: nothing of jobs or keys is imported when the file is made."""
    program = """
import sys
from sqlalchemy import make_url
from tutti_server.plugins.accounts.database.database import Database
database = Database(make_url(sys.argv[1]))
database.run_here(lambda connection: None)
from tutti_server.plugins.accounts.keys import usage
from tutti_server.plugins.accounts.keys import key_records
from tutti_server.plugins.accounts.jobs import job_store
print(database.run_here(key_records.changes), database.run_here(job_store.backlog))
"""
    for _ in range(2):
        arguments = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'tutti.db'}"]
        done = subprocess.run(arguments, capture_output=True, text=True)
        assert done.stdout == "(0, []) (0, 0, 0.0)\n", done.stderr


@pytest.mark.parametrize("missing", ["", "tutti_job_callbacks"])
def test_a_database_of_the_first_release_is_moved_forward(url: URL, missing: str) -> None:
    """Its jobs and keys stay. It may lack tables of what that release had not imported when it made them."""
    before(url, make_as_first_release)
    if missing:
        before(url, lambda connection: execute(connection, f"DROP TABLE {missing}"))
    database = Database(url)
    assert database.run_here(differences) == []
    _, (record,) = database.run_here(key_records.changes)
    assert record.name == "acme"
    assert database.run_here(job_store.backlog)[:2] == (1, 0)
    database.close_here()


async def test_processes_that_start_together_make_it_once(url: URL) -> None:
    """None waits for another one that waits for it."""
    schema._expected_columns.cache_clear()
    databases = [Database(url) for _ in range(4)]
    assert await asyncio.gather(*(each.run(schema.version) for each in databases)) == [schema.newest()] * 4
    for each in databases:
        await each.close()


def execute(connection: Connection, statement: str) -> None:
    connection.execute(text(statement))


SET_VERSION = f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"
DROP_TABLE = "DROP TABLE tutti_usage"
TOO_NEW = rf"expected a schema of version {schema.newest()} or older, got version 9999 of a newer release"
UNFIT = [
    (SET_VERSION, TOO_NEW),
    ("ALTER TABLE tutti_jobs DROP COLUMN error", r"got one without the column tutti_jobs\.error"),
    (DROP_TABLE, r"got one without the table tutti_usage"),
]


@pytest.mark.parametrize(("change", "message"), UNFIT)
def test_a_schema_that_is_too_new_or_not_whole_is_left_alone(url: URL, change: str, message: str) -> None:
    first = Database(url)
    first.run_here(execute, change)
    first.close_here()
    database = Database(url)
    with pytest.raises(DatabaseUnfit, match=message):
        database.run_here(lambda connection: None)


async def test_a_gateway_that_is_restarted_goes_on_where_its_server_does(url: URL, tmp_path: Path) -> None:
    """In a rolling upgrade with newer tables, and without the database where it misses something."""
    was_open = tmp_path / "was-open"
    first = Database(url, was_open)
    await first.run(execute, SET_VERSION)
    await first.close()
    restarted = Database(url, was_open)
    assert await restarted.check()
    assert (await restarted.run(job_store.backlog))[:2] == (0, 0)
    await restarted.run(execute, DROP_TABLE)
    await restarted.close()
    restarted_again = Database(url, was_open)
    assert not await restarted_again.check()
    await restarted_again.close()


def test_tables_that_no_release_has_made_are_left_alone(url: URL) -> None:
    before(url, lambda connection: execute(connection, "CREATE TABLE tutti_jobs (id VARCHAR PRIMARY KEY)"))
    with pytest.raises(DatabaseUnfit, match=r"or one that can be moved forward to it, got a part of one: .*ended"):
        Database(url).run_here(lambda connection: None)
    tables = MetaData()
    before(url, tables.reflect)
    assert list(tables.tables) == ["tutti_jobs"]


async def test_a_start_with_it_ends(tmp_path: Path) -> None:
    """Before anybody connects, and not when the first job comes."""
    first = Database(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))
    first.run_here(execute, SET_VERSION)
    first.close_here()
    own = AccountSettings(jobs=True, data_folder=str(tmp_path))
    with pytest.raises(SettingsError, match=TOO_NEW):
        await check_database(own)
    gateway = build_app(Settings(plugins=(own,)), FakeTranscriber()).state.service
    with pytest.raises(DatabaseUnfit, match=TOO_NEW):
        async with gateway.running():
            pass


def test_a_start_makes_no_file(tmp_path: Path) -> None:
    asyncio.run(check_database(AccountSettings(jobs=True, data_folder=str(tmp_path))))
    assert not any(tmp_path.iterdir())
