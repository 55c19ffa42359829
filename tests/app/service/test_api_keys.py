"""The file of keys: which limits each has, and what is wrong with it."""

from pathlib import Path

import pytest

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.api_keys import ApiKey, read_api_keys
from tutti_server.app.service.scopes import CLIENT_SCOPES
from tutti_server.app.service.settings import Settings

FILE = """
[call-centre]
key = "k1"
sessions = 50
minutes_per_day = 600.5

[trial]
key = "k2"
"""


def written(folder: Path, content: str) -> str:
    path = folder / "keys.toml"
    path.write_text(content)
    return str(path)


def test_each_table_is_a_key(tmp_path: Path) -> None:
    limited, free = read_api_keys(Path(written(tmp_path, FILE)))
    assert limited == ApiKey(name="call-centre", key="k1", sessions=50, minutes_per_day=600.5)
    assert free == ApiKey(name="trial", key="k2")
    assert limited.has_limits and not free.has_limits
    assert "k1" not in repr(limited), "a key would be in the log"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected a table for each key, got none"),
        ("[a", "expected a TOML file that can be read"),
        ("a = 1", r"expected tables only, such as \[a\], got a = 1"),
        ("[a]", "a.key: expected text"),
        ('[a]\nkey = " k"', "a.key: expected text"),
        ('[a]\nkey = "k,l"', "a.key: expected text without commas"),
        ("[a]\nkey = 1", "a.key: expected text"),
        ('[a]\nkey = "schlüssel"', "a.key: expected text .* ASCII characters$"),
        ('[a]\nkey = "k\\nl"', "a.key: expected text .* ASCII characters$"),
        ('[a]\nkey = "k"\nrooms = "no"', "a.rooms: expected true or false, got 'no'"),
        ('[a]\nkey = "k"\njobs = 1.5', "a.jobs: expected an integer from 0, got 1.5"),
        ('[a]\nkey = "k"\nscopes = "live"', "a.scopes: expected a list of scopes, got 'live'"),
        ('[a]\nkey = "k"\nscopes = ["video"]', "a.scopes: expected live, .*, got 'video'"),
        ('[a]\nkey = "k"\nscopes = []', "a.scopes: expected at least one of"),
        ('[a]\nkey = "k"\nsession = 1', "a: expected key, rooms, scopes, sessions, .* got session"),
        ('[a]\nkey = "k"\nsessions = 1.5', "a.sessions: expected an integer from 0, got 1.5"),
        ('[a]\nkey = "k"\nsessions = true', "a.sessions: expected an integer"),
        ('[a]\nkey = "k"\nminutes_per_day = -1', "a.minutes_per_day: expected a number from 0, got -1"),
        ('[a]\nkey = "k"\nminutes_per_month = inf', "a.minutes_per_month: expected a number"),
        ('[a]\nkey = "k"\n[b]\nkey = "k"', "expected another key in each table"),
        ('["a\\n"]\nkey = "k"', "expected names of 1 to 64 characters"),
        ('[" "]\nkey = "k"', "expected names of 1 to 64 characters"),
        ('[unnamed]\nkey = "k"', "expected names .*, other than unnamed, got 'unnamed'"),
    ],
)
def test_a_wrong_file_stops_the_start(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(SettingsError, match=f"keys_file: {message}"):
        Settings(keys_file=written(tmp_path, content))


def test_a_key_that_not_every_client_can_send_stops_the_start() -> None:
    """It is not shown. A line break after the last key, as in a file, belongs to none."""
    with pytest.raises(SettingsError, match="api_keys: expected printable ASCII characters, got others"):
        Settings(api_keys="k,schlüssel")
    assert Settings(api_keys="k,l\n").unnamed_keys == {"k", "l"}


def test_limits_of_several_gateways_need_redis(tmp_path: Path) -> None:
    """Each gateway would allow as much."""
    path = written(tmp_path, FILE)
    with pytest.raises(SettingsError, match="keys_file: expected redis_url with it"):
        Settings(keys_file=path, gateways=2)
    Settings(keys_file=path, gateways=1, host="0.0.0.0")
    Settings(keys_file=path, gateways=2, redis_url="redis://localhost")
    Settings(keys_file=written(tmp_path, '[a]\nkey = "k"'), gateways=2)


@pytest.mark.parametrize("url", ["redis://h", "redis://:secret@h:1/2", "rediss://h:6379", "unix:///tmp/redis.sock"])
def test_an_address_of_redis(url: str) -> None:
    assert Settings(redis_url=url).redis_url == url


@pytest.mark.parametrize(
    "url", ["h:6379", "http://h", "redis://", "redis://h:port", "redis://h/name", "redis://h:0", "unix://"]
)
def test_another_address_is_refused_and_not_shown(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(SettingsError, match="redis_url: expected an address such as redis://host:6379/0") as raised:
        Settings(redis_url=url)
    assert f"{url}," not in str(raised.value)


def test_redis_needs_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.service.settings.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"redis_url: needs redis: pip install 'tutti-asr\[redis\]'"):
        Settings(redis_url="redis://localhost")


def test_a_key_of_the_file_has_scopes(tmp_path: Path) -> None:
    """Without a word the ones of clients; the operator's must be named."""
    path = written(tmp_path, '[a]\nkey = "k"\nscopes = ["metrics"]\njobs = 2\n[b]\nkey = "l"\nrooms = false')
    first, second = read_api_keys(Path(path))
    assert (set(first.scopes), first.jobs, first.account) == ({"metrics"}, 2, "a")
    assert second.scopes == CLIENT_SCOPES and not second.may_open_rooms and not first.may_open_rooms
