"""The schema of the database: made, and moved forward to the version of this release, by the migrations beside this.

Migrations name all tables themselves, so the schema is whole whatever is imported first. The rooms' own declarations
write their statements, and a test compares them with what the migrations make.
"""

import sqlite3
import threading
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

VERSION_TABLE = "tutti_migrations"
"""The table with the version of the schema."""
FOLDER = Path(__file__).parent / "migrations"
SCHEMA_LOCK = 0x7475_7474
"""The number of PostgreSQL's advisory lock under which the schema is changed: "tutt" in ASCII."""

_migrating = threading.Lock()
"""Held during a migration, as Alembic keeps the connection that it works on in a global."""


class WrongSchema(Exception):
    """The tables are not those that this release can use. The message says why, for the operator."""


def move_forward(connection: Connection, *, may_be_newer: bool = False) -> None:
    """Make the schema, or move it forward to the version of this release, in the transaction of the connection.

    Processes that start together do it one after another. It changes nothing where the version is this one already.

    Args:
        may_be_newer: whether one of a newer release is used, if it has everything that this one needs.

    Raises:
        WrongSchema: a newer release has made it, or something of it is missing.
    """
    # Before the advisory lock: who holds that must not wait for `_migrating`, under which another one waits for it.
    expected = _expected_columns()
    with _migrating:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": SCHEMA_LOCK})
        found = version(connection)
        known = {each.revision for each in ScriptDirectory(str(FOLDER)).walk_revisions()}
        if found is None or found in known:
            _migrate(connection)
        elif not may_be_newer:
            raise WrongSchema(
                f"expected a schema of version {newest()} or older, got version {found} of a newer release"
            )
    _check_columns(connection, expected)


def version(connection: Connection) -> str | None:
    """The version of the schema; `None` where it has none: it is empty, or of the first release."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def has_tables(connection: Connection) -> bool:
    """Whether there is any table of ours."""
    return bool(_columns(connection).keys() & _expected_columns().keys())


def newest() -> str:
    """The version of this release."""
    head = ScriptDirectory(str(FOLDER)).get_current_head()
    assert head, "there are migrations"
    return head


def _migrate(connection: Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    try:
        command.upgrade(config, "head")
    except DBAPIError as error:
        if not _is_about_tables(error):
            raise
        message = f"expected a schema of version {newest()}, or one that can be moved forward to it, got a part of one"
        raise WrongSchema(f"{message}: {error.orig}") from error


def _is_about_tables(error: DBAPIError) -> bool:
    """Whether a statement has named what is not there, or made what is there already."""
    is_statement = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return is_statement or isinstance(error, ProgrammingError)


def _check_columns(connection: Connection, expected: dict[str, set[str]]) -> None:
    """Check that a schema which has this version has everything that it should, as one restored in part has not."""
    found = _columns(connection)
    for table, columns in sorted(expected.items()):
        if table not in found:
            raise WrongSchema(f"expected a schema of version {newest()}, got one without the table {table}")
        if missing := columns - found[table]:
            column = f"{table}.{min(missing)}"
            raise WrongSchema(f"expected a schema of version {newest()}, got one without the column {column}")


@cache
def _expected_columns() -> dict[str, set[str]]:
    engine = create_engine("sqlite://")
    try:
        with _migrating, engine.begin() as connection:
            _migrate(connection)
            return _columns(connection)
    finally:
        engine.dispose()


def _columns(connection: Connection) -> dict[str, set[str]]:
    tables = inspect(connection).get_multi_columns()
    return {name: {each["name"] for each in columns} for (_, name), columns in tables.items()}
