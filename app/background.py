"""Runs coroutines while a context is open, such as those that look for changes every few seconds."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


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
