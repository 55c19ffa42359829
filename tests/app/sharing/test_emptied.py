"""A store that loses what it had: who notices, when it is written again, and who waits for that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tutti_server.app.sharing import emptied
from tutti_server.app.sharing.emptied import EmptiedWatch
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import SharedStore, StoreAway


class FragileStore(LocalStore):
    """A store that may be emptied, or be away for one call."""

    can_be_emptied = True

    def __init__(self) -> None:
        super().__init__()
        self.is_away = self.is_emptied_before_renewal = False
        self.was_away, self.was_renewed = asyncio.Event(), asyncio.Event()

    def empty(self) -> None:
        self._values.clear()

    async def get(self, name: str) -> str | None:
        if self.is_away:
            self.is_away = False
            self.was_away.set()
            raise StoreAway("away")
        return await super().get(name)

    async def keep(self, name: str, keep_s: float) -> None:
        if self.is_emptied_before_renewal:
            self.is_emptied_before_renewal = False
            self.empty()
        await super().keep(name, keep_s)
        self.was_renewed.set()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emptied, "WATCH_S", 0.001)
    monkeypatch.setattr(emptied, "SETTLE_S", 0.05)
    monkeypatch.setattr("tutti_server.app.sharing.waiting.RETRY_S", 0.001)


@asynccontextmanager
async def watching(store: SharedStore, write_again: Callable[[], Awaitable[None]]) -> AsyncIterator[EmptiedWatch]:
    """A watch that has found the store as it is."""
    watch = EmptiedWatch(store, "rooms", write_again)
    await watch.settled()
    async with watch.running():
        yield watch


async def test_all_gateways_write_again() -> None:
    """Once for each time, and again if the store is away meanwhile."""
    store, wrote = FragileStore(), [asyncio.Event(), asyncio.Event()]
    n_calls = [0, 0]

    def writer(number: int) -> EmptiedWatch:
        async def write_again() -> None:
            n_calls[number] += 1
            if n_calls[number] == 1:
                raise StoreAway("away")
            wrote[number].set()

        return EmptiedWatch(store, "rooms", write_again)

    one, other = writer(0), writer(1)
    await one.settled()
    async with one.running(), other.running():
        await other.settled()
        store.is_away = True
        await store.was_away.wait()
        assert n_calls == [0, 0]
        store.empty()
        for each in wrote:
            await each.wait()
        await one.settled()
        assert n_calls == [2, 2]


async def test_whoever_misses_something_waits_until_all_have_written() -> None:
    """Also a gateway that has started a moment after the store was emptied, and knows of nothing."""
    store = FragileStore()

    async def write_again() -> None:
        await store.put("name", "taken", 60)

    async with watching(store, write_again):
        store.empty()
        newcomer = EmptiedWatch(store, "rooms", write_again)
        await newcomer.settled()
        assert await store.get("name") == "taken"


async def test_a_mark_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is written again while nothing is lost."""
    monkeypatch.setattr(emptied, "KEEP_MARK_S", 1.0)
    store, written = FragileStore(), []

    async def write_again() -> None:
        written.append("rooms")

    async with watching(store, write_again):
        for _ in range(2):
            store.was_renewed.clear()
            await store.was_renewed.wait()
    assert not written


async def test_a_renewal_does_not_hide_that_the_store_was_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a moment before."""
    monkeypatch.setattr(emptied, "KEEP_MARK_S", 1.0)
    store, wrote = FragileStore(), asyncio.Event()

    async def write_again() -> None:
        wrote.set()

    async with watching(store, write_again):
        store.is_emptied_before_renewal = True
        await wrote.wait()


async def test_a_store_that_is_emptied_right_after_its_first_mark_is_written_again() -> None:
    """Before the gateway has read the mark that it has just made."""

    class Emptied(FragileStore):
        async def put_new(self, name: str, value: str, keep_s: float) -> bool:
            is_new = await super().put_new(name, value, keep_s)
            if not self.was_emptied:
                self.was_emptied = True
                self.empty()
            return is_new

        was_emptied = False

    written = asyncio.Event()

    async def write_again() -> None:
        written.set()

    async with EmptiedWatch(Emptied(), "things", write_again).running():
        await written.wait()


async def test_an_unexpected_failure_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    store, wrote = FragileStore(), asyncio.Event()

    async def write_again() -> None:
        if "fails once" not in caplog.text:
            raise ValueError("fails once")
        wrote.set()

    async with watching(store, write_again):
        store.empty()
        await wrote.wait()


async def test_a_store_that_is_emptied_while_it_is_written_is_written_again() -> None:
    """Whoever waits for it has noticed, and not the watch itself."""
    store, begun, may_end, wrote = FragileStore(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write_again() -> None:
        if begun.is_set():
            wrote.set()
        begun.set()
        await may_end.wait()

    async with watching(store, write_again) as watch:
        store.empty()
        await begun.wait()
        store.empty()
        await watch.settled()
        may_end.set()
        await wrote.wait()


async def test_memory_is_not_watched() -> None:
    store, written = LocalStore(), []

    async def write_again() -> None:
        written.append("rooms")

    watch = EmptiedWatch(store, "rooms", write_again)
    async with watch.running():
        await watch.settled()
    assert not store._values and not written
