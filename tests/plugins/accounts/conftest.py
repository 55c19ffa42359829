"""Databases of both kinds, empty, and the accounts of a server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from tests.app.conftest import Running
from tests.postgres_server import PostgresServer, postgres_server
from tutti_server.plugins.accounts.accounts import Accounts
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway


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


class Unsteady(Database):
    """A database that can be away, whose answers can be lost, and that can fail in a way nothing is prepared for."""

    is_away = False
    is_wrong = False
    loses_answers = False
    n_asked = 0

    async def run(self, work: Any, *arguments: Any, **named: Any) -> Any:
        self.n_asked += 1
        if self.is_wrong:
            raise ValueError("an unexpected error")
        if self.is_away:
            raise DatabaseAway("it is away")
        result = await super().run(work, *arguments, **named)
        if self.loses_answers:
            raise DatabaseAway("the connection was lost")
        return result


@pytest.fixture
async def unsteady(tmp_path: Path) -> Unsteady:
    return Unsteady(make_url(f"sqlite:///{tmp_path / 'tutti.db'}"))


def accounts(server: Running) -> Accounts:
    """The accounts of a running server."""
    found = server.service.accounts
    assert isinstance(found, Accounts)
    return found
