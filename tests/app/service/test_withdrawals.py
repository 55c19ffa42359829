"""Withdrawn client secrets: at all gateways, and until they expire."""

import time

import pytest

from tests.redis_server import RedisServer
from tutti_server.app.service.client_secrets import sign
from tutti_server.app.service.withdrawals import Withdrawals
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.redis_store import RedisStore
from tutti_server.app.sharing.store import StoreAway


async def test_a_secret_that_one_gateway_withdraws_is_withdrawn_at_all() -> None:
    store = LocalStore()
    one, other = Withdrawals(store), Withdrawals(store)
    secret, next_one = (sign("k", int(time.time()) + 60, {}) for _ in range(2))
    await one.withdraw(secret)
    await one.withdraw(secret)
    assert await one.is_withdrawn(secret) and await other.is_withdrawn(secret)
    assert not await other.is_withdrawn(next_one)


async def test_it_is_forgotten_when_the_secret_has_expired() -> None:
    """So memory stays bounded."""
    now = 1_000.0
    store = LocalStore(lambda: now)
    withdrawals = Withdrawals(store, lambda: now)
    secret = sign("k", 1_060, {})
    await withdrawals.withdraw(secret)
    now = 1_059.0
    assert await withdrawals.is_withdrawn(secret)
    now = 1_062.0
    assert await store.get(f"withdrawn:{secret.id}") is None


@pytest.mark.default
async def test_a_secret_stays_withdrawn_when_redis_was_emptied(redis: RedisServer) -> None:
    """At all gateways: the one that knows of it writes it again."""
    secret = sign("k", int(time.time()) + 60, {})
    stores = [RedisStore(redis.url) for _ in range(2)]
    one, other = map(Withdrawals, stores)
    async with stores[0].running(), stores[1].running(), one.running():
        await one.withdraw(secret)
        while await stores[1].get("mark:withdrawals") is None:
            pass
        await stores[1]._call("FLUSHALL")
        assert await one.is_withdrawn(secret)
        while not await other.is_withdrawn(secret):
            pass


@pytest.mark.default
async def test_without_redis_a_gateway_knows_those_that_it_has_seen(redis: RedisServer) -> None:
    """Other secrets are valid then, and none can be withdrawn."""
    secret, unseen = (sign("k", int(time.time()) + 60, {}) for _ in range(2))
    stores = [RedisStore(redis.url) for _ in range(2)]
    one, other = map(Withdrawals, stores)
    async with stores[0].running(), stores[1].running():
        await one.withdraw(secret)
        await one.withdraw(unseen)
        assert await other.is_withdrawn(secret)
        redis.kill()
        assert await one.is_withdrawn(unseen)
        assert await other.is_withdrawn(secret)
        assert not await other.is_withdrawn(unseen)
        with pytest.raises(StoreAway):
            await one.withdraw(unseen)
