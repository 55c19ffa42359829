"""Events of calls on their way to a webhook that refuses, fails, is slow or is gone; the clock is a number."""

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.webhook import (
    MAX_AGE_S,
    MAX_WAIT_S,
    MAX_WAITING,
    SIGNATURE_HEADER,
    Outcome,
    Webhook,
    signature,
    wait_s,
)

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "twilio.md"


@pytest.fixture(autouse=True)
async def time_limit() -> AsyncIterator[None]:
    async with asyncio.timeout(10):
        yield


@dataclass
class Receiver:
    """Answers as it is told, and 200 when it is told nothing; the time passes only while somebody sleeps."""

    answers: list[httpx.Response | Exception] = field(default_factory=list)
    always: int = 200
    requests: list[httpx.Request] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 1_700_000_000.0
    holds: asyncio.Event | None = None
    arrived: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    """Something for each request."""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.arrived.put_nowait(None)
        if self.holds is not None:
            await self.holds.wait()
        answer = self.answers.pop(0) if self.answers else httpx.Response(self.always)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def bodies(self) -> list[dict]:
        return [json.loads(request.content) for request in self.requests]

    @asynccontextmanager
    async def webhook(self) -> AsyncIterator[Webhook]:
        webhook = Webhook(
            "https://example.org/hook",
            "secret",
            self.outcomes.append,
            transport=httpx.MockTransport(self.answer),
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: 1.0,
        )
        async with webhook.running():
            yield webhook


def text(number: int) -> dict[str, object]:
    return {"type": "utterance", "utterance": number}


async def deliver(receiver: Receiver, n_events: int = 1) -> None:
    """All events of a call, to the end."""
    async with receiver.webhook() as webhook:
        delivery = webhook.open("CA1", "MZ1")
        for number in range(n_events):
            delivery.put(text(number))
        delivery.close()


async def test_events_arrive_in_order_with_all_they_need() -> None:
    receiver = Receiver()
    await deliver(receiver, 3)
    bodies = receiver.bodies()
    assert [body["event"] for body in bodies] == [text(0), text(1), text(2)]
    assert [body["sequence"] for body in bodies] == [0, 1, 2]
    assert {(body["call_sid"], body["stream_sid"], body["said_at"]) for body in bodies} == {("CA1", "MZ1", 1.7e9)}
    assert len({body["id"] for body in bodies}) == 3
    assert receiver.outcomes == ["delivered"] * 3


def test_receivers_can_check_what_they_get_as_they_are_told_to() -> None:
    """The code on the page takes what we sign, and nothing else: no other body, secret or time."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    now = int(time.time())
    assert names["is_ours"](signature("secret", now, b"{}"), b"{}", "secret")
    assert not names["is_ours"](signature("secret", now, b"{}"), b"[]", "secret")
    assert not names["is_ours"](signature("secret", now, b"{}"), b"{}", "other")
    assert not names["is_ours"](signature("secret", now - 600, b"{}"), b"{}", "secret")


async def test_a_request_is_signed_with_its_time() -> None:
    """Each attempt with its own."""
    receiver = Receiver([httpx.Response(500), httpx.Response(500)])
    await deliver(receiver)
    for request, at in zip(receiver.requests, (1_700_000_000, 1_700_000_000, 1_700_000_001), strict=True):
        fields = dict(part.split("=") for part in request.headers[SIGNATURE_HEADER].split(","))
        assert fields["t"] == str(at)
        signed = fields["t"].encode() + b"." + request.content
        assert hmac.compare_digest(fields["v1"], hmac.new(b"secret", signed, hashlib.sha256).hexdigest())


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(503),
        httpx.Response(429),
        httpx.Response(408),
        httpx.ConnectError("nobody listens"),
        httpx.ReadTimeout("slow"),
        TimeoutError(),
    ],
)
async def test_what_may_pass_is_tried_again(answer: httpx.Response | Exception) -> None:
    """The same event under the same id, before the next one."""
    receiver = Receiver([answer, answer])
    await deliver(receiver, 2)
    assert [body["sequence"] for body in receiver.bodies()] == [0, 0, 0, 1]
    assert len({body["id"] for body in receiver.bodies()}) == 2
    assert receiver.slept == [0.5, 1.0]
    assert receiver.outcomes == ["delivered", "delivered"]


async def test_a_receiver_may_ask_for_time() -> None:
    """But not for more than we would give by ourselves."""
    again = [httpx.Response(429, headers={"retry-after": after}) for after in ("7", "86400", "Sat, 21 Nov")]
    receiver = Receiver(list(again))
    await deliver(receiver)
    assert receiver.slept == [7.0, MAX_WAIT_S, 2.0]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
async def test_a_refusal_is_not_argued_with(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """The next event is tried all the same. Redirects are not followed: the signature is for one address."""
    receiver = Receiver([httpx.Response(status, headers={"location": "https://elsewhere.example/"})])
    await deliver(receiver, 2)
    assert receiver.outcomes == ["refused", "delivered"]
    assert f"[CA1] the webhook refuses an event: {status}" in caplog.text


async def test_an_event_that_is_too_old_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """All that were said together at the same moment, so that a call's queue does not outlive it for long."""
    receiver = Receiver(always=503)
    await deliver(receiver, 3)
    assert receiver.outcomes == ["expired"] * 3
    assert MAX_AGE_S - MAX_WAIT_S <= sum(receiver.slept) <= MAX_AGE_S
    assert "took an event in none of" in caplog.text


async def test_a_queue_that_is_full_takes_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for room; what does not fit is counted, and said once."""
    receiver = Receiver(holds=asyncio.Event())
    async with receiver.webhook() as webhook:
        delivery = webhook.open("CA1", "MZ1")
        for number in range(MAX_WAITING + 5):
            delivery.put(text(number))
        assert receiver.outcomes == ["dropped"] * 5
        receiver.holds.set()
        delivery.close()
    assert receiver.outcomes.count("delivered") == MAX_WAITING
    assert caplog.text.count("events are dropped") == 1


async def test_a_call_does_not_wait_for_another() -> None:
    receiver = Receiver(holds=asyncio.Event())
    async with receiver.webhook() as webhook:
        calls = [webhook.open(f"CA{number}", "MZ") for number in range(3)]
        for call in calls:
            call.put(text(0))
            call.close()
        for _ in calls:
            await receiver.arrived.get()
        receiver.holds.set()
    assert sorted(body["call_sid"] for body in receiver.bodies()) == ["CA0", "CA1", "CA2"]


async def test_a_mistake_ends_one_delivery_alone(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver([ZeroDivisionError()])
    async with receiver.webhook() as webhook:
        first, second = webhook.open("CA1", "MZ"), webhook.open("CA2", "MZ")
        first.put(text(0))
        await receiver.arrived.get()
        second.put(text(1))
        first.close()
        second.close()
    assert receiver.outcomes == ["delivered"]
    assert "[CA1] delivery failed" in caplog.text


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_waits_double_up_to_a_maximum(attempt: int, share: float) -> None:
    """Never less than half of it, so that attempts are few; and not all calls at the same moment."""
    longest = min(0.5 * 2 ** min(attempt, 20), MAX_WAIT_S)
    assert longest / 2 <= wait_s(attempt, share) <= longest
