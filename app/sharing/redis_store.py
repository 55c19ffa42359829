"""The shared store in Redis or Valkey. A store that does not answer is left alone until a probe finds it back."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from tutti_server.app.background import in_background
from tutti_server.app.errors import SettingsError
from tutti_server.app.retries import backoff_s
from tutti_server.app.sharing.store import (
    KEEP_LOG_S,
    KEEP_NUMBER_S,
    LEASE_S,
    MAX_ENTRIES,
    READ_S,
    Entry,
    Lease,
    StoreAway,
)

logger = logging.getLogger(__name__)

CALL_S = 0.5
"""The time limit of one call, and of the wait for its turn, in seconds: no session waits longer."""
MAX_CALLS = 16
"""The most calls at the same time. More wait for their turn."""
MAX_CONNECTIONS = MAX_CALLS + 2
"""Connections to the store: for calls, for the one reader, and for a probe."""
READ_COUNT = 200
"""The most entries of each log that one `read` returns."""
FIRST_PROBE_S = 0.1
"""The longest wait before the first probe, in seconds; later waits double."""
MAX_PROBE_S = 5.0
"""The longest wait between two probes, in seconds."""
PREFIX = "tutti:"
"""The first characters of every key."""
NO_LIMIT = 1 << 31
"""A limit that is never reached."""

NOW_MS = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000);"
"""The clock of the store, which all gateways share. In milliseconds."""
TAKE = (
    NOW_MS
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
)
"""Takes a lease. Its key is a sorted set: the holders, by the time at which their leases end."""
HOLDERS = NOW_MS + "return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')"
"""Lists the holders of a lease."""
NEXT_NUMBER = (
    NOW_MS
    + """
local last = tonumber(redis.call('GET', KEYS[1])) or 0
local number = now
if last < 2 ^ 53 - 1 then number = math.max(now, last + 1) end
redis.call('SET', KEYS[1], string.format('%d', number), 'PX', ARGV[1])
return string.format('%d', number)
"""
)
"""Returns the time of the store, or the last number and 1 if that is more."""

PUT_NEW = """
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
    redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
    return 1
end
return redis.call('EXISTS', KEYS[2])
"""
"""Sets a value unless there is one. Its second key stands for the call: the client sends a call whose answer was lost
again, and the second time the value is there.
"""

REFUSALS = (AuthenticationError, AuthorizationError, ResponseError)
"""Answers that do not change by themselves. An answer of a store that is still loading is none of them."""
WRONG_TYPE = "WRONGTYPE"
"""Begins the answer to a question for a text where there is something else."""
POISONED = (WRONG_TYPE, "not a valid float", "would produce NaN or Infinity", "exhausted the last possible ID")
"""Parts of the answers of a store in which another program has written under our names."""
LAST_ID = f"{(1 << 64) - 1}-{(1 << 64) - 1}"
"""After an entry with this id a log takes no other."""
TYPES = {"log": "stream", "lease": "zset", "counter": "string", "number": "string", "value": "string", "call": "string"}
"""What the store calls the values of each kind of our names."""

Command = tuple[str | int | float, ...]


async def check_credentials(url: str) -> None:
    """Try the address, its user and its password. A store that cannot be reached now is no error.

    Raises:
        SettingsError: the store refuses the user, the password or the database, or the address has a wrong option.
    """
    try:
        client = _client(url)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"redis_url: expected options that Redis' client knows; it says: {error}") from None
    try:
        async with asyncio.timeout(CALL_S):
            await client.execute_command("PING")
    except TypeError as error:
        raise SettingsError(f"redis_url: expected options that Redis' client knows; it says: {error}") from None
    except (RedisError, OSError, TimeoutError) as error:
        # The client wraps what Redis answers while it connects. Without an answer the store may come back.
        answer = error.__cause__ if isinstance(error.__cause__, RedisError) else error
        if isinstance(answer, REFUSALS):
            expected = "a user, a password and a database that Redis accepts"
            raise SettingsError(f"redis_url: expected {expected}; it says: {answer}") from None
    finally:
        await client.aclose()


class RedisStore:
    """A `SharedStore` in Redis or Valkey, used while `running` is open."""

    can_be_emptied = True

    def __init__(
        self,
        url: str,
        on_change: Callable[[bool], None] = lambda is_up: None,
        on_unreadable: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the store; nothing is connected yet.

        Args:
            url: `redis://`, `rediss://` or `unix://`.
            on_change: called with False when the store does not answer, and with True when it is back.
            on_unreadable: called for each value that is no text.
        """
        self._client = _client(url)
        self._on_change = on_change
        self._on_unreadable = on_unreadable
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._is_up = asyncio.Event()
        self._is_away = asyncio.Event()
        self._is_away.set()

    @property
    def is_up(self) -> bool:
        """See `SharedStore`."""
        return self._is_up.is_set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See `SharedStore`. Probes the store once before it returns."""
        if error := await self._probe():
            self._tell_away(error)
        try:
            async with in_background(self._keep_probing()):
                yield
        finally:
            await self._client.aclose()

    async def wait_until_up(self) -> None:
        """See `SharedStore`."""
        await self._is_up.wait()

    async def take(self, lease: Lease, limit: int) -> bool:
        """See `SharedStore`."""
        return bool(await self._call(*_take(lease, limit)))

    async def renew(self, leases: Collection[Lease]) -> None:
        """See `SharedStore`."""
        await self._call_all([_take(lease, NO_LIMIT) for lease in leases])

    async def release(self, leases: Collection[Lease]) -> None:
        """See `SharedStore`."""
        await self._call_all([("ZREM", _key("lease", lease.name), lease.holder) for lease in leases])

    async def holders(self, names: Sequence[str]) -> list[frozenset[str]]:
        """See `SharedStore`."""
        return list(map(frozenset, await self._call_all([("EVAL", HOLDERS, 1, _key("lease", name)) for name in names])))

    async def add(self, amounts: Mapping[str, float], keep_s: float) -> None:
        """See `SharedStore`."""
        keys = {_key("counter", counter): amount for counter, amount in amounts.items()}
        additions: list[Command] = [("INCRBYFLOAT", key, amount) for key, amount in keys.items()]
        # In one transaction: a part of it would be counted again with the next attempt.
        await self._call_all(additions + [("PEXPIRE", key, round(keep_s * 1000)) for key in keys], is_atomic=True)

    async def totals(self, counters: Sequence[str]) -> list[float]:
        """See `SharedStore`."""
        found = await self._call("MGET", *(_key("counter", each) for each in counters))
        return [float(total or 0) if _is_number(total) else 0.0 for total in found]

    async def next_number(self, name: str) -> int:
        """See `SharedStore`."""
        keep_ms = round(KEEP_NUMBER_S * 1000)
        return int(await self._call("EVAL", NEXT_NUMBER, 1, _key("number", name), keep_ms))

    async def put(self, name: str, value: str, keep_s: float) -> None:
        """See `SharedStore`."""
        await self._call("SET", _key("value", name), value, "PX", max(round(keep_s * 1000), 1))

    async def put_new(self, name: str, value: str, keep_s: float) -> bool:
        """See `SharedStore`."""
        keys = (_key("value", name), _key("call", token_hex(8)))
        keep_ms, keep_call_ms = max(round(keep_s * 1000), 1), round(2 * CALL_S * 1000)
        return bool(await self._call("EVAL", PUT_NEW, len(keys), *keys, value, keep_ms, keep_call_ms))

    async def keep(self, name: str, keep_s: float) -> None:
        """See `SharedStore`."""
        await self._call("PEXPIRE", _key("value", name), max(round(keep_s * 1000), 1))

    async def get(self, name: str) -> str | None:
        """See `SharedStore`."""

        async def work() -> str | None:
            try:
                value: str | None = await self._client.execute_command("GET", _key("value", name))
            except ResponseError as error:
                if not str(error).startswith(WRONG_TYPE):
                    raise
                # Another program has written here: the store is not away for that.
                self._on_unreadable()
                return None
            return value

        found: str | None = await self._in_turn(work)
        return found

    async def append(self, log: str, value: str) -> None:
        """See `SharedStore`."""
        key = _key("log", log)
        await self._call_all(
            [
                ("XADD", key, "MAXLEN", "~", MAX_ENTRIES, "*", "value", value),
                ("PEXPIRE", key, round(KEEP_LOG_S * 1000)),
            ]
        )

    async def last(self, log: str) -> Entry | None:
        """See `SharedStore`."""
        entries = await self._call("XREVRANGE", _key("log", log), "+", "-", "COUNT", 1)
        return _entry(*entries[0]) if entries else None

    async def read(self, positions: Mapping[str, str]) -> list[tuple[str, Entry]]:
        """See `SharedStore`."""
        logs = {_key("log", log): log for log in positions}
        block: Command = ("COUNT", READ_COUNT, "BLOCK", round(READ_S * 1000))
        command: Command = ("XREAD", *block, "STREAMS", *logs, *positions.values())
        work = partial(self._client.execute_command, *command)
        found = await self._limited(partial(self._cleaned, work, [command]), READ_S + CALL_S)
        return [(logs[key], _entry(*entry)) for key, entries in found or () for entry in entries]

    async def _call(self, *command: str | int | float) -> Any:
        work = partial(self._client.execute_command, *command)
        return await self._in_turn(partial(self._cleaned, work, [command]))

    async def _call_all(self, commands: Sequence[Command], is_atomic: bool = False) -> list[Any]:
        """Send commands together; in one transaction if `is_atomic`."""
        if not commands:
            return []

        async def work() -> list[Any]:
            async with self._client.pipeline(transaction=is_atomic) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return list(await pipeline.execute())

        answers: list[Any] = await self._in_turn(partial(self._cleaned, work, commands, is_repeated=not is_atomic))
        return answers

    async def _cleaned(
        self, work: Callable[[], Awaitable[Any]], commands: Sequence[Command], *, is_repeated: bool = True
    ) -> Any:
        """The answer to these commands, after what another program has written under their names was removed.

        One wrong value must not make the store count as away for everybody. What a transaction has done it does not
        undo, so it is not sent again: it has no answer then.
        """
        try:
            return await work()
        except ResponseError as error:
            if not any(each in str(error) for each in POISONED):
                raise
        for _ in range(await _remove_poison(self._client, commands)):
            self._on_unreadable()
        return await work() if is_repeated else []

    async def _in_turn(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """The answer of the store to a call that waits for its turn. Raises like `_limited`."""
        self._check_up()
        try:
            async with asyncio.timeout(CALL_S):
                await self._turns.acquire()
        except TimeoutError:
            # The store is there, and this process has too many calls for it: no reason to stop them all.
            raise StoreAway("too many calls wait for Redis") from None
        try:
            return await self._limited(work, CALL_S)
        finally:
            self._turns.release()

    async def _limited(self, work: Callable[[], Awaitable[Any]], limit_s: float) -> Any:
        """The answer of the store, within a time limit. Raises `StoreAway`, at once until a probe finds it back."""
        self._check_up()
        try:
            async with asyncio.timeout(limit_s):
                return await work()
        except Exception as error:
            # Whatever Redis' client raises, no session may fail for it.
            self._note_away(error)
            raise StoreAway("Redis cannot be reached") from error

    def _check_up(self) -> None:
        if not self.is_up:
            raise StoreAway("Redis cannot be reached")

    def _note_away(self, error: Exception) -> None:
        if self.is_up:
            self._is_up.clear()
            self._is_away.set()
            self._tell_away(error)

    def _tell_away(self, error: Exception) -> None:
        logger.warning("Redis does not answer: %s", _described(error))
        self._on_change(False)

    async def _keep_probing(self) -> None:
        while True:
            await self._is_away.wait()
            n_failures = 0
            while not self.is_up:
                n_failures += 1
                await asyncio.sleep(backoff_s(n_failures, FIRST_PROBE_S, MAX_PROBE_S))
                await self._probe()

    async def _probe(self) -> Exception | None:
        """Write to the store: one that is full or read-only is of no use, either. Returns why it is away if it is."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._client.execute_command("SET", f"{PREFIX}probe", 1, "EX", 60)
        except Exception as error:
            logger.debug("Redis does not answer a probe: %s", _described(error))
            return error
        self._is_away.clear()
        self._is_up.set()
        logger.info("Redis answers")
        self._on_change(True)
        return None


def _client(url: str) -> Any:  # the method for all commands has no types
    ours = {
        "max_connections": MAX_CONNECTIONS,
        "decode_responses": True,
        # What another program has written and is no text: its reader finds out, and the store is not away for that.
        "encoding_errors": "replace",
        # The version that every Redis and Valkey speaks.
        "protocol": 2,
        # Our own time limits hold for all calls.
        "timeout": None,
        "socket_timeout": None,
        "socket_connect_timeout": CALL_S,
        # Once, as a connection that was not used for a while may have been closed by the store.
        "retry": Retry(NoBackoff(), 1),
    }
    # Those of the address would replace ours: a shorter time limit would end each wait for news.
    if taken := sorted(ours.keys() & parse_url(url).keys()):
        raise SettingsError(f"redis_url: expected no option {taken[0]}, which the service sets itself")
    return Redis.from_pool(BlockingConnectionPool.from_url(url, **ours))


def _take(lease: Lease, limit: int) -> Command:
    return ("EVAL", TAKE, 1, _key("lease", lease.name), lease.holder, limit, round(LEASE_S * 1000))


def _key(kind: str, name: str) -> str:
    return f"{PREFIX}{kind}:{name}"


def _entry(position: str, fields: Mapping[str, str]) -> Entry:
    # Another program may have written other fields.
    return Entry(position, fields.get("value", ""))


async def _remove_poison(client: Any, commands: Sequence[Command]) -> int:
    """Remove what is no value of ours under the names in these commands. Returns how many were removed."""
    keys = sorted({str(part) for each in commands for part in each if str(part).startswith(PREFIX)})
    # Together, as a gateway renews thousands of leases by one call.
    types = zip(keys, await _answers(client, [("TYPE", key) for key in keys]), strict=True)
    found = {key: type_ for key, type_ in types if type_ != "none"}
    poison = {key for key, type_ in found.items() if type_ != TYPES.get(_kind(key))}
    rest = [key for key in found if key not in poison and _kind(key) in ("counter", "log")]
    # Redis itself says what it can count, and which entry was the last.
    questions: list[Command] = [
        ("INCRBYFLOAT", key, 0) if _kind(key) == "counter" else ("XINFO", "STREAM", key) for key in rest
    ]
    for key, answer in zip(rest, await _answers(client, questions), strict=True):
        if isinstance(answer, ResponseError) or (_kind(key) == "log" and LAST_ID in answer):
            poison.add(key)
    for key in sorted(poison):
        logger.warning("%s: expected a %s that can be used, got something else, which is removed", key, _kind(key))
    await _answers(client, [("UNLINK", key) for key in poison])
    return len(poison)


async def _answers(client: Any, commands: Sequence[Command]) -> list[Any]:
    """The answers to commands that are sent together; an error in place of each that the store refuses."""
    if not commands:
        return []
    async with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute(raise_on_error=False))


def _kind(key: str) -> str:
    """The kind of a name of ours."""
    return key.removeprefix(PREFIX).partition(":")[0]


def _is_number(text: str | None) -> bool:
    """Whether a counter has this value; nothing counts as 0."""
    try:
        return math.isfinite(float(text or 0))
    except ValueError:
        return False


def _described(error: Exception) -> str:
    return f"no answer within {CALL_S:g} s" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
