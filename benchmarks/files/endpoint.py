"""What clients of OpenAI-compatible transcription endpoints share. They never repeat a request."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import httpx

PATH = "/v1/audio/transcriptions"
MAX_ERROR_CHARS = 300

T = TypeVar("T")


def open_client(url: str, *, n_at_once: int, timeout_s: float) -> httpx.AsyncClient:
    """An HTTP client with one connection for each concurrent request, which ignores proxy settings."""
    return httpx.AsyncClient(
        base_url=url,
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=n_at_once, max_keepalive_connections=n_at_once),
        trust_env=False,
    )


async def side_by_side(items: Iterable[T], n_at_once: int, work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for every item with `n_at_once` items at a time. The next one starts as soon as one has ended."""
    waiting = iter(items)

    async def work_off() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(n_at_once):
            tasks.create_task(work_off())
