"""The contract of the shared store, for the one in memory and for Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.redis_store import RedisStore
from tutti_server.app.sharing.store import MAX_ENTRIES, Entry, Lease, SharedStore

ONE, OTHER = Lease("sessions:team", "one"), Lease("sessions:team", "other")


@pytest.fixture(params=["local", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SharedStore]:
    if request.param == "local":
        yield LocalStore()
        return
    store = RedisStore(request.getfixturevalue("redis").url)
    async with store.running():
        yield store


async def test_a_value_is_new_once(store: SharedStore) -> None:
    """Of several who set it at once, one succeeds; and again when it has ended."""
    assert sorted(await asyncio.gather(*(store.put_new("a", str(n), 60) for n in range(5)))) == [False] * 4 + [True]
    assert await store.get("a") == "0"
    assert await store.put_new("b", "1", 0.01)
    while not await store.put_new("b", "2", 60):
        pass
    assert await store.get("b") == "2"


async def test_a_value_may_end_at_another_time(store: SharedStore) -> None:
    """Its text stays; and one that is not there does not come back."""
    await store.put("a", "1", 60)
    await store.keep("a", 30)
    assert await store.get("a") == "1"
    await store.keep("a", 0.01)
    while await store.get("a"):
        pass
    await store.keep("a", 60)
    assert await store.get("a") is None


async def test_a_lease_has_no_more_holders_than_its_limit(store: SharedStore) -> None:
    """Its holder may take it again, and others once it is given back."""
    assert await store.take(ONE, 1)
    assert await store.take(ONE, 1)
    assert not await store.take(OTHER, 1)
    assert await store.take(OTHER, 2)
    assert await store.holders(["sessions:team", "sessions:none"]) == [{"one", "other"}, frozenset()]
    await store.release([ONE, Lease("sessions:team", "never held")])
    assert await store.holders(["sessions:team"]) == [{"other"}]


async def test_a_lease_is_renewed_whatever_its_limit_is(store: SharedStore) -> None:
    """As a store that was away may have forgotten those that were admitted."""
    await store.renew([ONE, OTHER])
    assert not await store.take(Lease("sessions:team", "third"), 2)
    await store.renew([])
    await store.release([])


async def test_a_lease_that_is_not_renewed_ends(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("local_store", "redis_store"):
        monkeypatch.setattr(f"tutti_server.app.sharing.{module}.LEASE_S", 0.05)
    assert await store.take(ONE, 1)
    while not await store.take(OTHER, 1):
        pass
    assert await store.holders(["sessions:team"]) == [{"other"}]


async def test_counters_add_up(store: SharedStore) -> None:
    await store.add({"day": 1.5, "month": 2}, 60)
    await store.add({"day": 0.25}, 60)
    assert await store.totals(["day", "month", "year"]) == [1.75, 2.0, 0.0]


async def test_what_is_not_kept_ends(store: SharedStore) -> None:
    """Values and counters end after their time, and values may be replaced."""
    await store.put("a", "1", 60)
    await store.put("a", "2", 60)
    await store.put("b", "1", 0.01)
    await store.add({"c": 1}, 0.01)
    assert await store.get("a") == "2"
    while await store.get("b") is not None or await store.totals(["c"]) != [0.0]:
        pass
    assert await store.get("never set") is None


async def test_a_log_is_read_in_order_and_on_from_any_position(store: SharedStore) -> None:
    for value in ("a1", "a2"):
        await store.append("a", value)
    await store.append("b", "b1")
    entries = await store.read({"a": "0", "b": "0"})
    assert [(log, entry.value) for log, entry in entries] == [("a", "a1"), ("a", "a2"), ("b", "b1")]
    first, second = (entry for log, entry in entries if log == "a")
    assert await store.read({"a": first.position}) == [("a", second)]
    assert await store.last("a") == second
    assert await store.last("none") is None


async def test_a_reader_waits_for_the_next_entry(store: SharedStore) -> None:
    """Also in a log that has none yet."""
    reading = asyncio.create_task(store.read({"a": "0", "b": "0"}))
    await asyncio.sleep(0)
    await store.append("c", "of no interest")
    await store.append("b", "b1")
    ((log, entry),) = await reading
    assert (log, entry.value) == ("b", "b1")


async def test_a_reader_may_be_cancelled(store: SharedStore) -> None:
    """It loses nothing, and the store goes on."""
    reading = asyncio.create_task(store.read({"a": "0"}))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await store.append("a", "1")
    assert [entry.value for _, entry in await store.read({"a": "0"})] == ["1"]
    assert store.is_up


async def test_a_reader_returns_without_entries_after_a_while(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("local_store", "redis_store"):
        monkeypatch.setattr(f"tutti_server.app.sharing.{module}.READ_S", 0.05)
    assert await store.read({"a": "0"}) == []


async def test_a_log_keeps_its_newest_entries(store: SharedStore) -> None:
    """So that its memory is bounded. Redis drops a hundred at a time."""
    n = MAX_ENTRIES + 200
    for number in range(n):
        await store.append("a", str(number))
    kept: list[Entry] = []
    while entries := await store.read({"a": kept[-1].position if kept else "0"}):
        kept += [entry for _, entry in entries]
        if kept[-1].value == str(n - 1):
            break
    assert MAX_ENTRIES <= len(kept) <= MAX_ENTRIES + 100
    assert [entry.value for entry in kept] == [str(number) for number in range(n - len(kept), n)]


async def test_a_log_that_has_ended_begins_anew(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shortly:
        for module in ("local_store", "redis_store"):
            shortly.setattr(f"tutti_server.app.sharing.{module}.KEEP_LOG_S", 0.05)
        await store.append("a", "old")
    while await store.last("a"):
        pass
    await store.append("a", "new")
    assert [entry.value for _, entry in await store.read({"a": "0"})] == ["new"]


async def test_numbers_rise(store: SharedStore) -> None:
    """Each is higher than those before, also in a store that has lost what it had."""
    numbers = [await store.next_number("call:1") for _ in range(3)]
    assert numbers == sorted(set(numbers))
    if isinstance(store, RedisStore):
        await store._call("FLUSHALL")
        seconds, _ = await store._call("TIME")
        assert await store.next_number("call:1") >= 1000 * int(seconds)
