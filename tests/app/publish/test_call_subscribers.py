"""Subscribers receive the events of a call."""

from contextlib import AsyncExitStack

import pytest

from tests.app.publish.made_up_calls import CA1, CA2, CA3, INTRODUCTION, begin, flushed, received
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.publish.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from tutti_server.app.publish.outbox import MAX_WAITING
from tutti_server.app.session.messages import events


async def test_a_subscriber_that_does_not_read_is_dropped_alone() -> None:
    calls = Calls(10)
    call = begin(calls)
    async with calls.subscribe(CA1) as slow:
        for number in range(MAX_WAITING):
            call.publish(flushed(number))
        async with calls.subscribe(CA1) as other:
            call.publish(flushed(-1))
            call.end()
            call.end()
            assert (await received(other))[-1:] == [flushed(-1)]
        failure = (await received(slow))[-1]
        assert isinstance(failure, events.Failure) and failure.code == "slow_reader"


async def test_subscribers_are_limited_for_each_call_and_in_total() -> None:
    calls = Calls(MAX_SUBSCRIBERS_PER_CALL + 1)
    async with AsyncExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS_PER_CALL):
            await stack.enter_async_context(calls.subscribe(CA1))
        with pytest.raises(LimitExceeded):
            await stack.enter_async_context(calls.subscribe(CA1))
        await stack.enter_async_context(calls.subscribe(CA2))
        with pytest.raises(LimitExceeded):
            await stack.enter_async_context(calls.subscribe(CA3))
    async with calls.subscribe(CA3):
        pass


async def test_streams_of_a_call_publish_one_after_the_other() -> None:
    """Also one that has ended before it could begin. Subscribers receive all of them."""
    calls, reasons = Calls(1), []
    async with calls.subscribe(CA1) as outbox:
        streams = [begin(calls, on_refusal=lambda error: reasons.append(error.code)) for _ in range(3)]
        for number in (2, 1, 0):
            streams[number].publish(flushed(number))
            streams[number].end()
            streams[number].end()
        assert await received(outbox) == [each for number in range(3) for each in (INTRODUCTION, flushed(number))]
    assert reasons == ["call_is_on"] * 2
    async with calls.subscribe(CA1) as outbox:
        begin(calls).end()
        assert await received(outbox) == [INTRODUCTION]
