"""Works that go on while a context is open, such as those that look for changes every few seconds."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def in_background(*works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Do these works at the same time while the context is open. At its end they are cancelled, and have ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
