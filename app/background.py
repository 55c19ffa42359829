"""Runs coroutines while a context is open, such as those that look for changes every few seconds."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@asynccontextmanager
async def in_background(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these coroutines as tasks while the context is open. At its end they are cancelled, and awaited.

    What one of them raises is logged; the others go on.
    """
    tasks = [asyncio.create_task(each) for each in coroutines]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.error("work in the background has failed", exc_info=error)


async def unless(event: Awaitable[object], work: Awaitable[_Result]) -> _Result | None:
    """Do some work. If something else happens before it is done, it is cancelled, and the result is `None`."""
    happening, working = asyncio.ensure_future(event), asyncio.ensure_future(work)
    try:
        await asyncio.wait((happening, working), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        happening.cancel()
        working.cancel()
        await asyncio.gather(happening, working, return_exceptions=True)


async def until_disconnect(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    """Drop all messages of an HTTP request or a WebSocket until its client has left."""
    while not (await receive())["type"].endswith(".disconnect"):
        pass


async def repeat(work: Callable[[], Awaitable[None]], every_s: float, failure: str) -> None:
    """Do some work now and then until cancelled. What it raises is logged, and the next time may be good again.

    Args:
        every_s: the pause before each time, in seconds.
        failure: what the log says where it raises, such as "usage cannot be saved".
    """
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:
            logger.exception("%s; trying again in %g s", failure, every_s)
