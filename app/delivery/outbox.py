"""A bounded queue of events for one client, in which a newer interim replaces an older one."""

import asyncio
from collections import deque

from app.errors import CLOSE_POLICY, LimitExceeded
from app.session import events

MAX_WAITING = 256
"""The most events that wait for a client. With more, the client does not read, and its session ends."""

Outgoing = events.Event | events.Reply | events.LateReply
"""What is sent to a client: an event of the session, or a dialect's own answer."""


class Outbox:
    """A queue of events with one reader. After `close` the reader gets the remaining events, then `None`."""

    def __init__(self) -> None:
        self._events: deque[Outgoing] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    def push(self, event: Outgoing) -> None:
        """Queue an event. An interim or lag event replaces an older one of its channel that still waits.

        Raises:
            LimitExceeded: the client reads too slowly. The event is not queued. A fatal failure is always queued.
        """
        if isinstance(event, events.Interim | events.Lag):
            self._drop_older(event)
        is_fatal = isinstance(event, events.Failure) and event.is_fatal
        if len(self._events) >= MAX_WAITING and not is_fatal:
            message = f"{MAX_WAITING} events wait to be read; read faster, or reconnect and resume"
            raise LimitExceeded("slow_reader", message, CLOSE_POLICY)
        self._events.append(event)
        self._changed.set()

    def close(self) -> None:
        """End the queue: no event follows."""
        self._is_closed = True
        self._changed.set()

    async def pop(self) -> Outgoing | None:
        """Wait for the next event; `None` when the outbox is closed and empty. Cancelling loses no event."""
        while not self._events:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()

    def _drop_older(self, newer: events.Interim | events.Lag) -> None:
        for index, older in enumerate(self._events):
            if type(older) is type(newer) and getattr(older, "channel", None) == getattr(newer, "channel", None):
                del self._events[index]
                return
