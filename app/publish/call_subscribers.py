"""The telephone calls that are active, and the clients that subscribe to their transcripts at this gateway."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Protocol

from tutti_server.app.errors import CLOSE_DRAINING, CLOSE_OVERLOADED, CLOSE_POLICY, LimitExceeded, SessionError
from tutti_server.app.fair_shares import Share
from tutti_server.app.publish.outbox import CallId, CallMessage, Outbox
from tutti_server.app.session.messages import events

MAX_SUBSCRIBERS_PER_CALL = 8
"""Each subscriber costs a socket, and an outbox with its own limit."""
LEAVE_S = 1.0
"""How long subscribers of a stopping server may take to receive their last events, in seconds."""
GOING_DOWN = "the server is going down; subscribe at another"
JOINED_LATE = events.Notice("joined_late", "the call has been on for a while; this is what follows")

Receipt = CallMessage | events.Notice | events.Failure
"""What a subscriber receives: messages of the call, and what the server says to it beside."""


class PublishedCall(Protocol):
    """Publishes the events of one call. The call's own connection owns it."""

    def publish(self, message: CallMessage) -> None:
        """Send an event to every subscriber. Never waits."""
        ...

    def end(self) -> None:
        """End the stream, and the subscriptions unless a newer one follows. A second call has no effect."""
        ...


@dataclass(slots=True, eq=False)
class _Topic:
    """What is known under one call id: its active call, its subscribers, or both."""

    subscribers: set[Outbox[Receipt]] = field(default_factory=set)
    is_active: bool = False
    """The call has begun and has not ended."""
    opening: list[CallMessage] = field(default_factory=list)
    """What every subscriber receives first: the introduction of the call and its `Started` event."""
    n_published: int = 0
    """Messages of the active call so far."""


class Calls:
    """Connects the calls of one gateway with their subscribers.

    Publishing never waits: a subscriber that does not read is dropped.
    """

    def __init__(self, max_subscribers: int) -> None:
        self._max_subscribers = max_subscribers
        self._shares = Share()
        self._is_draining = False
        self._is_unused = asyncio.Event()
        """Set while there is no subscriber."""
        self._is_unused.set()
        self._topics: dict[CallId, _Topic] = {}
        self._streams: dict[CallId, _Stream] = {}
        """The newest stream of each call that is active."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Deliver events while the context is open."""
        return nullcontext()

    def begin(
        self, call_id: CallId, introduction: CallMessage, on_refusal: Callable[[SessionError], None]
    ) -> PublishedCall:
        """Begin a stream of a call, and publish its introduction. It follows the streams that the call has had.

        Args:
            introduction: what every subscriber receives first.
            on_refusal: called with the reason if the stream is to end: there is a newer one, or an older one at another
                gateway does not end. It is still to publish what it has.
        """
        stream = _Stream(self, call_id, on_refusal)
        stream.publish(introduction)
        older, self._streams[call_id] = self._streams.get(call_id), stream
        if older is None:
            stream.start()
        else:
            older.give_way(stream)
        return stream

    def forget(self, call_id: CallId) -> None:
        """The newest stream of a call has ended."""
        del self._streams[call_id]

    def feed(self, call_id: CallId) -> "CallFeed":
        """Make a call active that no feed of this hub belongs to."""
        topic = self._topics.setdefault(call_id, _Topic())
        topic.is_active = True
        return CallFeed(self, call_id, topic)

    @asynccontextmanager
    async def subscribe(self, call_id: CallId, holder: str = "") -> AsyncIterator[Outbox[Receipt]]:
        """The events of a call that is active or has yet to begin. The outbox is closed when the call ends.

        A subscriber that arrives after events have been published receives the notice `joined_late`.

        Args:
            holder: whose subscriber it is, where several share the limit: one of them has no more subscribers than
                remain for the others. Empty where they are not told apart.

        Raises:
            LimitExceeded: there are too many subscribers, the server is stopping, or calls at other gateways cannot be
                followed now.
        """
        if self._is_draining:
            raise LimitExceeded("draining", GOING_DOWN, CLOSE_DRAINING)
        topic = self._topics.setdefault(call_id, _Topic())
        try:
            self._check_room(topic, holder)
            outbox: Outbox[Receipt] = Outbox()
            for opening in topic.opening:
                outbox.push(opening)
            if topic.n_published > len(topic.opening):
                outbox.push(JOINED_LATE)
            self._is_unused.clear()
            topic.subscribers.add(outbox)
            try:
                with self._shares.one_more(holder):
                    yield outbox
            finally:
                topic.subscribers.discard(outbox)
                if not self._shares.total():
                    self._is_unused.set()
        finally:
            self.drop_if_unused(call_id, topic)

    def _check_room(self, topic: _Topic, holder: str) -> None:
        n_all, n_of_call = self._shares.total(), len(topic.subscribers)
        n_left = self._max_subscribers - n_all
        if n_left <= 0 or n_of_call >= MAX_SUBSCRIBERS_PER_CALL:
            message = f"no room: {n_all} subscribers listen, {n_of_call} to this call"
        elif self._shares.is_used(holder, n_left):
            message = f"no room: you have {self._shares.held(holder)} subscribers; {n_left} places stay free for others"
        else:
            return
        raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)

    def drain(self, *, others_stop: bool = False) -> None:
        """Send the subscribers elsewhere whose calls do not end with this server. The others receive these ends.

        Args:
            others_stop: the other gateways of this service stop, too: the calls that are active are likely theirs.
        """
        self._is_draining = True
        for call_id, topic in self._topics.items():
            if not (topic.is_active and (others_stop or self._ends_here(call_id))):
                self._send_elsewhere(topic)

    def _send_elsewhere(self, topic: _Topic) -> None:
        for outbox in topic.subscribers:
            outbox.push(events.Failure("draining", GOING_DOWN, is_fatal=True))
            outbox.close()
        topic.subscribers.clear()

    def _ends_here(self, call_id: CallId) -> bool:
        return True

    async def wait_until_unused(self) -> None:
        """Wait until the last subscriber has received what was left, for a limited time.

        Those whose calls have not ended in this time are sent elsewhere.
        """
        await self._wait_for_subscribers()
        if unended := [topic for topic in self._topics.values() if topic.subscribers]:
            for topic in unended:
                self._send_elsewhere(topic)
            await self._wait_for_subscribers()

    async def _wait_for_subscribers(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._is_unused.wait()

    def drop_if_unused(self, call_id: CallId, topic: _Topic) -> None:
        """Remove a call id that has neither an active call nor a subscriber."""
        if not topic.is_active and not topic.subscribers and self._topics.get(call_id) is topic:
            del self._topics[call_id]


class CallFeed:
    """A `PublishedCall` that passes its messages to the subscribers of this gateway alone."""

    def __init__(self, calls: Calls, call_id: CallId, topic: _Topic) -> None:
        self._calls = calls
        self._call_id = call_id
        self._topic = topic
        self.reopen()

    def reopen(self) -> None:
        """The call begins anew: what comes next is its opening."""
        self._topic.n_published = 0
        self._topic.opening = []

    def publish(self, message: CallMessage) -> None:
        """See `PublishedCall`."""
        if not self._topic.opening or message.is_opening:
            self._topic.opening.append(message)
        self.notify(message)

    def notify(self, receipt: Receipt) -> None:
        """Push to every subscriber. One that does not read gets a fatal failure and is dropped."""
        topic = self._topic
        topic.n_published += 1
        for outbox in list(topic.subscribers):
            try:
                outbox.push(receipt)
            except LimitExceeded as error:
                outbox.push(events.Failure(error.code, error.message, is_fatal=True))
                outbox.close()
                topic.subscribers.discard(outbox)

    def end(self) -> None:
        """See `PublishedCall`."""
        if not self._topic.is_active:
            return
        self._topic.is_active = False
        for outbox in self._topic.subscribers:
            outbox.close()
        # They still read what is queued; later subscribers wait for the next call with this id.
        self._topic.subscribers.clear()
        self._calls.drop_if_unused(self._call_id, self._topic)


class _Stream:
    """A `PublishedCall` whose messages wait until the stream before it has ended, which `final_deadline_s` limits."""

    def __init__(self, calls: Calls, call_id: CallId, on_refusal: Callable[[SessionError], None]) -> None:
        self._calls = calls
        self._call_id = call_id
        self._on_refusal = on_refusal
        self._waiting: list[CallMessage] = []
        self._feed: CallFeed | None = None
        self._newer: _Stream | None = None
        self._has_ended = False

    def start(self) -> None:
        self._feed = self._calls.feed(self._call_id)
        for message in self._waiting:
            self._feed.publish(message)
        self._waiting.clear()
        if self._has_ended:
            self._leave(self._feed)

    def give_way(self, newer: "_Stream") -> None:
        """End, and let a newer stream publish after it."""
        self._newer = newer
        self._on_refusal(call_is_on(self._call_id))

    def publish(self, message: CallMessage) -> None:
        if self._feed is None:
            self._waiting.append(message)
        else:
            self._feed.publish(message)

    def end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._feed is not None:
            self._leave(self._feed)

    def _leave(self, feed: CallFeed) -> None:
        if self._newer is not None:
            self._newer.start()
        else:
            self._calls.forget(self._call_id)
            feed.end()


def call_is_on(call_id: CallId) -> SessionError:
    """The reason why one of two streams of a call ends."""
    message = f"call {call_id}: another stream of it is being heard; ask for both_tracks in one"
    return SessionError("call_is_on", message, CLOSE_POLICY)
