"""Databases of both kinds, empty, and the accounts of a server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from tests.app.conftest import Running, Serve
from tests.postgres_server import PostgresServer, postgres_server
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.scopes import CLIENT_SCOPES, Scope
from tutti_server.plugins.accounts.accounts import Accounts
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.keys import key_records


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


class Operator:
    """Makes and withdraws keys beside a running server, as `tutti keys` does in another process."""

    def __init__(self, serve: Serve, folder: Path) -> None:
        self._serve = serve
        self._folder = folder
        self.database = Database(make_url(f"sqlite:///{folder / 'tutti.db'}"))

    def create(self, name: str, *scopes: Scope, **limits: Any) -> str:
        wanted = ApiKey(name=name, scopes=frozenset(scopes) or CLIENT_SCOPES, **limits)
        return self.database.run_here(key_records.create, wanted)[0]

    def withdraw(self, name: str) -> None:
        self.database.run_here(key_records.withdraw, name)

    async def serve(self, **values: Any) -> Running:
        """A server of these keys."""
        return await self._serve(database_keys=True, data_folder=str(self._folder), **values)


@pytest.fixture
def operator(serve: Serve, tmp_path: Path) -> Operator:
    return Operator(serve, tmp_path)


def accounts(server: Running) -> Accounts:
    """The accounts of a running server."""
    found = server.service.accounts
    assert isinstance(found, Accounts)
    return found
