"""Who serves now: published in one thread, watched in another."""

import asyncio
import threading

from tutti_server.plugins.ray.membership import Member, Membership

ONE, TWO = Member("a", "n1"), Member("b", "n2")


async def test_watchers_learn_every_change_on_their_loop() -> None:
    """Serve's router publishes in a thread of its own."""
    membership, seen = Membership(), asyncio.Queue[tuple[int, tuple[Member, ...]]]()
    membership.watch("Engines", lambda members: seen.put_nowait((threading.get_ident(), members)))
    await asyncio.to_thread(membership.publish, "Gateways", (TWO,))
    await asyncio.to_thread(membership.publish, "Engines", (ONE,))
    await asyncio.to_thread(membership.publish, "Engines", (ONE, TWO))
    here = threading.get_ident()
    late = asyncio.Queue[tuple[Member, ...]]()
    membership.watch("Engines", late.put_nowait)
    assert await late.get() == (ONE, TWO), "the router may know the members before they are watched"
    assert [await seen.get(), await seen.get()] == [(here, (ONE,)), (here, (ONE, TWO))]
