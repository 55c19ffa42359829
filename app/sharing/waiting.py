"""Waits of those who write and read logs of the shared store."""

import asyncio
from collections.abc import Mapping

from tutti_server.app.sharing.store import Entry, SharedStore


async def read_unless(
    store: SharedStore, positions: Mapping[str, str], changed: asyncio.Event
) -> list[tuple[str, Entry]]:
    """The next entries of these logs; none if `changed` is set meanwhile. See `SharedStore.read`.

    Raises:
        StoreAway: the store cannot be reached.
    """
    reading = asyncio.ensure_future(store.read(positions))
    changing = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait((reading, changing), return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else []
    finally:
        reading.cancel()
        changing.cancel()
        await asyncio.gather(reading, changing, return_exceptions=True)


async def wait_until_up(store: SharedStore, has_ended: asyncio.Event, last_words_s: float) -> None:
    """Wait until the store is back: without limit for something that goes on, and for a limited time after its end.

    Args:
        store: one that has just been away.
        has_ended: set when nothing follows what waits for the store.
        last_words_s: the limit, in seconds.

    Raises:
        TimeoutError: it has ended, and the store was away for `last_words_s` since.
    """
    coming_back = asyncio.ensure_future(store.wait_until_up())
    ending = asyncio.ensure_future(has_ended.wait())
    try:
        await asyncio.wait((coming_back, ending), return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(last_words_s):
            await coming_back
    finally:
        coming_back.cancel()
        ending.cancel()
        await asyncio.gather(coming_back, ending, return_exceptions=True)
