"""What belongs to an account is found by its own clients, and does not exist for all others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, make_url
from websockets.asyncio.client import connect

from tests.app.conftest import Serve
from tests.app.publish.made_up_calls import begin, message, received
from tutti_server.app.errors import SessionError
from tutti_server.app.jobs import Job, Request
from tutti_server.app.publish.call_subscribers import Calls
from tutti_server.app.publish.outbox import CallId
from tutti_server.app.publish.room_follower import RoomConfig
from tutti_server.app.publish.room_hub import Rooms
from tutti_server.app.publish.room_speaker import Claim
from tutti_server.app.publish.shared_calls import SharedCalls
from tutti_server.app.service.accounts import OPERATOR, readable_usage
from tutti_server.app.service.api_keys import UNNAMED, ApiKey
from tutti_server.app.service.auth import Access, Client
from tutti_server.app.session.messages import events
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.jobs import job_store

NAMES = ("acme", "acme:CA1", "account:acme", "anyone", "operator", "key_1")
"""Names of keys, which must not be taken for another account's."""
SIDS = ("CA1", "CA2", ":CA1", "acme:CA1")
ROOMS = RoomConfig(gone_s=60.0, keep_s=60.0, max_chars=1000)
IDS = ["in one process", "through the shared store"]


Keys = Sequence[ApiKey]
"""The keys of a service. A customer is the position of its key."""


def access_of(keys: Keys) -> Access:
    named = {each.key: each for each in keys if each.name}
    unnamed = [each.key for each in keys if not each.name]
    return Access(unnamed, "s", lambda reason: None, LocalStore(), lambda: named)


async def clients_of(keys: Keys, access: Access) -> list[tuple[int, Client]]:
    """Each customer with its key, and with a client secret that the key has made."""
    found = []
    for customer, key in enumerate(keys):
        secret = access.sign_client_secret(key.key, int(time.time()) + 60, {}, rooms=True)
        for credential in (key.key, secret.value):
            client = await access.live_client(credential)
            assert client
            found.append((customer, client))
    return found


def keys_of(names: Sequence[str]) -> Keys:
    return [ApiKey(name=name, key=f"k{number}") for number, name in enumerate(names)]


CUSTOMERS = st.builds(
    lambda named, n_unnamed: keys_of([*named, *[""] * n_unnamed]),
    st.lists(st.sampled_from(NAMES), unique=True, max_size=3),
    st.integers(1, 2),
)


@asynccontextmanager
async def hubs(is_shared: bool) -> AsyncIterator[tuple[Calls, Calls]]:
    """The calls of two gateways, or of one process."""
    async with AsyncExitStack() as stack:
        if is_shared:
            store = LocalStore()
            await stack.enter_async_context(store.running())
            made: list[Calls] = [SharedCalls(100, store) for _ in range(2)]
        else:
            made = [Calls(100)] * 2
        for hub in made:
            await stack.enter_async_context(hub.running())
        yield made[0], made[1]


async def may_speak(rooms: Rooms, client: Client, room: Claim) -> bool:
    try:
        return (await rooms.claim(client.account, room.name, room.token)).id == room.id
    except SessionError as error:
        assert error.code == "room_taken"
        return False


def add_job(connection: Connection, account: str) -> Job:
    request = Request(kind="openai", options={})
    return job_store.add(connection, (str(uuid4()), account, account), request, has_audio=False, fingerprint="f")[0]


@pytest.mark.parametrize("is_shared", [False, True], ids=IDS)
@given(customers=CUSTOMERS, sid=st.sampled_from(SIDS))
def test_a_call_is_found_by_its_own_account_alone(is_shared: bool, customers: Keys, sid: str) -> None:
    """All customers have a call of the same id at once; each client receives its own customer's."""

    async def check() -> None:
        clients = await clients_of(customers, access_of(customers))
        async with hubs(is_shared) as (here, there), AsyncExitStack() as stack:
            outboxes = [
                (customer, await stack.enter_async_context(there.subscribe(CallId(client.account, sid))))
                for customer, client in clients
            ]
            calls = {
                customer: begin(here, CallId(client.account, sid), message(events.Reply(str(customer))))
                for customer, client in clients[::2]
            }
            for call in calls.values():
                call.end()
            for customer, outbox in outboxes:
                assert await received(outbox) == [message(events.Reply(str(customer)))]

    asyncio.run(check())


# Each example has a database of its own.
@settings(max_examples=max(5, settings().max_examples // 5))
@given(customers=CUSTOMERS)
def test_a_room_and_a_job_belong_to_their_account(customers: Keys) -> None:
    """The token of a room does not open it for another account, and no request of another finds a job."""

    async def check() -> None:
        clients = await clients_of(customers, access_of(customers))
        rooms = Rooms(LocalStore(), ROOMS)
        with TemporaryDirectory() as folder:
            database = Database(make_url(f"sqlite:///{Path(folder) / 'tutti.db'}"))
            for owner, client in clients[::2]:
                room = await rooms.claim(client.account, f"room-{owner}", None)
                job = await database.run(add_job, client.account)
                for other, asking in clients:
                    is_own = other == owner
                    assert await may_speak(rooms, asking, room) == is_own
                    for find in (job_store.find, job_store.cancel):
                        assert bool(await database.run(find, job.id, asking.account)) == is_own
                    listed = await database.run(job_store.listed, asking.account, 100, None, None)
                    assert (job.id in {each.id for each in listed}) == is_own
                    if not is_own:
                        assert not await database.run(job_store.remove, job.id, asking.account)
            await database.close()

    asyncio.run(check())


@given(customers=CUSTOMERS)
def test_a_key_reads_its_own_usage_alone(customers: Keys) -> None:
    """All keys without a name are counted together, and none of them may read that."""
    for asking, wanted in product(customers, customers):
        key = asking if asking.name else None
        account = readable_usage(key, wanted.name or UNNAMED)
        assert account == (asking.account if key and asking == wanted else None)


async def test_calls_without_a_key_belong_to_the_only_key_without_a_name() -> None:
    """Where there are several, or none, no key has them."""
    for n_unnamed, is_found in ((0, False), (1, True), (2, False)):
        customers = keys_of(["acme", *[""] * n_unnamed])
        access = access_of(customers)
        account = access.client_without_key().account
        found = [customer for customer, client in await clients_of(customers, access) if client.account == account]
        assert found == ([1, 1] if is_found else [])
        assert (account == OPERATOR) == (not is_found)


async def test_another_key_neither_follows_nor_stops_a_call(serve: Serve, tmp_path: Path) -> None:
    """It may have a call with the same id, and its subscriber waits for that one, as for an unknown one."""
    keys = tmp_path / "keys.toml"
    keys.write_text('[acme]\nkey = "a"\n[other]\nkey = "o"\n')
    server = await serve(keys_file=str(keys))
    follow, stream = f"ws://{server.address}/v1/calls/CA1", f"ws://{server.address}/v1/freeswitch"
    async with AsyncExitStack() as stack:
        own, foreign = [
            await stack.enter_async_context(connect(follow, additional_headers={"Authorization": f"Bearer {key}"}))
            for key in "ao"
        ]
        for key in "oa":
            call = await stack.enter_async_context(connect(f"{stream}/{key}"))
            await call.send(json.dumps({"call": "CA1", "of": key}))
            await call.send(bytes(640))
        for socket, key in ((own, "a"), (foreign, "o")):
            async with asyncio.timeout(10):
                assert json.loads(await socket.recv())["parameters"] == {"of": key}
