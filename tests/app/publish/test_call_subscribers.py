"""Subscribers receive the events of a call."""

from contextlib import ExitStack, suppress

import pytest

from tests.app.publish.made_up_calls import CA1, CA2, CA3, INTRODUCTION, STARTED, begin, flushed, message, received
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.publish.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from tutti_server.app.publish.outbox import MAX_WAITING, CallId
from tutti_server.app.session.messages import events


async def test_a_late_subscriber_receives_a_notice() -> None:
    """It receives the introduction of the call, the notice, and later events."""
    calls = Calls(10)
    call = begin(calls)
    call.publish(STARTED)
    with calls.subscription(CA1) as in_time:
        call.publish(flushed(1))
        with calls.subscription(CA1) as late:
            call.publish(flushed(2))
            call.end()
            call.end()
            introduction, started, notice, last = await received(late)
            assert [introduction, started, last] == [INTRODUCTION, STARTED, flushed(2)]
            assert isinstance(notice, events.Notice) and notice.code == "joined_late"
        assert await received(in_time) == [INTRODUCTION, STARTED, flushed(1), flushed(2)]


async def test_a_subscriber_that_does_not_read_is_dropped_alone() -> None:
    calls = Calls(10)
    call = begin(calls)
    with calls.subscription(CA1) as slow:
        for number in range(MAX_WAITING):
            call.publish(flushed(number))
        with calls.subscription(CA1) as other:
            call.publish(flushed(-1))
            call.end()
            assert (await received(other))[-1:] == [flushed(-1)]
        failure = (await received(slow))[-1]
        assert isinstance(failure, events.Failure) and failure.code == "slow_reader"


def test_subscribers_are_limited_for_each_call_and_in_total() -> None:
    calls = Calls(MAX_SUBSCRIBERS_PER_CALL + 1)
    with ExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS_PER_CALL):
            stack.enter_context(calls.subscription(CA1))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscription(CA1))
        stack.enter_context(calls.subscription(CA2))
        with pytest.raises(LimitExceeded):
            stack.enter_context(calls.subscription(CA3))
    with calls.subscription(CA3):
        pass


def test_one_account_leaves_places_of_subscribers_to_others() -> None:
    """It has as many as are left, on however many calls, so that none can hold all of them."""
    calls = Calls(40)

    def come(n: int, account: str, stack: ExitStack) -> int:
        """How many of these get a place."""
        n_places = 0
        for number in range(n):
            with suppress(LimitExceeded):
                call_id = CallId(account, f"call {number // MAX_SUBSCRIBERS_PER_CALL}")
                stack.enter_context(calls.subscription(call_id, account))
                n_places += 1
        return n_places

    with ExitStack() as stack:
        assert come(40, "greedy", stack) == 20
        assert come(5, "modest", stack) == 5
        with pytest.raises(LimitExceeded, match="you have 20 subscribers; 15 places stay free for others"):
            stack.enter_context(calls.subscription(CA1, "greedy"))
    with ExitStack() as stack:
        assert come(40, "greedy", stack) == 20


async def test_a_stopping_server_has_no_new_subscribers() -> None:
    """Those whose call has begun stay until its end; the others learn that they must go elsewhere."""
    calls = Calls(10)
    call = begin(calls)
    with calls.subscription(CA1) as busy, calls.subscription(CA2) as idle:
        calls.drain()
        for sid in (CA1, CA2):
            with pytest.raises(LimitExceeded, match="going down"), calls.subscription(sid):
                pass
        assert [type(each) for each in await received(idle)] == [events.Failure]
        call.publish(message(events.Notice("n", "n")))
        call.end()
        assert await received(busy) == [INTRODUCTION, message(events.Notice("n", "n"))]
