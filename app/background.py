"""Runs coroutines while a context is open, such as those that look for changes every few seconds."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

logger = logging.getLogger(__name__)


@asynccontextmanager
async def in_background(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these coroutines as tasks while the context is open. At its end they are cancelled, and awaited."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def repeat(work: Callable[[], Awaitable[None]], every_s: float, failure: str) -> None:
    """Do some work now and then until cancelled. What it raises is logged, and the next time may be good again.

    Args:
        work: is awaited each time.
        every_s: the pause before each time, in seconds.
        failure: what the log says where it raises, such as "usage cannot be saved".
    """
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:
            logger.exception("%s; trying again in %g s", failure, every_s)
