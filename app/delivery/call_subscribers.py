"""The telephone calls that are active, and the clients that subscribe to their transcripts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from app.delivery.outbox import Outbox, Outgoing
from app.errors import CLOSE_DRAINING, CLOSE_OVERLOADED, CLOSE_POLICY, LimitExceeded, SessionError
from app.session import events

MAX_SUBSCRIBERS_PER_CALL = 8
"""Each subscriber costs a socket, and an outbox with its own limit."""
LEAVE_S = 1.0
"""How long subscribers of a stopping server may take to receive their last events, in seconds."""
GOING_DOWN = "the server is going down; subscribe at another"


@dataclass(slots=True, eq=False)
class _Topic:
    """One call id: its active call, its subscribers, or both."""

    subscribers: set[Outbox] = field(default_factory=set)
    is_active: bool = False
    """The call has begun and has not ended."""
    opening: list[Outgoing] = field(default_factory=list)
    """What every subscriber receives first: the introduction of the call and its `Started` event."""
    n_published: int = 0
    """Events of the active call so far."""


class Calls:
    """Connects calls with their subscribers. Publishing never waits: a subscriber that does not read is dropped."""

    def __init__(self, max_subscribers: int) -> None:
        """Start without calls; `max_subscribers` is the limit for all calls together."""
        self._max_subscribers = max_subscribers
        self._n_subscribers = 0
        self._is_draining = False
        self._is_unused = asyncio.Event()
        """Set while there is no subscriber."""
        self._is_unused.set()
        self._topics: dict[str, _Topic] = {}

    def begin(self, sid: str, introduction: Outgoing) -> "ActiveCall":
        """Make a call active until its `end`, and publish its introduction.

        Raises:
            SessionError: a call with this id is active already.
        """
        topic = self._topics.setdefault(sid, _Topic())
        if topic.is_active:
            message = f"call {sid}: another stream of it is being heard; ask for both_tracks in one"
            raise SessionError("call_is_on", message, CLOSE_POLICY)
        topic.is_active = True
        topic.n_published = 0
        topic.opening = []
        call = ActiveCall(self, sid, topic)
        call.publish(introduction)
        return call

    @contextmanager
    def subscribe(self, sid: str) -> Iterator[Outbox]:
        """The events of a call that is active or has yet to begin. The outbox is closed when the call ends.

        A subscriber that arrives after events have been published receives the notice `joined_late`.

        Raises:
            LimitExceeded: there are too many subscribers, or the server is stopping.
        """
        if self._is_draining:
            raise LimitExceeded("draining", GOING_DOWN, CLOSE_DRAINING)
        topic = self._topics.setdefault(sid, _Topic())
        try:
            if self._n_subscribers >= self._max_subscribers or len(topic.subscribers) >= MAX_SUBSCRIBERS_PER_CALL:
                message = f"no room: {self._n_subscribers} subscribers listen, {len(topic.subscribers)} to this call"
                raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)
            outbox = Outbox()
            for event in topic.opening:
                outbox.push(event)
            if topic.n_published > len(topic.opening):
                outbox.push(events.Notice("joined_late", "the call has been on for a while; this is what follows"))
            self._n_subscribers += 1
            self._is_unused.clear()
            topic.subscribers.add(outbox)
            try:
                yield outbox
            finally:
                topic.subscribers.discard(outbox)
                self._n_subscribers -= 1
                if not self._n_subscribers:
                    self._is_unused.set()
        finally:
            self.drop_if_unused(sid, topic)

    def drain(self) -> None:
        """Send the subscribers elsewhere whose calls have not begun. The others receive the ends of their calls."""
        self._is_draining = True
        for topic in self._topics.values():
            for outbox in () if topic.is_active else topic.subscribers:
                outbox.push(events.Failure("draining", GOING_DOWN, is_fatal=True))
                outbox.close()

    async def wait_until_unused(self) -> None:
        """Wait until the last subscriber has received what was left, for a limited time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._is_unused.wait()

    def drop_if_unused(self, sid: str, topic: _Topic) -> None:
        """Remove a call id that has neither an active call nor a subscriber."""
        if not topic.is_active and not topic.subscribers and self._topics.get(sid) is topic:
            del self._topics[sid]


class ActiveCall:
    """Publishes the events of one active call. The call's own connection owns it."""

    def __init__(self, calls: Calls, sid: str, topic: _Topic) -> None:
        self._calls = calls
        self._sid = sid
        self._topic = topic

    def publish(self, event: Outgoing) -> None:
        """Push an event to every subscriber. One that does not read gets a fatal failure and is dropped."""
        topic = self._topic
        topic.n_published += 1
        if not topic.opening or isinstance(event, events.Started):
            topic.opening.append(event)
        for outbox in list(topic.subscribers):
            try:
                outbox.push(event)
            except LimitExceeded as error:
                outbox.push(events.Failure(error.code, error.message, is_fatal=True))
                outbox.close()
                topic.subscribers.discard(outbox)

    def end(self) -> None:
        """End the call and close the outboxes of its subscribers. A second call has no effect."""
        if not self._topic.is_active:
            return
        self._topic.is_active = False
        for outbox in self._topic.subscribers:
            outbox.close()
        # They still read what is queued; later subscribers wait for another call with this id.
        self._topic.subscribers.clear()
        self._calls.drop_if_unused(self._sid, self._topic)
