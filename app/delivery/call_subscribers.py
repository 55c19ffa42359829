"""The calls that are on, and who listens to what is said of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.delivery.outbox import Outbox
from app.errors import CLOSE_OVERLOADED, CLOSE_POLICY, LimitExceeded, SessionError
from app.session import events

# Of one call. Each costs a socket, and an outbox of its own limit.
MAX_SUBSCRIBERS = 8

Said = events.Event | events.Reply


@dataclass(slots=True, eq=False)
class _Topic:
    """What happens under one name: a call, those who listen to it, or both."""

    subscribers: set[Outbox] = field(default_factory=set)
    is_on: bool = False
    opening: list[Said] = field(default_factory=list)
    """What every subscriber hears first: that the call has begun, and its session."""
    n_said: int = 0


class Calls:
    """Nothing here waits: a subscriber that does not read is dropped, and the call goes on."""

    def __init__(self, max_subscribers: int) -> None:
        """Args:
        max_subscribers: of all calls together; one more is refused.
        """
        self._max_subscribers = max_subscribers
        self._n_subscribers = 0
        self._topics: dict[str, _Topic] = {}

    def begin(self, sid: str, introduction: Said) -> "ActiveCall":
        """A call is on from now until its `end`.

        Raises:
            SessionError: another one of this name is.
        """
        topic = self._topics.setdefault(sid, _Topic())
        if topic.is_on:
            message = f"call {sid}: another stream of it is being heard; ask for both_tracks in one"
            raise SessionError("call_is_on", message, CLOSE_POLICY)
        topic.is_on = True
        topic.n_said = 0
        topic.opening = []
        call = ActiveCall(self, sid, topic)
        call.publish(introduction)
        return call

    @contextmanager
    def subscribed(self, sid: str) -> Iterator[Outbox]:
        """What is said of a call, whether it is on or still to come; closed at its end. Later than its begin, the
        subscriber is told that it missed something.

        Raises:
            LimitExceeded: too many listen already.
        """
        topic = self._topics.setdefault(sid, _Topic())
        try:
            if self._n_subscribers >= self._max_subscribers or len(topic.subscribers) >= MAX_SUBSCRIBERS:
                message = f"no room: {self._n_subscribers} subscribers listen, {len(topic.subscribers)} to this call"
                raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED)
            outbox = Outbox()
            for said in topic.opening:
                outbox.put(said)
            if topic.n_said > len(topic.opening):
                outbox.put(events.Notice("joined_late", "the call has been on for a while; this is what follows"))
            self._n_subscribers += 1
            topic.subscribers.add(outbox)
            try:
                yield outbox
            finally:
                topic.subscribers.discard(outbox)
                self._n_subscribers -= 1
        finally:
            self.forget(sid, topic)

    def forget(self, sid: str, topic: _Topic) -> None:
        """Let go of a name under which nothing happens any more."""
        if not topic.is_on and not topic.subscribers and self._topics.get(sid) is topic:
            del self._topics[sid]


class ActiveCall:
    """A call as its own connection sees it."""

    def __init__(self, calls: Calls, sid: str, topic: _Topic) -> None:
        self._calls = calls
        self._sid = sid
        self._topic = topic

    def publish(self, said: Said) -> None:
        topic = self._topic
        topic.n_said += 1
        if not topic.opening or isinstance(said, events.Started):
            topic.opening.append(said)
        for outbox in list(topic.subscribers):
            try:
                outbox.put(said)
            except LimitExceeded as error:
                outbox.put(events.Failure(error.code, error.message, is_fatal=True))
                outbox.close()
                topic.subscribers.discard(outbox)

    def end(self) -> None:
        """The call is over, and its subscribers with it. Once more changes nothing."""
        if not self._topic.is_on:
            return
        self._topic.is_on = False
        for outbox in self._topic.subscribers:
            outbox.close()
        # They read what is left; who subscribes from now on waits for another call of this name.
        self._topic.subscribers.clear()
        self._calls.forget(self._sid, self._topic)
