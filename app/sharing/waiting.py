"""Waits of those who write and read logs of the shared store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tutti_server.app.background import unless
from tutti_server.app.sharing.store import Entry, SharedStore, StoreAway

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""The wait after an unexpected failure, in seconds."""
READ_WITHIN_S = 2.0
"""How long someone who follows a log waits until all that is in it has been read, in seconds."""
UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading something may raise that another version or another program has written."""
LAST_WORDS_S = 60.0
"""How long the last events of what has ended wait for a store that is away, in seconds."""


async def keep_following(
    store: SharedStore,
    what: str,
    is_needed: Callable[[], bool],
    changed: asyncio.Event,
    follow: Callable[[], Awaitable[None]],
    on_away: Callable[[], None],
) -> None:
    """Follow logs of the store until cancelled, also after failures.

    Args:
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
    return await unless(changed.wait(), store.read(positions)) or []


async def wait_until_read(is_read: asyncio.Event) -> None:
    """Wait until a log has been read. Raises `StoreAway` if that takes longer than `READ_WITHIN_S`."""
    try:
        async with asyncio.timeout(READ_WITHIN_S):
            await is_read.wait()
    except TimeoutError:
        raise StoreAway("Redis does not answer in time") from None


async def wait_until_up(store: SharedStore, has_ended: asyncio.Event) -> None:
    """Wait until the store is back: without limit for something that goes on, and for `LAST_WORDS_S` after its end.

    Args:
        store: one that has just been away.
        has_ended: set when nothing follows what waits for the store.

    Raises:
        TimeoutError: it has ended, and the store was away for so long since.
    """
    await unless(has_ended.wait(), store.wait_until_up())
    async with asyncio.timeout(LAST_WORDS_S):
        await store.wait_until_up()
