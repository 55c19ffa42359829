"""Addresses of the database are checked before anything is dialled, and never shown where they may hold a password."""

from pathlib import Path

import pytest

from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.database.address import database_address, file_address, state_folder


@pytest.mark.parametrize("url", ["postgresql://tutti:secret@host/name", "postgres://tutti:secret@host/name"])
def test_postgresql_gets_our_driver(url: str) -> None:
    address = database_address(url)
    assert (address.drivername, address.host, address.password) == ("postgresql+psycopg", "host", "secret")


def test_a_line_break_at_the_end_is_no_part_of_the_name() -> None:
    assert database_address("postgresql://host/name\n").database == "name"


def test_a_file_may_be_named() -> None:
    assert database_address("sqlite:////var/lib/tutti/tutti.db").database == "/var/lib/tutti/tutti.db"


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/name", "sqlite://", "sqlite:///:memory:", "secret", "postgresql://host"]
)
def test_other_addresses_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SettingsError, match="database_url: expected postgresql://") as caught:
        database_address(url)
    assert "secret" not in str(caught.value)


def test_options_that_the_client_does_not_know_are_refused() -> None:
    assert database_address("postgresql://host/name?sslmode=require&host=a&host=b").query["sslmode"] == "require"
    with pytest.raises(SettingsError, match=r'it says: invalid connection option "schema"$'):
        database_address("postgresql://host/name?schema=public")


def test_without_an_address_there_is_a_file_in_the_folder_for_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    assert file_address(state_folder()).database == f"{tmp_path}/tutti/tutti.db"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert state_folder() == Path("/home/somebody/.local/state/tutti")
