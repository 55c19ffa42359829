"""Which keys of the database a gateway accepts, and how it goes on without the database."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.plugins.accounts.conftest import Unsteady
from tutti_server.app.errors import RequestError
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.keys import key_records
from tutti_server.plugins.accounts.keys.key_directory import KEEP_S, READ_ALL_S, KeyDirectory

Result = TypeVar("Result")


class Times:
    """Two clocks of a directory."""

    clock_s = 100.0
    now_s = 1e9


def directory_of(database: Database, times: Times | None = None) -> KeyDirectory:
    times = times or Times()
    return KeyDirectory(database, lambda: times.clock_s, lambda: times.now_s)


async def made(database: Database, name: str, expires: float | None = None) -> str:
    key, _ = await database.run(key_records.create, ApiKey(name=name), expires)
    return key


async def until(condition: Callable[[], Result | None]) -> Result:
    """What a condition returns as soon as it holds; the loop runs meanwhile."""
    while not (result := condition()):
        await asyncio.to_thread(lambda: None)
    return result


async def test_changes_are_known_without_a_restart(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is valid soon after it was made, and invalid soon after it was withdrawn or rotated."""
    monkeypatch.setattr("tutti_server.plugins.accounts.keys.key_directory.POLL_S", 0.01)
    directory = directory_of(database)
    async with asyncio.timeout(30), directory.running():
        key = await made(database, "acme")
        record = await until(lambda: directory.find(key))
        assert record.name == "acme" and directory.find_id(record.id) == record
        new, _ = await database.run(key_records.rotate, "acme")
        await until(lambda: directory.find(key) is None)
        assert directory.find(new)
        await database.run(key_records.withdraw, "acme")
        await until(lambda: directory.find(new) is None)
        assert directory.find_id(record.id) is None


async def test_changes_are_known_after_an_unexpected_failure(
    unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a key that was withdrawn would be valid until a restart."""
    monkeypatch.setattr("tutti_server.plugins.accounts.keys.key_directory.POLL_S", 0.01)
    directory = directory_of(unsteady)
    key = await made(unsteady, "acme")
    async with asyncio.timeout(30), directory.running():
        unsteady.is_wrong = True
        await until(lambda: "an unexpected error" in caplog.text)
        unsteady.is_wrong = False
        assert directory.find(key)
        await unsteady.run(key_records.withdraw, "acme")
        await until(lambda: directory.find(key) is None)


async def test_unknown_keys_cost_no_query(unsteady: Unsteady) -> None:
    directory = directory_of(unsteady)
    await directory.refresh()
    before = unsteady.n_asked
    for key in (None, "", "k", "tutti_", "tutti_x", "é"):
        assert directory.find(key) is None
    assert unsteady.n_asked == before


async def test_a_key_expires(unsteady: Unsteady) -> None:
    times = Times()
    key = await made(unsteady, "acme", times.now_s + 10)
    directory = directory_of(unsteady, times)
    await directory.refresh()
    assert directory.find(key)
    times.now_s += 10
    assert directory.find(key) is None


async def test_without_the_database_known_keys_go_on_for_a_bounded_time(unsteady: Unsteady) -> None:
    """Unknown ones are refused with 503: they may have been made meanwhile. What is no such key needs no database."""
    times = Times()
    key = await made(unsteady, "acme")
    directory = directory_of(unsteady, times)
    await directory.refresh()
    assert directory.problem is None
    unsteady.is_away = True
    await directory.refresh()
    assert directory.problem
    assert directory.find(key) and directory.find("k") is None
    with pytest.raises(RequestError, match="the database of keys cannot be reached") as refused:
        directory.find("tutti_unknown")
    assert (refused.value.status, refused.value.code) == (503, "keys_away")
    times.clock_s += KEEP_S + 1
    with pytest.raises(RequestError):
        directory.find(key)
    unsteady.is_away = False
    await directory.refresh()
    assert directory.find(key) and directory.find("tutti_unknown") is None and directory.problem is None


@pytest.mark.parametrize("was_away", [True, False])
async def test_a_copy_that_was_restored_is_read_anew(unsteady: Unsteady, was_away: bool) -> None:
    """Its changes have numbers that were used before. A key that the copy lacks is no key any more."""
    directory = directory_of(unsteady)
    old = await made(unsteady, "old")
    path = Path(unsteady._url.database or "")
    copy = await asyncio.to_thread(path.read_bytes)
    lost = [await made(unsteady, f"lost {number}") for number in range(3)]
    await directory.refresh()
    assert all(directory.find(key) for key in (old, *lost))
    if was_away:
        unsteady.is_away = True
        await directory.refresh()
        unsteady.is_away = False
    await asyncio.to_thread(path.write_bytes, copy)
    for number in range(3 if was_away else 1):
        await made(unsteady, f"new {number}")
    await unsteady.run(key_records.withdraw, "old")
    await directory.refresh()
    assert {each.name for each in directory.records if each.withdrawn is None} == (
        {"new 0", "new 1", "new 2"} if was_away else {"new 0"}
    )
    assert not any(directory.find(key) for key in (old, *lost))


async def test_a_copy_with_as_many_changes_is_read_anew_in_time(unsteady: Unsteady) -> None:
    """It was restored between two looks, and changed at once: nothing tells it from the database before."""
    times = Times()
    directory = directory_of(unsteady, times)
    path = Path(unsteady._url.database or "")
    await made(unsteady, "old")
    copy = await asyncio.to_thread(path.read_bytes)
    lost = await made(unsteady, "lost")
    await directory.refresh()
    await asyncio.to_thread(path.write_bytes, copy)
    new = await made(unsteady, "new")
    times.clock_s += READ_ALL_S
    await directory.refresh()
    assert directory.find(new)
    assert not directory.find(lost)
