"""Transactions on the operator's database, off the event loop.

SQLAlchemy's Core writes the statements, for SQLite and PostgreSQL alike. Every room declares its tables on `metadata`;
they are made by the migrations of `tutti_server.plugins.accounts.database.schema`.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, MetaData, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.pool import NullPool

from tutti_server.plugins.accounts.database import schema
from tutti_server.plugins.accounts.database.daemon_threads import DaemonThreads
from tutti_server.plugins.accounts.database.private_files import keep_private, make_folder, take_from_others

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

MAX_ATTEMPTS = 5
"""How often a transaction is tried that another one got in the way of."""
LOCK_TIMEOUT_S = 10
"""How long a transaction waits for another one, and a connection for the server, in seconds."""
ANSWER_TIMEOUT_S = 15.0
"""How long a caller waits for a transaction, in seconds, also behind others: less than clients wait for an answer."""
CLOSE_TIMEOUT_S = 5.0
"""How long a service that stops waits for transactions that have begun, in seconds."""
N_THREADS = 4
"""Transactions at the same time on PostgreSQL. SQLite has one writer, so it gets one thread."""
SILENCE_LIMITS = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""When libpq gives up a connection to PostgreSQL whose other end is silent, in seconds, and the last in milliseconds.

Without them what is asked of it waits for as long as the system tries, for many minutes, also after the server is back.
"""
SQLITE_SUFFIXES = ("-wal", "-shm")
"""What SQLite adds to the name of a database for the files beside it."""
PRIMARY_CODE = 0xFF
"""The bits of a SQLite error code that name the error. Those above say how it came about."""
CONFLICT_STATES = ("40001", "40P01")
"""PostgreSQL's codes for transactions that another one has stopped: a serialization failure, and a deadlock."""
SCHEMA_STATES = ("42P01", "42703", "3F000", "42501")
"""PostgreSQL's codes where a table, a column or a schema is missing or forbidden, as while a copy is restored."""
GONE = "its tables are gone: restore a copy, or restart the server to begin with an empty database"
"""What the operator reads where tables were that are missing now. New ones would take the place of a copy."""
NO_VERSION = "its tables have no version: restart the server if they are a whole copy of the first release"
"""What the operator reads where tables had a version. A copy that is still being restored must be left alone."""

metadata = MetaData()
"""The tables of all rooms that are imported."""


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say what happens on a conflict, for the database of this connection."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


class DatabaseAway(Exception):
    """The database does not answer."""


class DatabaseUnfit(DatabaseAway):
    """The database has tables that this release cannot use. A start ends; a server that runs goes on as without it.

    The start of a gateway that its supervisor restarts is none: the others of its server go on, too.
    """


class Database:
    """Runs transactions in threads. It connects, and moves the schema forward, when it is first used."""

    def __init__(self, url: URL, was_open: Path | None = None) -> None:
        """Describe the database.

        Args:
            url: that of a SQLite file, or of a PostgreSQL server.
            was_open: a file that is made when it is opened. Where it is there already, another process of this server
                has opened it before, and no tables are made.
        """
        self._url = url
        self._was_open_file = was_open
        self._engine: Engine | None = None
        self._threads = DaemonThreads(1 if self.is_file else N_THREADS, "database")
        self._opening = threading.Lock()
        self._was_open = was_open is not None and was_open.exists()
        self.is_away = False
        """Whether the last transaction was in vain, as the database did not answer."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file of SQLite, which the processes of one machine can share."""
        return self._url.get_backend_name() == "sqlite"

    @property
    def is_there(self) -> bool:
        """Whether something may have been written. A file of SQLite does not exist before the first transaction."""
        if not self.is_file or self._was_open:
            return True
        try:
            return Path(self._url.database or "").exists()
        except OSError:
            # This user may not look into its folder.
            return True

    @property
    def name(self) -> str:
        """The address of the database without the password, for messages."""
        return self._url.render_as_string(hide_password=True)

    async def run(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Run one transaction, and return what `work` returns.

        It is committed when `work` returns, and undone when `work` raises. Where another transaction got in its way it
        is run again, so `work` must do nothing but use the connection. Neither cancelling nor the end of the wait stops
        a transaction that has begun, and one whose commit has had no answer may be done: it is not run again.

        Args:
            work: called in a thread with a connection in a transaction, and with the other arguments.

        Raises:
            DatabaseAway: the database does not answer, is locked for too long, or is damaged.
            DatabaseUnfit: at a start, a newer release has made its tables, or some of them are missing.
        """
        call = partial(self.run_here, work, *arguments, **named)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError:
            self.is_away = True
            raise DatabaseAway(f"{self.name}: no answer within {ANSWER_TIMEOUT_S:g} s") from None

    def run_here(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Run one transaction in the calling thread, as `run` does, without a limit for all of its attempts."""
        try:
            result = self._attempted(lambda connection: work(connection, *arguments, **named))
        except DatabaseAway:
            self.is_away = True
            raise
        self.is_away = False
        return result

    def _attempted(self, work: Callable[[Connection], Result]) -> Result:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            has_worked = False
            try:
                with self._opened().begin() as connection:
                    result = work(connection)
                    has_worked = True
                return result
            except DBAPIError as error:
                if not _is_about_database(error):
                    raise
                if _is_about_schema(error):
                    # A copy of an older release may be here now: the next transaction looks at the schema again.
                    self.close_here()
                if not _is_conflict(error, has_worked) or attempt == MAX_ATTEMPTS:
                    raise DatabaseAway(f"{self.name}: {error.orig}") from error
                logger.debug("a transaction is tried again: %s", error.orig)
        raise AssertionError("every attempt returns or raises")

    async def check(self) -> bool:
        """Move the schema forward at the start. Returns whether it is there: one that is away may come back.

        Raises:
            DatabaseUnfit: as `run`.
        """
        if not self.is_there:
            return False
        try:
            await self.run(lambda connection: None)
        except DatabaseUnfit:
            raise
        except DatabaseAway as error:
            logger.warning("the database is not there yet: %s", error)
            return False
        return True

    async def close(self) -> None:
        """Close all connections, after the transactions that have begun, unless they hang. No more come after this."""
        # Not in one of these threads: it would not wait for the others, whose connections would stay open.
        await asyncio.to_thread(self._threads.wait, CLOSE_TIMEOUT_S)
        await asyncio.to_thread(self.close_here)

    def close_here(self) -> None:
        """Close all connections. The next transaction opens new ones."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _opened(self) -> Engine:
        with self._opening:
            engine = self._engine
            if engine is None:
                try:
                    engine = self._connected()
                except OSError as error:
                    raise DatabaseAway(f"{self.name}: {error}") from error
                try:
                    with engine.begin() as connection:
                        if self._was_open and schema.version(connection) is None:
                            reason = NO_VERSION if schema.has_tables(connection) else GONE
                            raise DatabaseAway(f"{self.name}: {reason}")
                        # In a rolling upgrade, the servers of the older release use the newer tables until they end.
                        schema.move_forward(connection, may_be_newer=self._was_open)
                except schema.WrongSchema as error:
                    engine.dispose()
                    kind = DatabaseAway if self._was_open else DatabaseUnfit
                    raise kind(f"{self.name}: {error}") from error
                except BaseException:
                    engine.dispose()
                    raise
                self._engine, self._was_open = engine, True
                if self._was_open_file is not None:
                    self._was_open_file.touch()
            return engine

    def _connected(self) -> Engine:
        if not self.is_file:
            arguments = {"connect_timeout": LOCK_TIMEOUT_S}
            if self._url.get_driver_name() == "psycopg":
                arguments |= SILENCE_LIMITS
            engine = create_engine(
                self._url, pool_size=N_THREADS, pool_pre_ping=True, connect_args=arguments, hide_parameters=True
            )
            event.listen(engine, "begin", _limit_waits)
            return engine
        self._keep_file_private()
        # A connection for each transaction: SQLite's cost little, and none is left open in a process that forks.
        arguments = {"timeout": LOCK_TIMEOUT_S}
        engine = create_engine(self._url, poolclass=NullPool, connect_args=arguments, hide_parameters=True)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_immediate)
        return engine

    def _keep_file_private(self) -> None:
        path = Path(self._url.database or "")
        make_folder(path.parent)
        keep_private(path)
        # SQLite gives these the mode of the database when it makes them; other processes may have made them before.
        for suffix in SQLITE_SUFFIXES:
            take_from_others(path.with_name(path.name + suffix))


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Let readers go on beside a writer, and have commits survive a loss of power."""
    # SQLAlchemy's event begins transactions; the driver must not begin others.
    connection.isolation_level = None
    _switch_to_wal(connection)
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _switch_to_wal(connection: Any) -> None:
    """Switch a new file to WAL; the file stays so.

    The switch reads before it writes, so SQLite does not let it wait for another process that uses the file, as it lets
    a transaction wait. After an empty transaction, which has waited, the other process has switched the file.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & PRIMARY_CODE != sqlite3.SQLITE_BUSY or attempt == MAX_ATTEMPTS:
                raise
        connection.execute("BEGIN IMMEDIATE").close()
        connection.execute("COMMIT").close()


def _begin_immediate(connection: Connection) -> None:
    """Take the writer's place at once: a transaction that reads first could not become a writer without a conflict."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _limit_waits(connection: Connection) -> None:
    """Let PostgreSQL wait for another transaction no longer than SQLite does."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")


def _is_about_database(error: DBAPIError) -> bool:
    """Whether it is the database that is away, locked, full or damaged, and no statement that is wrong."""
    # SQLite reports a damaged file, and one that is none, with the error that all others are kinds of.
    is_kind = isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError
    return is_kind or _is_about_schema(error)


def _is_about_schema(error: DBAPIError) -> bool:
    """Whether something of the schema is not there, or must not be used."""
    is_statement = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return is_statement or getattr(error.orig, "sqlstate", None) in SCHEMA_STATES


def _is_conflict(error: DBAPIError, has_worked: bool) -> bool:
    """Whether the same transaction may succeed when it is run again.

    A connection that was lost before the commit has undone everything; one that was lost during it may have done it.
    """
    is_undone = error.connection_invalidated and not has_worked
    return getattr(error.orig, "sqlstate", None) in CONFLICT_STATES or is_undone
