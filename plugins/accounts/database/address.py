"""The address of the database, as the operator writes it."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError

if TYPE_CHECKING:
    from sqlalchemy import URL

FILE_NAME = "tutti.db"
"""The file of SQLite in the data folder."""


def state_folder() -> Path:
    """The folder in which a user's programs keep their state. Source: the XDG Base Directory Specification."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given else Path.home() / ".local" / "state") / "tutti"


def folder_of(name: str, text: str) -> Path:
    """The folder that this setting names.

    Raises:
        SettingsError: it is in the home of a user whom the system does not know.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(f"{name}: expected a folder, got {text!r}, in the home of an unknown user") from None


def database_address(url: str) -> "URL":
    """The address of the database, with the driver that we use.

    Raises:
        SettingsError: it is no such address, or the driver is not installed.
    """
    # Imported here: it takes a moment, and most commands need no database.
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    expected = "postgresql://user:password@host/name or sqlite:///path"
    try:
        # A file that holds the address may end with a line break.
        address = make_url(url.strip())
    except (ArgumentError, ValueError):
        # It may hold a password, so it is not shown.
        raise SettingsError(f"database_url: expected {expected}, got something else") from None
    if address.drivername == "sqlite" and address.database not in (None, "", ":memory:"):
        return address
    if address.drivername not in ("postgresql", "postgres", "postgresql+psycopg") or not address.database:
        raise SettingsError(f"database_url: expected {expected}, got something else")
    if find_spec("psycopg") is None:
        raise SettingsError("database_url: needs psycopg: pip install 'tutti-asr[postgres]'")
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    try:
        make_conninfo(**dict.fromkeys(address.query, ""))
    except ProgrammingError as error:
        expected = "expected options that PostgreSQL's client knows"
        raise SettingsError(f"database_url: {expected}; it says: {str(error).strip()}") from None
    return address.set(drivername="postgresql+psycopg")


def file_address(folder: Path) -> "URL":
    """The address of the file in this data folder."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=f"{folder / FILE_NAME}")
