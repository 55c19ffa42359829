"""A Redis that goes away and comes back: calls fail at once, and nothing has to be started again."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tutti_server.app.errors import SettingsError
from tutti_server.app.publish.call_entries import MAX_NUMBER
from tutti_server.app.sharing.redis_store import LAST_ID, RedisStore, check_credentials
from tutti_server.app.sharing.store import Lease, StoreAway


async def test_it_is_away_until_it_is_back(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    changes: list[bool] = []
    store = RedisStore(redis.url, changes.append)
    async with store.running():
        assert store.is_up
        redis.kill()
        for _ in range(3):
            with pytest.raises(StoreAway):
                await store.get("a")
        assert not store.is_up
        redis.start()
        await store.wait_until_up()
        await store.put("a", "1", 60)
        assert await store.get("a") == "1"
    assert changes == [True, False, True]
    assert "Redis does not answer" in caplog.text


@asynccontextmanager
async def losing_answers(redis: RedisServer, path: Path, to_calls_with: bytes) -> AsyncIterator[list[bytes]]:
    """A way to the server at this path. It is cut once, after the server has answered a call with these bytes.

    The context yields the answers that were lost.
    """
    lost: list[bytes] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(redis.url.removeprefix("unix://"))
        while call := await reader.read(1 << 16):
            to_server.write(call)
            answer = await from_server.read(1 << 16)
            if to_calls_with in call and not lost:
                lost.append(answer)
                break
            writer.write(answer)
        for each in (to_server, writer):
            each.close()

    async with await asyncio.start_unix_server(connect, path):
        yield lost


async def test_a_value_is_new_though_the_answer_was_lost(redis: RedisServer, tmp_path: Path) -> None:
    """The client sends the call again, and finds what it has set itself."""
    async with losing_answers(redis, tmp_path / "s", b"nonce") as lost:
        store = RedisStore(f"unix://{tmp_path}/s")
        async with store.running():
            assert await store.put_new("nonce", "1", 60)
            assert len(lost) == 1
            assert not await store.put_new("nonce", "2", 60)
            assert await store.get("nonce") == "1"


async def test_a_start_without_it_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why it is away: its address may be wrong."""
    changes: list[bool] = []
    store = RedisStore("unix:///nowhere/redis.sock", changes.append)
    async with store.running():
        assert not store.is_up
        with pytest.raises(StoreAway):
            await store.take(Lease("a", "b"), 1)
    assert changes == [False]
    assert caplog.text.count("WARNING") == 1
    assert "Redis does not answer: ConnectionError: Error 2 connecting to /nowhere/redis.sock" in caplog.text


async def test_one_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has lost its network accepts nothing and refuses nothing."""
    monkeypatch.setattr("tutti_server.app.sharing.redis_store.CALL_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        store = RedisStore(f"unix://{tmp_path}/s")
        async with store.running():
            assert not store.is_up
        await check_credentials(f"unix://{tmp_path}/s")


async def test_one_that_takes_nothing_is_of_no_use(redis: RedisServer) -> None:
    """A store that is full refuses to write: it counts as away, until it has room."""
    store, operator = RedisStore(redis.url), RedisStore(redis.url)
    async with operator.running(), store.running():
        await operator._call("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreAway):
            await store.put("a", "1", 60)
        await operator._call("CONFIG", "SET", "maxmemory", "0")
        await store.wait_until_up()
        await store.put("a", "1", 60)


async def test_a_wrong_password_is_an_error_at_the_start(redis: RedisServer) -> None:
    """It would never get better by itself."""
    operator = RedisStore(redis.url)
    async with operator.running():
        await operator._call("CONFIG", "SET", "requirepass", "right")
        for wrong in ("", "?password=wrong", "?password=right&db=77"):
            with pytest.raises(SettingsError, match="redis_url: expected a user, a password and a database"):
                await check_credentials(redis.url + wrong)
        await check_credentials(f"{redis.url}?password=right")
    await check_credentials("unix:///nowhere/redis.sock")


async def test_options_that_the_client_does_not_know_are_an_error() -> None:
    with pytest.raises(SettingsError, match="redis_url: expected options that Redis' client knows"):
        await check_credentials("unix:///nowhere/redis.sock?colour=red")


@pytest.mark.parametrize("option", ["socket_timeout=1", "protocol=3", "retry=1"])
async def test_options_that_the_store_sets_itself_are_an_error(option: str) -> None:
    """A time limit of one second would make it away each time that nothing new came for so long."""
    with pytest.raises(SettingsError, match=f"redis_url: expected no option {option[:-2]}, which"):
        await check_credentials(f"unix:///nowhere/redis.sock?{option}")


async def test_too_many_calls_do_not_wait_for_long(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fail, and Redis counts as reachable: the calls before them are answered."""
    monkeypatch.setattr("tutti_server.app.sharing.redis_store.MAX_CALLS", 1)
    store = RedisStore(redis.url)
    async with store.running():
        async with store._turns:
            monkeypatch.setattr("tutti_server.app.sharing.redis_store.CALL_S", 0.01)
            with pytest.raises(StoreAway, match="too many calls"):
                await store.get("a")
        monkeypatch.undo()
        assert store.is_up and await store.get("a") is None


POISON: dict[str, tuple[str | int, ...]] = {
    "log": ("SET", "tutti:log:a", "x"),
    "lease": ("SET", "tutti:lease:a", "x"),
    "counter": ("SET", "tutti:counter:a", "many"),
    "a counter of another type": ("RPUSH", "tutti:counter:a", "x"),
    "a counter without end": ("SET", "tutti:counter:a", "inf"),
    "an empty counter": ("SET", "tutti:counter:a", ""),
    "a counter after a space": ("SET", "tutti:counter:a", " 5"),
    "a log that takes no other entry": ("XADD", "tutti:log:a", LAST_ID, "value", "x"),
    "number": ("RPUSH", "tutti:number:a", "x"),
    "a number that is too large": ("SET", "tutti:number:a", "1e300"),
    "the largest number": ("SET", "tutti:number:a", MAX_NUMBER - 1),
    "value": ("RPUSH", "tutti:value:a", "x"),
}


@pytest.mark.parametrize("kind", POISON)
async def test_one_wrong_value_does_not_make_it_away_for_all(redis: RedisServer, kind: str) -> None:
    """Another program has written under our names: what it has written is counted and removed."""
    unread: list[None] = []
    changes: list[bool] = []
    store = RedisStore(redis.url, changes.append, lambda: unread.append(None))
    lease = Lease("a", "me")
    async with store.running():
        changes.clear()
        await store._client.execute_command(*POISON[kind])
        await store.totals(["a", "b"])
        await store.add({"a": 1.0, "b": 2.0}, 60)
        await store.add({"a": 1.0}, 60)
        assert (await store.totals(["b"])) == [2.0] and (await store.totals(["a"]))[0] in (1.0, 2.0)
        assert await store.next_number("a") < MAX_NUMBER
        assert await store.get("a") is None
        await store.put("a", "v", 60)
        assert await store.get("a") == "v"
        last = await store.last("a")
        assert last is None or last.position == LAST_ID
        await store.append("a", "entry")
        assert [entry.value for _, entry in await store.read({"a": "0", "b": "0"})] == ["entry"]
        assert await store.take(lease, 1) and await store.holders(["a"]) == [frozenset({"me"})]
        await store.renew([lease])
    assert changes == [] and len(unread) == ("number that" not in kind and "largest" not in kind)


async def test_a_log_that_is_poisoned_while_it_is_read_is_read_again(redis: RedisServer) -> None:
    """Those of other calls are in the same question."""
    store = RedisStore(redis.url)
    async with store.running():
        await store.append("good", "entry")
        await store._client.execute_command(*POISON["log"])
        assert [(log, entry.value) for log, entry in await store.read({"a": "0", "good": "0"})] == [("good", "entry")]
        assert store.is_up


async def test_one_of_thousands_of_leases_is_found_quickly(redis: RedisServer) -> None:
    """What thousands of leases are is asked together, as a call has half a second."""
    leases = [Lease(f"{number}", "me") for number in range(3000)]
    store = RedisStore(redis.url)
    async with store.running():
        await store._client.execute_command("SET", "tutti:lease:1", "x")
        before = await store._client.execute_command("INFO", "stats")
        await store.renew(leases)
        after = await store._client.execute_command("INFO", "stats")
        assert await store.holders(["1"]) == [frozenset({"me"})]
    # Redis reads what is sent together at once.
    n_reads = after["total_reads_processed"] - before["total_reads_processed"]
    assert n_reads < len(leases) / 2
