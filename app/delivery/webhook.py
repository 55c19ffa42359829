"""Posts what is said of calls to the operator's address: in order for each call, signed, and tried again for a while.

Nobody waits for it: what cannot be delivered in time is given up, logged and counted.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any, Literal

import httpx

logger = logging.getLogger(__name__)

Outcome = Literal["delivered", "refused", "expired", "dropped"]

SIGNATURE_HEADER = "tutti-signature"
# An event is tried for so long, counted from when it was said.
MAX_AGE_S = 300.0
FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0
# For one attempt, the wait for a connection included.
REQUEST_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 32
# Events that wait, of one call and of all of them; a newer one is dropped.
MAX_WAITING = 1000
MAX_WAITING_TOTAL = 20_000
# What is left when the server stops gets so long.
DRAIN_TIMEOUT_S = 5.0
# Refusals that may pass; all others below 500 will not.
PASSING = frozenset({408, 425, 429})


def signature(secret: str, at: int, body: bytes) -> str:
    """What proves that a request comes from here, and when it was made.

    Args:
        at: seconds since 1970; a receiver that refuses old ones cannot be made to hear a request twice.
    """
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def wait_s(attempt: int, share: float) -> float:
    """Before the next attempt: a share, drawn at random from 0 to 1, of a time that doubles up to its maximum."""
    return min(FIRST_WAIT_S * 2.0 ** min(attempt, 16), MAX_WAIT_S) * (0.5 + share / 2)


class Webhook:
    """Use `running` around the service's life; `open` makes a queue for each call, which its owner closes."""

    def __init__(
        self,
        url: str,
        secret: str,
        on_outcome: Callable[[Outcome], None],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Args:
        on_outcome: told once for every event what became of it, but for those that are left at the end.
        transport, clock, sleep, draw: of the network, the time and chance; tests bring their own.
        """
        self._url = url
        self._secret = secret
        self._on_outcome = on_outcome
        self._transport = transport
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._client: httpx.AsyncClient | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        self._n_waiting = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver while this is open; at its end what is left is given a moment."""
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        async with (
            httpx.AsyncClient(
                transport=self._transport, limits=limits, timeout=REQUEST_TIMEOUT_S, follow_redirects=False
            ) as self._client,
            asyncio.TaskGroup() as self._tasks,
        ):
            yield
            if self._deliveries:
                await asyncio.wait(self._deliveries, timeout=DRAIN_TIMEOUT_S)
            if self._deliveries:
                logger.warning("%d events of calls are left undelivered", self._n_waiting)
            for task in self._deliveries:
                task.cancel()

    def open(self, call_sid: str, stream_sid: str) -> "Delivery":
        """A queue for the events of one call."""
        assert self._tasks, "not running"
        delivery = Delivery(self, call_sid, stream_sid)
        task = self._tasks.create_task(self._deliver(delivery))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        return delivery

    def put(self, delivery: "Delivery", event: dict[str, Any]) -> None:
        """Queue an event of a call, as the native protocol has it."""
        if delivery.queue.full() or self._n_waiting >= MAX_WAITING_TOTAL:
            if not delivery.has_dropped:
                logger.warning("[%s] events are dropped: too many wait for the webhook", delivery.call_sid)
            delivery.has_dropped = True
            self._on_outcome("dropped")
            return
        said_at = self._clock()
        body = {
            "id": f"evt_{token_hex(12)}",
            "call_sid": delivery.call_sid,
            "stream_sid": delivery.stream_sid,
            "sequence": delivery.n_put,
            "said_at": round(said_at, 3),
            "event": event,
        }
        delivery.n_put += 1
        self._n_waiting += 1
        delivery.has_more.set()
        delivery.queue.put_nowait((said_at, json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()))

    async def _deliver(self, delivery: "Delivery") -> None:
        try:
            await self._empty(delivery)
        except Exception:
            # A mistake of ours ends the delivery of this call alone.
            logger.exception("[%s] delivery failed", delivery.call_sid)

    async def _empty(self, delivery: "Delivery") -> None:
        while True:
            await delivery.has_more.wait()
            if delivery.queue.empty():
                return
            said_at, body = delivery.queue.get_nowait()
            if delivery.queue.empty() and not delivery.is_closed:
                delivery.has_more.clear()
            try:
                self._on_outcome(await self._post(delivery.call_sid, said_at, body))
            finally:
                self._n_waiting -= 1

    async def _post(self, call_sid: str, said_at: float, body: bytes) -> Outcome:
        """Try until it is taken, refused for good, or too old."""
        attempt = 0
        while True:
            answer, retry_after_s = await self._try(body)
            if isinstance(answer, int) and 200 <= answer < 300:
                return "delivered"
            if isinstance(answer, int) and answer < 500 and answer not in PASSING:
                logger.warning("[%s] the webhook refuses an event: %s", call_sid, answer)
                return "refused"
            pause_s = max(wait_s(attempt, self._draw()), min(retry_after_s, MAX_WAIT_S))
            attempt += 1
            if self._clock() + pause_s > said_at + MAX_AGE_S:
                logger.warning("[%s] the webhook took an event in none of %d attempts: %s", call_sid, attempt, answer)
                return "expired"
            await self._sleep(pause_s)

    async def _try(self, body: bytes) -> tuple[int | str, float]:
        """The status of the answer, or what went wrong; and how long it asks to wait."""
        assert self._client
        headers = {
            "content-type": "application/json",
            SIGNATURE_HEADER: signature(self._secret, int(self._clock()), body),
        }
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                # Nothing of the answer but its head is read, however long it is.
                self._client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                retry_after = response.headers.get("retry-after", "")
                return response.status_code, float(retry_after) if retry_after.isdecimal() else 0.0
        except TimeoutError:
            return f"no answer within {REQUEST_TIMEOUT_S:g} s", 0.0
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}", 0.0


class Delivery:
    """The events of one call on their way. `put` never waits."""

    def __init__(self, webhook: Webhook, call_sid: str, stream_sid: str) -> None:
        self.call_sid = call_sid
        self.stream_sid = stream_sid
        self.queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_WAITING)
        self.has_more = asyncio.Event()
        """Set while there is something to deliver, and once nothing follows."""
        self.is_closed = False
        self.has_dropped = False
        self.n_put = 0
        self._webhook = webhook

    def put(self, event: dict[str, Any]) -> None:
        self._webhook.put(self, event)

    def close(self) -> None:
        """Nothing follows; what is queued is still delivered."""
        self.is_closed = True
        self.has_more.set()
