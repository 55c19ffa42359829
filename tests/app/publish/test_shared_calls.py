"""Calls whose subscribers are at another gateway, over both kinds of the shared store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.app.publish.made_up_calls import CA1, CA2, CA3, INTRODUCTION, STARTED, begin, flushed, received
from tests.redis_server import RedisServer
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.publish.call_entries import MAX_CHARS, lease_name, log_name, opening_name
from tutti_server.app.publish.call_follower import LOST, MISSED, OVER, PAUSED
from tutti_server.app.publish.call_subscribers import JOINED_LATE, Receipt
from tutti_server.app.publish.outbox import MAX_WAITING, Outbox
from tutti_server.app.publish.shared_calls import SharedCalls
from tutti_server.app.session.messages import events
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.redis_store import RedisStore
from tutti_server.app.sharing.store import Lease, SharedStore


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that a test has emptied at its beginning are waited for, too."""
    monkeypatch.setattr("tutti_server.app.sharing.emptied.SETTLE_S", 0.05)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways look for lost streams all the time, and one without a lease is lost at once."""
    for name in ("UNHELD_S", "RENEW_S"):
        monkeypatch.setattr(f"tutti_server.app.publish.call_follower.{name}", 0.0)
    for name in ("local_store", "redis_store"):
        monkeypatch.setattr(f"tutti_server.app.sharing.{name}.READ_S", 0.01)


@dataclass
class Gateways:
    """Starts the calls of several gateways, each with its own connection to one store."""

    stack: AsyncExitStack
    stores: list[SharedStore]

    async def start(self) -> SharedCalls:
        return await self.stack.enter_async_context(gateway(self.stores.pop()))


@asynccontextmanager
async def gateway(store: SharedStore) -> AsyncIterator[SharedCalls]:
    calls = SharedCalls(10, store)
    async with store.running(), calls.running():
        yield calls


@pytest.fixture(params=["local", "redis"])
async def gateways(request: pytest.FixtureRequest) -> AsyncIterator[Gateways]:
    if request.param == "local":
        stores: list[SharedStore] = [LocalStore()] * 4
    else:
        server: RedisServer = request.getfixturevalue("redis")
        stores = [RedisStore(server.url) for _ in range(4)]
    async with AsyncExitStack() as stack:
        yield Gateways(stack, stores)


async def next_of(outbox: Outbox[Receipt], n: int) -> list[Receipt | None]:
    return [await outbox.pop() for _ in range(n)]


async def test_subscribers_at_all_gateways_receive_a_call(gateways: Gateways) -> None:
    """In order, from its beginning to its end, at its own gateway too."""
    one, other = await gateways.start(), await gateways.start()
    async with one.subscribe(CA1) as here, other.subscribe(CA1) as there, other.subscribe(CA2) as elsewhere:
        call = begin(one)
        call.publish(STARTED)
        for number in range(100):
            call.publish(flushed(number))
        call.end()
        call.end()
        expected = [INTRODUCTION, STARTED, *map(flushed, range(100))]
        assert await received(there) == expected
        assert await received(here) == expected
        second = begin(other, CA2)
        second.end()
        assert await received(elsewhere) == [INTRODUCTION]


async def test_a_call_is_found_again_when_redis_was_emptied(redis: RedisServer) -> None:
    """Though nothing is said meanwhile, and Redis could be reached all the time."""
    async with (
        gateway(RedisStore(redis.url)) as one,
        gateway(RedisStore(redis.url)) as other,
        one.subscribe(CA1) as in_time,
    ):
        call = begin(one)
        call.publish(STARTED)
        await next_of(in_time, 2)
        await one._store._call("FLUSHALL")  # type: ignore[attr-defined]  # it is Redis
        while not await one._store.get(opening_name(CA1)):
            pass
        async with other.subscribe(CA1) as late:
            assert await next_of(late, 2) == [INTRODUCTION, STARTED]
            call.publish(flushed(1))
            call.end()
            assert await received(late) == await received(in_time) == [flushed(1)]


async def test_a_call_keeps_its_stream_when_redis_was_emptied(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one waits until the gateway of the first one has noticed, and is refused."""
    monkeypatch.setattr("tutti_server.app.publish.shared_calls.CLAIM_S", 0.01)
    monkeypatch.setattr("tutti_server.app.sharing.emptied.SETTLE_S", 2.0)
    monkeypatch.setattr("tutti_server.app.sharing.leases.RENEW_S", 60.0)
    async with (
        gateway(RedisStore(redis.url)) as one,
        gateway(RedisStore(redis.url)) as other,
        one.subscribe(CA1) as outbox,
    ):
        first = begin(one)
        assert await next_of(outbox, 1) == [INTRODUCTION]
        await one._store._call("FLUSHALL")  # type: ignore[attr-defined]  # it is Redis
        refusal = asyncio.get_running_loop().create_future()
        second = begin(other, on_refusal=refusal.set_result)
        assert (await refusal).code == "call_is_on"
        second.end()
        first.end()


async def test_a_late_subscriber_receives_the_opening_and_what_follows(gateways: Gateways) -> None:
    """And a notice, unless it has missed nothing."""
    one, other, third = [await gateways.start() for _ in range(3)]
    async with one.subscribe(CA1) as in_time:
        call = begin(one)
        call.publish(STARTED)
        opening = [INTRODUCTION, STARTED]
        assert await next_of(in_time, 2) == opening
        async with third.subscribe(CA1) as early:
            assert await next_of(early, 2) == opening
            call.publish(flushed(1))
            assert await next_of(early, 1) == await next_of(in_time, 1) == [flushed(1)]
        async with other.subscribe(CA1) as late:
            assert await next_of(late, 3) == [*opening, JOINED_LATE]
            async with other.subscribe(CA1) as later:
                assert await next_of(later, 3) == [*opening, JOINED_LATE]
                call.publish(flushed(2))
                call.end()
                assert await received(late) == await received(later) == [flushed(2)]


async def test_a_call_id_may_be_used_again(gateways: Gateways) -> None:
    """Also at another gateway. Subscribers of the second call receive nothing of the first."""
    one, other = await gateways.start(), await gateways.start()
    for calls, number in ((one, 1), (other, 2), (one, 3)):
        async with other.subscribe(CA1) as outbox:
            call = begin(calls)
            call.publish(flushed(number))
            call.end()
            assert await received(outbox) == [INTRODUCTION, flushed(number)]


@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_newer_stream_takes_a_call_over(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """At any gateway, when the older one has ended. The subscribers stay."""
    monkeypatch.setattr("tutti_server.app.publish.shared_calls.GIVE_WAY_EVERY_S", 0.0)
    one, other = await gateways.start(), await gateways.start()
    async with one.subscribe(CA1) as outbox:
        refusal = asyncio.get_running_loop().create_future()
        first = begin(one, on_refusal=refusal.set_result)
        assert await next_of(outbox, 1) == [INTRODUCTION]
        second = begin(other if is_elsewhere else one)
        second.publish(flushed(2))
        assert (await refusal).code == "call_is_on"
        first.publish(flushed(1))
        first.end()
        assert await next_of(outbox, 3) == [flushed(1), INTRODUCTION, flushed(2)]
        second.end()
        assert await received(outbox) == []


async def test_a_stream_is_refused_if_the_one_before_does_not_end(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one goes on: its gateway is of another version, or cannot be reached."""
    monkeypatch.setattr("tutti_server.app.publish.shared_calls.CLAIM_S", 0.01)
    one, other = await gateways.start(), await gateways.start()
    async with one.subscribe(CA1) as outbox:
        first = begin(one)
        assert await next_of(outbox, 1) == [INTRODUCTION]
        refusal = asyncio.get_running_loop().create_future()
        second = begin(other, on_refusal=refusal.set_result)
        second.publish(flushed(-1))
        assert (await refusal).code == "call_is_on"
        second.end()
        first.publish(flushed(1))
        first.end()
        assert await received(outbox) == [flushed(1)]


@pytest.mark.usefixtures("impatient")
async def test_a_call_may_be_lost_more_than_once() -> None:
    """Its gateway was away from the store for a while, and came back."""
    store = LocalStore()
    async with gateway(store) as one, one.subscribe(CA1) as outbox:
        call = begin(one)
        assert await next_of(outbox, 1) == [INTRODUCTION]
        ((stream,),) = await store.holders([lease_name(CA1)])
        lease = Lease(lease_name(CA1), stream)
        for number in (2, 4):
            await store.release([lease])
            assert await next_of(outbox, 1) == [LOST]
            await store.renew([lease])
            # With the second one it is sure that the lease was looked up after the first one.
            for each in (number, number + 1):
                call.publish(flushed(each))
                assert await next_of(outbox, 1) == [flushed(each)]


@pytest.mark.usefixtures("impatient")
async def test_a_call_goes_on_after_its_gateway_has_died(gateways: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subscribers learn it, and receive the stream that goes on at another gateway."""
    other, third = await gateways.start(), await gateways.start()
    async with other.subscribe(CA1) as outbox:
        async with gateway(gateways.stores.pop()) as dying:
            begin(dying)
            assert await next_of(outbox, 1) == [INTRODUCTION]
        assert await next_of(outbox, 1) == [LOST]
        # The lease of a call that has ended may be gone before its last entry is read.
        monkeypatch.setattr("tutti_server.app.publish.call_follower.UNHELD_S", 60.0)
        call = begin(third)
        call.publish(flushed(1))
        call.end()
        assert await received(outbox) == [INTRODUCTION, flushed(1)]


@pytest.mark.usefixtures("impatient")
async def test_a_call_that_does_not_go_on_is_over(gateways: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.publish.call_follower.RESUME_S", 0.0)
    other = await gateways.start()
    async with other.subscribe(CA1) as outbox:
        async with gateway(gateways.stores.pop()) as dying:
            begin(dying)
            assert await next_of(outbox, 1) == [INTRODUCTION]
        assert await received(outbox) == [LOST, OVER]


async def test_subscribers_of_a_draining_gateway_are_sent_elsewhere(gateways: Gateways) -> None:
    """But for those whose call ends with it."""
    one, other = await gateways.start(), await gateways.start()
    async with other.subscribe(CA1) as of_other, other.subscribe(CA2) as own, other.subscribe(CA3) as waiting:
        call, ending = begin(one), begin(other, CA2)
        assert await next_of(of_other, 1) == await next_of(own, 1) == [INTRODUCTION]
        other.drain()
        for outbox in (of_other, waiting):
            (failure,) = await received(outbox)
            assert isinstance(failure, events.Failure) and failure.code == "draining"
        ending.end()
        assert await received(own) == []
        with pytest.raises(LimitExceeded, match="going down"):
            async with other.subscribe(CA1):
                pass
        call.end()
    await other.wait_until_unused()


async def test_where_others_stop_too_subscribers_wait_for_the_ends_of_their_calls(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a limited time: a call may be at another server, which goes on."""
    monkeypatch.setattr("tutti_server.app.publish.call_subscribers.LEAVE_S", 0.05)
    one, other = await gateways.start(), await gateways.start()
    async with other.subscribe(CA1) as ending, other.subscribe(CA2) as going_on, other.subscribe(CA3) as waiting:
        call, longer = begin(one), begin(one, CA2)
        assert await next_of(ending, 1) == await next_of(going_on, 1) == [INTRODUCTION]
        other.drain(others_stop=True)
        (failure,) = await received(waiting)
        call.publish(flushed(1))
        call.end()
        assert await received(ending) == [flushed(1)]
        await other.wait_until_unused()
        assert await received(going_on) == [failure]
        longer.end()


@pytest.mark.parametrize("kind", ["local", "redis"])
async def test_what_cannot_be_read_is_left_out(kind: str, request: pytest.FixtureRequest) -> None:
    """Another version or another program may have written it. Each is counted, and all others arrive."""
    store: SharedStore = LocalStore()
    if kind == "redis":
        store = RedisStore(request.getfixturevalue("redis").url)
    unread: list[None] = []
    entries = ["{}", "7", "no JSON", "[" * 100_000, '{"call":"c","begun":"1","number":0}']
    entries.append('{"call":"c","begun":1,"number":0,"texts":[7],"replaces":null,"is_opening":false}')
    begin_of_one = '{"call":"c","begun":1,"number":0,"texts":["t"],"replaces":null,"is_opening":false}'
    for old, new in (
        ('"begun":1', '"begun":-1'),
        ('"number":0', f'"number":{1 << 60}'),
        ("null", "[]"),
        ('["t"]', '"t"'),
        ("false", "1"),
    ):
        entries.append(begin_of_one.replace(old, new))
    entries.append(begin_of_one.replace('"t"', f'"{"t" * MAX_CHARS}"'))
    calls = SharedCalls(10, store, lambda: unread.append(None))
    async with store.running(), calls.running():
        await store.put(opening_name(CA1), "no JSON", 60)
        await store.append(log_name(CA1), "{}")
        async with calls.subscribe(CA1) as outbox:
            assert len(unread) == 2
            for entry in entries:
                await store.append(log_name(CA1), entry)
            call = begin(calls)
            call.publish(flushed(1))
            call.end()
            assert await received(outbox) == [INTRODUCTION, flushed(1)]
        assert len(unread) == 2 + len(entries)


async def test_events_of_a_call_wait_for_redis(redis: RedisServer) -> None:
    """It forgets everything meanwhile. No event is lost or comes twice, and new subscribers are refused."""
    async with (
        gateway(RedisStore(redis.url)) as one,
        gateway(RedisStore(redis.url)) as other,
        other.subscribe(CA1) as outbox,
    ):
        call = begin(one)
        call.publish(STARTED)
        assert await next_of(outbox, 2) == [INTRODUCTION, STARTED]
        redis.kill()
        call.publish(flushed(1))
        assert await next_of(outbox, 1) == [PAUSED]
        with pytest.raises(LimitExceeded, match="Redis cannot be reached"):
            async with other.subscribe(CA2):
                pass
        call.publish(flushed(2))
        redis.start()
        assert await next_of(outbox, 2) == [flushed(1), flushed(2)]
        async with other.subscribe(CA1) as late:
            assert await next_of(late, 2) == [INTRODUCTION, STARTED]
            call.end()
            assert await received(outbox) == []


async def test_a_call_begins_while_redis_is_away(redis: RedisServer) -> None:
    """It is published when Redis is back. Of too many events the oldest are lost, and subscribers learn it."""
    redis.kill()
    async with gateway(RedisStore(redis.url)) as one, gateway(RedisStore(redis.url)) as other:
        call = begin(one)
        for number in range(MAX_WAITING + 9):
            call.publish(flushed(number))
        redis.start()
        await asyncio.gather(one._store.wait_until_up(), other._store.wait_until_up())
        async with other.subscribe(CA1) as outbox:
            while await other._store.holders([lease_name(CA1)]) == [frozenset()]:
                pass
            call.publish(flushed(-1))
            call.end()
            everything = await received(outbox)
            assert everything[-1:] == [flushed(-1)]
            assert MISSED in everything or JOINED_LATE in everything


async def test_the_opening_of_a_call_is_never_lost(gateways: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, no subscriber knows what follows. Of the other events, the oldest are lost."""
    one = await gateways.start()
    async with one.subscribe(CA1) as outbox:
        with monkeypatch.context() as patches:
            patches.setattr("tutti_server.app.publish.outbox.MAX_WAITING", 3)
            call = begin(one)
            call.publish(STARTED)
            for number in range(9):
                call.publish(flushed(number))
        call.end()
        assert await received(outbox) == [INTRODUCTION, STARTED, MISSED, *map(flushed, range(6, 9))]
