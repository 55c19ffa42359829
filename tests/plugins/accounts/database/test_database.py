"""Transactions are whole or undone, on SQLite and on PostgreSQL alike."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Column, Connection, Integer, MetaData, Table, func, inspect, make_url, select, text, update
from sqlalchemy.exc import IntegrityError

from tutti_server.plugins.accounts.database import database as module
from tutti_server.plugins.accounts.database import schema
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway

accounts = Table("accounts_of_a_test", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))

DROP_NEWER = (
    "DROP TABLE tutti_job_turns",
    "DROP TABLE tutti_job_folder",
    "ALTER TABLE tutti_job_results DROP COLUMN warnings",
)
"""Makes the tables those of the first release."""


@pytest.fixture
async def database(url: URL) -> AsyncIterator[Database]:
    opened = Database(url)
    await opened.run(accounts.create)
    await opened.run(lambda connection: connection.execute(accounts.insert().values(id=1, n=0)))
    yield opened
    await opened.close()


async def statements(database: Database, *texts: str) -> None:
    """Run statements in one transaction."""
    await database.run(lambda connection: [connection.execute(text(each)) for each in texts])


async def drop_tables(database: Database) -> None:
    """Drop all tables. The table of jobs comes after the tables that refer to its rows."""
    tables = await database.run(lambda connection: inspect(connection).get_table_names())
    await statements(database, *(f"DROP TABLE {each}" for each in sorted(tables, key="tutti_jobs".__eq__)))


def add_one(connection: Connection) -> None:
    n = connection.scalar(select(accounts.c.n).with_for_update())
    connection.execute(update(accounts).values(n=(n or 0) + 1))


async def test_transactions_at_the_same_time_lose_nothing(database: Database, url: URL) -> None:
    """Two processes, here two `Database`s, add one 20 times each."""
    other = Database(url)
    await asyncio.gather(*(each.run(add_one) for _ in range(20) for each in (database, other)))
    await other.close()
    assert await database.run(lambda connection: connection.scalar(select(accounts.c.n))) == 40


async def test_a_transaction_that_fails_is_undone(database: Database) -> None:
    def fail(connection: Connection) -> None:
        add_one(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(fail)
    assert await database.run(lambda connection: connection.scalar(select(accounts.c.n))) == 0


async def test_an_error_shows_no_values(database: Database) -> None:
    """They may be signing keys, addresses with passwords and transcripts, and the log shows the error."""
    with pytest.raises(IntegrityError) as caught:
        await database.run(lambda connection: connection.execute(accounts.insert().values(id=1, n=424_242)))
    assert "424242" not in str(caught.value)


async def test_it_is_closed_after_the_transactions_that_have_begun(database: Database) -> None:
    """No connection stays open: one that is collected while it is open is an error of this suite."""
    began, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait(connection: Connection) -> None:
        add_one(connection)
        loop.call_soon_threadsafe(began.set)
        goes_on.wait(20)

    transaction = asyncio.create_task(database.run(wait))
    await began.wait()
    closing = asyncio.create_task(database.close())
    done, _ = await asyncio.wait({closing}, timeout=0.05)
    assert not done
    goes_on.set()
    await closing
    assert transaction.done()


async def test_it_is_closed_although_a_transaction_hangs(
    file_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the process wait for its thread."""
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.05)
    began, goes_on = asyncio.Event(), threading.Event()
    loop, threads = asyncio.get_running_loop(), list[threading.Thread]()

    def hang(connection: Connection) -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(began.set)
        goes_on.wait(20)

    transaction = asyncio.create_task(file_database.run(hang))
    await began.wait()
    closing = asyncio.create_task(file_database.close())
    done, _ = await asyncio.wait({closing}, timeout=10)
    hanging = [thread for thread in threads if thread.is_alive() and thread.daemon]
    goes_on.set()
    await asyncio.gather(closing, transaction)
    assert done and hanging == threads


async def test_it_goes_on_after_it_was_closed(database: Database) -> None:
    database.close_here()
    assert await database.run(lambda connection: connection.scalar(select(func.count()).select_from(accounts))) == 1


async def test_the_first_use_of_a_file_waits_for_another_process_that_uses_it(tmp_path: Path) -> None:
    """Also before the file is one that can be read while it is written."""
    path = tmp_path / "tutti.db"
    database = Database(make_url(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(database.run(accounts.create))
        done, _ = await asyncio.wait({first}, timeout=0.05)
        assert not done
        other.execute("COMMIT")
        await first
    await database.close()


async def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    database = Database(make_url("postgresql+psycopg://tutti:secret@127.0.0.1:1/tutti"))
    with pytest.raises(DatabaseAway, match=r"tutti:\*\*\*@127.0.0.1:1") as caught:
        await database.run(add_one)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.default
async def test_a_connection_that_falls_silent_is_given_up(database: Database) -> None:
    """A server that was cut off says nothing when it is back."""

    def read(connection: Connection) -> dict[str, str]:
        driver: Any = connection.connection.driver_connection
        return dict(driver.info.get_parameters())

    parameters = await database.run(read)
    limits = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
    assert parameters.items() >= (limits | {"tcp_user_timeout": "15000"}).items()


async def test_a_file_is_not_there_before_the_first_transaction(tmp_path: Path) -> None:
    database = Database(make_url(f"sqlite:///{tmp_path / 'new' / 'tutti.db'}"))
    assert not database.is_there
    await database.run(lambda connection: None)
    assert database.is_there


async def test_a_file_that_may_not_be_looked_for_is_away() -> None:
    """As one in a folder that this user may not enter; here the system takes no such name."""
    database = Database(make_url(f"sqlite:///{'x' * 300}"))
    assert not await database.check() and database.is_away
    await database.close()


def modes(folder: Path) -> dict[str, str]:
    """The modes of a folder and of everything in it, by their names."""
    return {path.name: f"{path.stat().st_mode & 0o777:o}" for path in (folder, *folder.rglob("*"))}


FILE_MODES = {"tutti.db": "600", "tutti.db-wal": "600", "tutti.db-shm": "600"}


def test_only_its_user_may_read_the_file(tmp_path: Path) -> None:
    """Nor what SQLite keeps beside it, nor the folders that are made for it."""
    database = Database(make_url(f"sqlite:///{tmp_path / 'new' / 'state' / 'tutti.db'}"))
    found = database.run_here(lambda connection: modes(tmp_path / "new"))
    assert found == {"new": "700", "state": "700"} | FILE_MODES


def test_a_file_of_an_older_release_is_taken_from_others(tmp_path: Path) -> None:
    """The folder was there before, and may be for other things as well."""
    path = tmp_path / "tutti.db"
    with closing(sqlite3.connect(path)) as older:
        older.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER)")
        tmp_path.chmod(0o755)
        for each in tmp_path.iterdir():
            each.chmod(0o644)
        database = Database(make_url(f"sqlite:///{path}"))
        database.run_here(lambda connection: None)
        assert modes(tmp_path) == {tmp_path.name: "755"} | FILE_MODES


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.default
async def test_a_commit_without_an_answer_is_not_done_twice(database: Database) -> None:
    """The server has committed, and the connection is lost before it says so."""
    psycopg = pytest.importorskip("psycopg")
    engine = database._opened()
    commit = engine.dialect.do_commit

    def commit_and_vanish(connection: Any) -> None:
        commit(connection)
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.dialect, "do_commit", commit_and_vanish)
        with pytest.raises(DatabaseAway, match="closed the connection"):
            await database.run(add_one)
    assert await database.run(lambda connection: connection.scalar(select(accounts.c.n))) == 1


@pytest.mark.parametrize("change", ["DROP TABLE tutti_job_turns", "ALTER TABLE tutti_job_turns RENAME taken TO t"])
async def test_tables_that_are_missing_are_a_database_that_is_away(database: Database, change: str) -> None:
    """Until they are there again, as while a copy is restored."""
    await statements(database, change)
    for _ in range(2):
        with pytest.raises(DatabaseAway, match=r"tutti_job_turns|taken"):
            await statements(database, "SELECT taken FROM tutti_job_turns")


async def test_a_copy_of_an_older_release_is_moved_forward_without_a_restart(database: Database) -> None:
    """The first transaction that finds something missing has the schema looked at."""
    await statements(database, *DROP_NEWER, f"UPDATE {schema.VERSION_TABLE} SET version_num = '0001'")
    with pytest.raises(DatabaseAway):
        await statements(database, "SELECT * FROM tutti_job_turns")
    await statements(database, "SELECT * FROM tutti_job_turns")
    assert await database.run(schema.version) == schema.newest()


async def test_a_copy_without_a_version_waits_for_a_restart(database: Database, url: URL) -> None:
    """It may be one of the first release, or one that is not whole yet: who reads of it does not take it for lost."""
    await statements(database, "DROP TABLE tutti_migrations", *DROP_NEWER)
    for message in ("tutti_job_turns", module.NO_VERSION, module.NO_VERSION):
        with pytest.raises(DatabaseAway, match=message):
            await statements(database, "SELECT * FROM tutti_job_turns")
    restarted = Database(url)
    await statements(restarted, "SELECT * FROM tutti_job_turns")
    await restarted.close()


async def test_tables_that_are_gone_are_not_made_anew_while_the_server_runs(database: Database, url: URL) -> None:
    """What came into them would be lost when the operator restores a copy. A restart begins with an empty database."""
    await drop_tables(database)
    for message in ("tutti_jobs", module.GONE, module.GONE):
        with pytest.raises(DatabaseAway, match=message):
            await statements(database, "SELECT * FROM tutti_jobs")
    restarted = Database(url)
    await statements(restarted, "SELECT * FROM tutti_jobs")
    await restarted.close()


async def test_a_gateway_that_is_restarted_makes_no_tables_in_place_of_those_that_are_gone(
    database: Database, url: URL, tmp_path: Path
) -> None:
    """Another process of the same server has used them. A restart of the server begins with an empty database."""
    was_open = tmp_path / "was-open"
    first = Database(url, was_open)
    await statements(first, "SELECT * FROM tutti_jobs")
    await drop_tables(database)
    restarted = Database(url, was_open)
    with pytest.raises(DatabaseAway, match=module.GONE):
        await statements(restarted, "SELECT * FROM tutti_jobs")
    was_open.unlink()
    of_a_new_server = Database(url, was_open)
    await statements(of_a_new_server, "SELECT * FROM tutti_jobs")
    for each in (first, restarted, of_a_new_server):
        await each.close()
