"""Posts the events of calls to the operator's webhook: signed, in order for each stream, retried for a limited time.

Callers never wait for a delivery. An event that cannot be delivered in time is dropped, logged and counted.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any, Literal

import httpx

from tutti_server.app.numbers import read_integer
from tutti_server.app.publish.webhook_trace import DeliveryTrace, TraceDelivery
from tutti_server.app.retries import backoff_s, is_transient

logger = logging.getLogger(__name__)

Outcome = Literal["delivered", "refused", "expired", "dropped"]
"""How an event left the queue.

delivered: the receiver answered with a status from 200 to 299.
refused: the receiver answered with a status that will not change.
expired: the event became older than `MAX_AGE_S` between attempts.
dropped: the queue was full, or a defect prevented the delivery.
"""

SIGNATURE_HEADER = "tutti-signature"
MAX_AGE_S = 300.0
"""An event is retried until it is this old, in seconds."""
FIRST_WAIT_S = 0.5
"""The longest wait before the second attempt, in seconds; later waits double."""
MAX_WAIT_S = 30.0
"""The longest wait between two attempts, in seconds."""
REQUEST_TIMEOUT_S = 10.0
"""The time limit of one attempt in seconds, including the wait for a connection."""
MAX_CONNECTIONS = 32
"""Connections to the receiver that are open at the same time."""
MAX_WAITING = 1000
"""The most events of one call that wait. With more, the newest one is dropped."""
MAX_WAITING_TOTAL = 20_000
"""The most events of all calls that wait. With more, the newest one is dropped."""
DRAIN_TIMEOUT_S = 5.0
"""How long a stopping server tries to deliver the remaining events, in seconds."""


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """The value of the header that proves who sent a request and when.

    Args:
        timestamp: seconds since 1970. A receiver that refuses old timestamps cannot be sent a request twice.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


class Webhook:
    """Delivers the events of all calls while `running` is open. `open` makes the queue of one call."""

    def __init__(
        self,
        url: str,
        secret: str,
        on_outcome: Callable[[Outcome], None],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw_jitter: Callable[[], float] = random.random,
        trace: TraceDelivery,
    ) -> None:
        self._url = url
        self._secret = secret
        self._on_outcome = on_outcome
        self._transport = transport
        self._clock = clock
        self._now: Callable[[], float] = time.time
        """The time in seconds since 1970, for dates alone. By `clock`, which only goes forward, events expire."""
        self._sleep = sleep
        self._draw_jitter = draw_jitter
        self._trace = trace
        self._client: httpx.AsyncClient | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        self._n_waiting = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver events while the context is open, and for at most `DRAIN_TIMEOUT_S` longer."""
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

    def open(self, call_sid: str, stream_sid: str, key: str | None = None) -> "Delivery":
        """Make the queue for the events of one call. Its owner must close it.

        Args:
            call_sid: the id of the call. Calls of several keys may have the same.
            key: the name of its API key; `None` for a key without one.
        """
        assert self._tasks, "not running"
        delivery = Delivery(self, call_sid, stream_sid, key)
        task = self._tasks.create_task(self._deliver(delivery))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        return delivery

    def push(self, delivery: "Delivery", event: dict[str, Any]) -> None:
        """Queue one event of a call. If the queue is full, the event is dropped and counted."""
        sequence, delivery.n_pushed = delivery.n_pushed, delivery.n_pushed + 1
        if delivery.queue.qsize() >= MAX_WAITING or self._n_waiting >= MAX_WAITING_TOTAL:
            if not delivery.has_dropped:
                logger.warning("[%s] events are dropped: too many wait for the webhook", delivery.call_sid)
            delivery.has_dropped = True
            self._on_outcome("dropped")
            return
        created_s = self._now()
        body = {
            "id": f"evt_{token_hex(12)}",
            "call_sid": delivery.call_sid,
            "stream_sid": delivery.stream_sid,
            "key": delivery.key,
            "sequence": sequence,
            "said_at": round(created_s, 3),
            "event": event,
        }
        self._n_waiting += 1
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        delivery.queue.put_nowait((created_s, self._clock() + MAX_AGE_S, content))

    async def _deliver(self, delivery: "Delivery") -> None:
        """Deliver the events of one call in order, until it is closed and its queue is empty."""
        while (waiting := await delivery.queue.get()) is not None:
            created_s, expires_s, body = waiting
            try:
                with self._trace(delivery.call_sid, created_s) as trace:
                    outcome = await self._post(delivery.call_sid, expires_s, body, trace)
                    trace.ended(outcome)
            except Exception:
                # A defect costs this event only.
                logger.exception("[%s] delivery failed", delivery.call_sid)
                outcome = "dropped"
            self._n_waiting -= 1
            self._on_outcome(outcome)

    async def _post(self, call_sid: str, expires_s: float, body: bytes, trace: DeliveryTrace) -> Outcome:
        attempt = 0
        while True:
            attempt += 1
            answer, retry_after_s = await self._attempt(body, trace.headers)
            trace.attempted(answer)
            if isinstance(answer, int) and 200 <= answer < 300:
                return "delivered"
            if isinstance(answer, int) and not is_transient(answer):
                logger.warning("[%s] the webhook refuses an event: %s", call_sid, answer)
                return "refused"
            backoff = backoff_s(attempt, FIRST_WAIT_S, MAX_WAIT_S, self._draw_jitter)
            wait_s = max(backoff, min(retry_after_s, MAX_WAIT_S))
            if self._clock() + wait_s > expires_s:
                logger.warning("[%s] the webhook took an event in none of %d attempts: %s", call_sid, attempt, answer)
                return "expired"
            await self._sleep(wait_s)

    async def _attempt(self, body: bytes, trace_headers: Mapping[str, str]) -> tuple[int | str, float]:
        """Send one request. The headers of its trace are empty where it has none.

        Returns:
            The status of the response, or what went wrong; and the `retry-after` of the response in seconds, else 0.
        """
        assert self._client
        headers = {
            "content-type": "application/json",
            SIGNATURE_HEADER: signature(self._secret, int(self._now()), body),
            **trace_headers,
        }
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                # Only the head of the response is read, so the receiver cannot make us read a long body.
                self._client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                return response.status_code, read_integer(response.headers.get("retry-after", "")) or 0.0
        except TimeoutError:
            return f"no answer within {REQUEST_TIMEOUT_S:g} s", 0.0
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}", 0.0


class Delivery:
    """The queue of one call's events. `push` never waits."""

    def __init__(self, webhook: Webhook, call_sid: str, stream_sid: str, key: str | None) -> None:
        self.call_sid = call_sid
        self.stream_sid = stream_sid
        self.key = key
        self.queue: asyncio.Queue[tuple[float, float, bytes] | None] = asyncio.Queue()
        """When each event was pushed, in seconds since 1970, when it expires, and the body of its request.

        `None` after the last one. `Webhook.push` adds no more than `MAX_WAITING`.
        """
        self.has_dropped = False
        """An event has been dropped, and the log has a line about it."""
        self.n_pushed = 0
        """The sequence number of the next event. One that is dropped has one too, so that its receiver sees the gap."""
        self._webhook = webhook

    def push(self, event: dict[str, Any]) -> None:
        """Queue one event; see `Webhook.push`."""
        self._webhook.push(self, event)

    def close(self) -> None:
        """End the queue. Events that wait are still delivered."""
        self.queue.put_nowait(None)
