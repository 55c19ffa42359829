"""`tutti keys` makes, shows, rotates and withdraws keys in the database of the settings."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tutti_server.app.cli.commands import cli
from tutti_server.plugins.accounts.keys.key_records import hash_of


@pytest.fixture
def tutti(tmp_path: Path) -> "Tutti":
    return Tutti(tmp_path)


class Tutti:
    """Runs commands with one data folder."""

    def __init__(self, folder: Path) -> None:
        self._environment = {"TUTTI_DATA_FOLDER": str(folder), "TUTTI_DATABASE_URL": ""}

    def __call__(self, *arguments: str) -> str:
        done = CliRunner().invoke(cli, ["keys", *arguments], env=self._environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments))

    def error(self, *arguments: str) -> str:
        done = CliRunner().invoke(cli, ["keys", *arguments], env=self._environment)
        assert done.exit_code != 0 and isinstance(done.exception, SystemExit)
        return done.stderr


def test_a_key_is_shown_once(tutti: Tutti) -> None:
    """Later commands show its record, and neither the key nor its hash."""
    limits = ("--sessions", "10", "--hours-per-month", "100", "--hours-per-day", "1.5", "--jobs", "3")
    key = tutti("create", "acme", "--scope", "live", "--scope", "files", *limits, "--expires", "2999-01-01").strip()
    assert key.startswith("tutti_")
    record = tutti.json("show", "acme")
    assert record | {"id": "", "created": ""} == {
        "id": "",
        "name": "acme",
        "scopes": ["files", "live"],
        "limits": {"sessions": 10, "minutes_per_day": 90.0, "minutes_per_month": 6000.0, "jobs": 3},
        "created": "",
        "expires": "2999-01-01T00:00:00Z",
        "withdrawn": None,
        "old_key_until": None,
    }
    shown = tutti("list") + tutti("list", "--json") + tutti("show", record["id"])
    assert key not in shown and hash_of(key) not in shown
    assert "acme  files,live  expires 2999-01-01T00:00:00Z  sessions 10, minutes_per_day 90" in tutti("list")


def test_a_key_is_rotated_and_withdrawn(tutti: Tutti) -> None:
    made = tutti.json("create", "acme", "--json")
    assert made["scopes"] == ["files", "jobs", "live", "rooms"] and made["limits"] == {}
    rotated = tutti.json("rotate", "acme", "--keep-old-minutes", "60", "--json")
    assert rotated["id"] == made["id"] and rotated["key"] != made["key"] and rotated["old_key_until"]
    tutti("withdraw", made["id"])
    assert tutti("list") == "" and tutti.json("list", "--json") == []
    (record,) = tutti.json("list", "--all", "--json")
    assert record["withdrawn"]
    assert "  withdrawn " in tutti("list", "--all")


def test_what_cannot_be_done_is_said(tutti: Tutti) -> None:
    tutti("create", "acme")
    assert "expected a name that no key in use has, got 'acme'" in tutti.error("create", "acme")
    assert "expected the name or the id of a key, got 'other'" in tutti.error("withdraw", "other")
    assert "expected a name in UTF-8, got '\\udcff'" in tutti.error("show", "\udcff")
    assert "expected a day after today, got 2020-01-01" in tutti.error("create", "b", "--expires", "2020-01-01")
    assert "'video' is not one of" in tutti.error("create", "b", "--scope", "video")
    # PostgreSQL has no room for more.
    for limit in ("--sessions", "--jobs"):
        assert "2147483648 is not in the range" in tutti.error("create", "b", limit, "2147483648")
    for limit in ("--hours-per-day", "--hours-per-month"):
        assert "nan is not in the range" in tutti.error("create", "b", limit, "nan")
        assert "inf is not in the range" in tutti.error("create", "b", limit, "inf")
    # Else the new key would be lost: no date is so late.
    assert "--keep-old-minutes" in tutti.error("rotate", "acme", "--keep-old-minutes", "inf", "--json")
    assert "--keep-old-minutes" in tutti.error("rotate", "acme", "--keep-old-minutes", "nan", "--json")
    assert "expected postgresql://" in tutti.error("list", "--database-url", "mysql://h/d")
