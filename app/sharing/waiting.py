"""Waits of those who write and read logs of the shared store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tutti_server.app.sharing.store import Entry, SharedStore, StoreAway

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""The wait after an unexpected failure, in seconds."""


async def keep_following(
    store: SharedStore,
    what: str,
    is_needed: Callable[[], bool],
    changed: asyncio.Event,
    follow: Callable[[], Awaitable[None]],
    on_away: Callable[[], None] = lambda: None,
) -> None:
    """Follow logs of the store until cancelled, also after failures.

    Args:
        store: has the logs.
        what: names them in the log of the service.
        is_needed: whether there is anything to follow.
        changed: set when there is something new to follow.
        follow: reads what is new; it is called again and again, while it is needed.
        on_away: called when the store cannot be reached, before the wait until it is back.
    """
    while True:
        if not is_needed():
            await changed.wait()
        changed.clear()
        try:
            await follow()
        except StoreAway:
            on_away()
            await store.wait_until_up()
        except Exception:
            # Such as an entry that another version has written. All others go on.
            logger.exception("%s cannot be followed; trying again in %g s", what, RETRY_S)
            await asyncio.sleep(RETRY_S)


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
