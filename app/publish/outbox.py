"""A bounded queue of events for one client, in which a newer interim replaces an older one."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tutti_server.app.errors import CLOSE_POLICY, LimitExceeded
from tutti_server.app.session.messages import events

MAX_WAITING = 256
"""The most events that wait for a client. With more, the client does not read, and its session ends."""

Outgoing = events.Event | events.Reply | events.LateReply
"""What is sent to a client: an event of the session, or a dialect's own answer."""

CallEvent = events.Event | events.Reply
"""What the receivers of a call's events get."""


@dataclass(frozen=True, slots=True)
class CallId:
    """Tells a call from all others of a service."""

    account: str
    """The account that has the call. Others may have calls with the same `sid`, and know nothing of this one."""
    sid: str
    """The id that its client has sent."""

    def __str__(self) -> str:
        """The id as its client knows it, for messages and the log."""
        return self.sid


class WriteEvent(Protocol):
    """Writes an event as JSON texts, in the protocol that the receivers of a call's events understand."""

    def __call__(self, event: CallEvent, channel_names: Sequence[str] = ()) -> Iterable[str]:
        """The texts of an event; `channel_names` say who speaks on each channel."""
        ...


@dataclass(frozen=True, slots=True)
class CallMessage:
    """An event of a call as it is sent to all receivers: written once, wherever they are."""

    texts: tuple[str, ...]
    replaces: str | None = None
    """While an older message with the same text here waits, this one replaces it."""
    is_opening: bool = False
    """Whether every later subscriber of the call receives it first."""

    @classmethod
    def of(cls, event: CallEvent, write_event: WriteEvent) -> "CallMessage":
        """Write an event."""
        return cls(tuple(write_event(event)), _replaced(event), isinstance(event, events.Started))


Item = TypeVar("Item", bound=Outgoing | CallMessage)


class Outbox(Generic[Item]):
    """A queue of events with one reader. After `close` the reader gets the remaining events, then `None`."""

    def __init__(self) -> None:
        self._events: deque[Item] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    def push(self, event: Item) -> None:
        """Queue an event, but none after `close`. An interim or lag event replaces an older one that still waits.

        Raises:
            LimitExceeded: the client reads too slowly. The event is queued all the same. Not after a fatal failure.
        """
        if self._is_closed:
            return
        self._drop_replaced(event)
        self._events.append(event)
        self._changed.set()
        is_fatal = isinstance(event, events.Failure) and event.is_fatal
        if len(self._events) > MAX_WAITING and not is_fatal:
            message = f"{MAX_WAITING} events wait to be read; read faster, or reconnect and resume"
            raise LimitExceeded("slow_reader", message, CLOSE_POLICY)

    def push_over(self, event: Item) -> Item | None:
        """Queue an event, in place of the oldest one if too many wait. Returns that one."""
        try:
            self.push(event)
        except LimitExceeded:
            return self._events.popleft()
        return None

    def close(self) -> None:
        """End the queue: no event follows."""
        self._is_closed = True
        self._changed.set()

    async def pop(self) -> Item | None:
        """Wait for the next event; `None` when the outbox is closed and empty. Cancelling loses no event."""
        while not self._events:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()

    def _drop_replaced(self, newer: Item) -> None:
        if (replaced := _replaced(newer)) is None:
            return
        for index, older in enumerate(self._events):
            if _replaced(older) == replaced:
                del self._events[index]
                return


def _replaced(event: Outgoing | CallMessage) -> str | None:
    """Return the same text for an event and for the newer events that replace it; `None` if nothing replaces it."""
    match event:
        case events.Interim(channel=channel):
            return f"interim {channel}"
        case events.Lag():
            return "lag"
        case CallMessage(replaces=replaced):
            return replaced
        case _:
            return None
