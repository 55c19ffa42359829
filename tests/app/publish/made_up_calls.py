"""Made-up calls, and what their subscribers receive."""

from collections.abc import Callable, Sequence

from tutti_server.app.errors import SessionError
from tutti_server.app.publish.call_subscribers import Calls, PublishedCall, Receipt
from tutti_server.app.publish.outbox import CallEvent, CallId, CallMessage, Outbox
from tutti_server.app.session.messages import events

CA1, CA2, CA3 = (CallId("acme", sid) for sid in ("CA1", "CA2", "CA3"))


def write(event: CallEvent, channel_names: Sequence[str] = ()) -> tuple[str, ...]:
    """Stands for the protocol of the subscribers."""
    return (repr(event),)


def message(event: CallEvent) -> CallMessage:
    return CallMessage.of(event, write)


def flushed(number: int) -> CallMessage:
    return message(events.Flushed(number))


INTRODUCTION = message(events.Reply('{"type":"call_started"}'))
STARTED = message(events.Started("s_0", "fake", events.Limits()))


def begin(
    calls: Calls,
    call_id: CallId = CA1,
    introduction: CallMessage = INTRODUCTION,
    on_refusal: Callable[[SessionError], None] = lambda error: None,
) -> PublishedCall:
    return calls.begin(call_id, introduction, on_refusal)


async def received(outbox: Outbox[Receipt]) -> list[Receipt]:
    """Everything of a call that has ended."""
    popped = []
    while (event := await outbox.pop()) is not None:
        popped.append(event)
    return popped
