"""Subscribers receive the events of a call."""

from contextlib import ExitStack

import pytest

from app.delivery.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from app.delivery.outbox import MAX_WAITING, Outbox, Outgoing
from app.errors import LimitExceeded, SessionError
from app.session import events

INTRODUCTION = events.Reply('{"type":"call_started"}')
STARTED = events.Started("s_0", "fake", events.Limits())


def flushed(number: int) -> events.Flushed:
    return events.Flushed(number)


async def received(outbox: Outbox) -> list[Outgoing]:
    """All events of a call that has ended."""
    popped = []
    while (event := await outbox.pop()) is not None:
        popped.append(event)
    return popped


async def test_a_subscriber_may_arrive_before_the_call() -> None:
    calls = Calls(10)
    with calls.subscribe("CA1") as outbox:
        call = calls.begin("CA1", INTRODUCTION)
        call.publish(STARTED)
        call.publish(flushed(1))
        call.end()
        assert await received(outbox) == [INTRODUCTION, STARTED, flushed(1)]


async def test_a_late_subscriber_receives_a_notice() -> None:
    """It receives the introduction of the call, the notice, and later events."""
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    call.publish(STARTED)
    with calls.subscribe("CA1") as in_time:
        call.publish(flushed(1))
        with calls.subscribe("CA1") as late:
            call.publish(flushed(2))
            call.end()
            call.end()
            introduction, started, notice, last = await received(late)
            assert [introduction, started, last] == [INTRODUCTION, STARTED, flushed(2)]
            assert isinstance(notice, events.Notice) and notice.code == "joined_late"
        assert await received(in_time) == [INTRODUCTION, STARTED, flushed(1), flushed(2)]


async def test_a_subscriber_that_does_not_read_is_dropped_alone() -> None:
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    with calls.subscribe("CA1") as slow:
        for number in range(MAX_WAITING):
            call.publish(flushed(number))
        with calls.subscribe("CA1") as other:
            call.publish(flushed(-1))
            call.end()
            assert (await received(other))[-1] == flushed(-1)
        failure = (await received(slow))[-1]
        assert isinstance(failure, events.Failure) and failure.code == "slow_reader"


def test_a_call_id_belongs_to_one_call_at_a_time() -> None:
    """After the end of a call its id can be used again."""
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    with pytest.raises(SessionError, match="another stream"):
        calls.begin("CA1", INTRODUCTION)
    call.end()
    calls.begin("CA1", INTRODUCTION).end()


def test_subscribers_are_limited_for_each_call_and_in_total() -> None:
    calls = Calls(MAX_SUBSCRIBERS_PER_CALL + 1)
    with ExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS_PER_CALL):
            stack.enter_context(calls.subscribe("CA1"))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscribe("CA1"))
        stack.enter_context(calls.subscribe("CA2"))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscribe("CA3"))
    with calls.subscribe("CA3"):
        pass


def test_ended_calls_leave_no_state() -> None:
    calls = Calls(10)
    with calls.subscribe("CA1"):
        calls.begin("CA1", INTRODUCTION).end()
    with calls.subscribe("CA2"):
        pass
    assert not calls._topics


async def test_a_stopping_server_has_no_new_subscribers() -> None:
    """Those whose call has begun stay until its end; the others learn that they must go elsewhere."""
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    with calls.subscribe("CA1") as busy, calls.subscribe("CA2") as idle:
        calls.drain()
        for sid in ("CA1", "CA2"):
            with pytest.raises(LimitExceeded, match="going down"), calls.subscribe(sid):
                pass
        assert [type(each) for each in await received(idle)] == [events.Failure]
        call.publish(events.Notice("n", "n"))
        call.end()
        assert await received(busy) == [INTRODUCTION, events.Notice("n", "n")]
