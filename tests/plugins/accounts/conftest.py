"""Databases of both kinds, empty, and the accounts of a server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from tests.app.conftest import Running
from tests.postgres_server import PostgresServer, postgres_server
from tutti_server.plugins.accounts.accounts import Accounts
from tutti_server.plugins.accounts.database.database import Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.default)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    if request.param == "sqlite":
        return make_url(f"sqlite:///{tmp_path / 'folder' / 'tutti.db'}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return make_url(server.new_database())


@pytest.fixture
async def database(url: URL) -> AsyncIterator[Database]:
    opened = Database(url)
    yield opened
    await opened.close()


@pytest.fixture
async def file_database(tmp_path: Path) -> AsyncIterator[Database]:
    """A database of SQLite, for what asks no other statement of PostgreSQL."""
    opened = Database(make_url(f"sqlite:///{tmp_path / 'folder' / 'tutti.db'}"))
    yield opened
    await opened.close()


def accounts(server: Running) -> Accounts:
    """The accounts of a running server."""
    found = server.service.accounts
    assert isinstance(found, Accounts)
    return found
