"""Events on their way to one client: bounded, and readings that a newer one replaces do not pile up."""

import asyncio
from collections import deque

from app.errors import CLOSE_POLICY, LimitExceeded
from app.session import events

# Events that may wait for a client; more means that it does not read, and its session is ended.
MAX_WAITING = 256


class Outbox:
    """A queue of events with one reader. After `close` the reader gets what is left, then `None`."""

    def __init__(self) -> None:
        self._events: deque[events.Event | events.Reply] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, event: events.Event | events.Reply) -> None:
        """Queue an event; an interim or a lag that still waits makes way for the newer one.

        Raises:
            LimitExceeded: the client reads too slowly. The event is not queued.
        """
        if isinstance(event, events.Interim | events.Lag):
            self._drop_older(event)
        is_last_word = isinstance(event, events.Failure) and event.is_fatal
        if len(self._events) >= MAX_WAITING and not is_last_word:
            message = f"{MAX_WAITING} events wait to be read; read faster, or reconnect and resume"
            raise LimitExceeded("slow_reader", message, CLOSE_POLICY)
        self._events.append(event)
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def get(self) -> events.Event | events.Reply | None:
        """The next event; `None` when there is none left and the outbox is closed. Cancelling loses nothing."""
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
