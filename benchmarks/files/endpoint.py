"""A client of OpenAI-compatible transcription endpoints. It never repeats a request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

PATH = "/v1/audio/transcriptions"
MAX_ERROR_CHARS = 300
"""Characters of an error response that are kept."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request."""

    text: str
    latency_s: float
    """Seconds from the first byte sent to the last byte received."""
    failure: str | None = None
    """Why there is no text."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and what every request to it contains."""

    client: httpx.AsyncClient
    model: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """Form fields that every request contains."""

    async def transcribe(self, audio: bytes, filename: str, language: str | None) -> Answer:
        """Send one request. Errors are returned in the answer, not raised."""
        data = {"model": self.model, "response_format": "json", **self.fields}
        if language:
            data["language"] = language
        started_at = time.perf_counter()
        try:
            response = await self.client.post(PATH, data=data, files={"file": (filename, audio)})
        except httpx.HTTPError as error:
            return Answer("", time.perf_counter() - started_at, failure=f"{type(error).__name__}: {error}")
        return _read(response, time.perf_counter() - started_at)


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


def _read(response: httpx.Response, latency_s: float) -> Answer:
    excerpt = response.text[:MAX_ERROR_CHARS]
    if not response.is_success:
        return Answer("", latency_s, failure=f"HTTP {response.status_code}: {excerpt}")
    try:
        body = response.json()
    except ValueError:
        body = None
    if not (isinstance(body, dict) and isinstance(body.get("text"), str)):
        return Answer("", latency_s, failure=f"expected JSON with a text, got {excerpt!r}")
    return Answer(body["text"], latency_s)
