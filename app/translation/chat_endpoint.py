"""A chat endpoint in the manner of OpenAI's: requests with a limit on their number, retries, and bounded answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx

from tutti_server.app.errors import TranslationFailed
from tutti_server.app.numbers import read_integer
from tutti_server.app.retries import backoff_s, is_transient

PATH = "/chat/completions"
MAX_ATTEMPTS = 3
"""The most requests for one translation."""
FIRST_WAIT_S = 0.25
"""The longest wait before the second attempt, in seconds; that before the third is twice as long."""
MAX_WAIT_S = 5.0
"""The longest wait between two requests, also if the endpoint asks for a longer one, in seconds."""
MAX_ANSWER_BYTES = 256 * 1024
"""No more of an answer is read."""


class _Transient(TranslationFailed):
    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ChatEndpoint:
    """Asks the endpoint while `running` is open."""

    def __init__(
        self,
        url: str,
        model: str,
        key: str,
        max_requests: int,
        *,
        attempt_timeout_s: float,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare the endpoint; `running` opens its connections.

        Args:
            url: the address of the API, such as `https://host/v1`, or of the endpoint itself.
            model: the name that the endpoint gives the model.
            key: sent as bearer token; empty for none.
            transport, sleep: replaced by tests.
        """
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        self._url = parts._replace(path=path if path.endswith(PATH) else path + PATH).geturl()
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._places = asyncio.Semaphore(max_requests)
        self._attempt_timeout_s = attempt_timeout_s
        self._transport = transport
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep connections to the endpoint while the context is open."""
        timeout = httpx.Timeout(self._attempt_timeout_s)
        async with httpx.AsyncClient(
            transport=self._transport, timeout=timeout, follow_redirects=False
        ) as self._client:
            yield

    async def ask(self, messages: list[dict[str, str]]) -> object:
        """Return the JSON of the answer to a chat. Cancelling is safe.

        Raises:
            TranslationFailed: the endpoint refuses, or no attempt succeeds.
        """
        body = {"model": self._model, "messages": messages, "temperature": 0}
        for n_attempts in range(1, MAX_ATTEMPTS + 1):
            try:
                async with self._places:
                    return await self._attempt(body)
            except _Transient as failure:
                if n_attempts == MAX_ATTEMPTS:
                    raise TranslationFailed(f"{failure}, in each of {MAX_ATTEMPTS} attempts") from failure
                await self._sleep(max(backoff_s(n_attempts, FIRST_WAIT_S, MAX_WAIT_S), failure.retry_after_s))
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, body: dict[str, object]) -> object:
        assert self._client, "not running"
        try:
            async with (
                asyncio.timeout(self._attempt_timeout_s),
                self._client.stream("POST", self._url, json=body, headers=self._headers) as response,
            ):
                if response.status_code != 200:
                    raise _refusal(response)
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise TranslationFailed(f"the endpoint answered with more than {MAX_ANSWER_BYTES} bytes")
        except TimeoutError as error:
            raise _Transient(f"the endpoint did not answer within {self._attempt_timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise _Transient(f"the endpoint cannot be reached: {type(error).__name__}") from error
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise TranslationFailed("the endpoint answered with something else than JSON") from error


def _refusal(response: httpx.Response) -> TranslationFailed:
    status, retry_after = response.status_code, response.headers.get("retry-after", "")
    message = f"the endpoint answered with status {status}"
    if is_transient(status):
        return _Transient(message, min(read_integer(retry_after) or 0, MAX_WAIT_S))
    return TranslationFailed(message)
