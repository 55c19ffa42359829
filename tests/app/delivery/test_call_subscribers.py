"""Who hears what is said of a call."""

from contextlib import ExitStack

import pytest

from app.delivery.call_subscribers import MAX_SUBSCRIBERS, Calls
from app.delivery.outbox import MAX_WAITING, Outbox
from app.errors import LimitExceeded, SessionError
from app.session import events

INTRODUCTION = events.Reply('{"type":"call_started"}')
STARTED = events.Started("s_0", "fake", events.Limits())


def flushed(number: int) -> events.Flushed:
    return events.Flushed(number)


async def heard(outbox: Outbox) -> list[object]:
    """All of it; the call is over."""
    said = []
    while (each := await outbox.get()) is not None:
        said.append(each)
    return said


async def test_a_subscriber_may_come_before_the_call() -> None:
    calls = Calls(10)
    with calls.subscribed("CA1") as outbox:
        call = calls.begin("CA1", INTRODUCTION)
        call.publish(STARTED)
        call.publish(flushed(1))
        call.end()
        assert await heard(outbox) == [INTRODUCTION, STARTED, flushed(1)]


async def test_a_late_subscriber_is_told_so() -> None:
    """It hears who is calling, and what follows."""
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    call.publish(STARTED)
    with calls.subscribed("CA1") as in_time:
        call.publish(flushed(1))
        with calls.subscribed("CA1") as late:
            call.publish(flushed(2))
            call.end()
            call.end()
            said = await heard(late)
            assert [said[0], said[1], said[3]] == [INTRODUCTION, STARTED, flushed(2)]
            assert isinstance(said[2], events.Notice) and said[2].code == "joined_late"
        assert await heard(in_time) == [INTRODUCTION, STARTED, flushed(1), flushed(2)]


async def test_a_subscriber_that_does_not_read_is_dropped_alone() -> None:
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    with calls.subscribed("CA1") as slow:
        for number in range(MAX_WAITING):
            call.publish(flushed(number))
        with calls.subscribed("CA1") as other:
            call.publish(flushed(-1))
            call.end()
            assert (await heard(other))[-1] == flushed(-1)
        failure = (await heard(slow))[-1]
        assert isinstance(failure, events.Failure) and failure.code == "slow_reader"


def test_a_name_is_one_call_at_a_time() -> None:
    """And free again after its end."""
    calls = Calls(10)
    call = calls.begin("CA1", INTRODUCTION)
    with pytest.raises(SessionError, match="another stream"):
        calls.begin("CA1", INTRODUCTION)
    call.end()
    calls.begin("CA1", INTRODUCTION).end()


def test_subscribers_are_limited_for_each_call_and_in_all() -> None:
    calls = Calls(MAX_SUBSCRIBERS + 1)
    with ExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS):
            stack.enter_context(calls.subscribed("CA1"))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscribed("CA1"))
        stack.enter_context(calls.subscribed("CA2"))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscribed("CA3"))
    with calls.subscribed("CA3"):
        pass


def test_nothing_is_kept_of_what_is_over() -> None:
    calls = Calls(10)
    with calls.subscribed("CA1"):
        calls.begin("CA1", INTRODUCTION).end()
    with calls.subscribed("CA2"):
        pass
    assert not calls._topics
