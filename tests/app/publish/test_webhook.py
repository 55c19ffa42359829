"""Delivers events of calls to a webhook that refuses, fails, is slow or is unreachable. The clock is a number."""

import asyncio
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

from tutti_server.app.publish.webhook import (
    MAX_AGE_S,
    MAX_WAIT_S,
    SIGNATURE_HEADER,
    Outcome,
    Webhook,
    signature,
)
from tutti_server.app.service.tracing import Tracing

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "twilio.md"


@dataclass
class Receiver:
    """A webhook with scripted answers. Its clocks advance only while a delivery sleeps."""

    answers: list[httpx.Response | Exception] = field(default_factory=list)
    """The next answers, in order."""
    always: int = 200
    """The status of all answers after those."""
    requests: list[httpx.Request] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 1_700_000_000.0
    """The time of day, which a test may change."""
    at: float = 0.0
    """A clock that only goes forward."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """No request is answered before it is set."""
    arrived: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    """Has one item for each request."""

    def __post_init__(self) -> None:
        self.is_open.set()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.arrived.put_nowait(None)
        await self.is_open.wait()
        answer = self.answers.pop(0) if self.answers else httpx.Response(self.always)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.at += seconds
        await asyncio.sleep(0)

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    @asynccontextmanager
    async def webhook(self) -> AsyncIterator[Webhook]:
        webhook = Webhook(
            "https://example.org/hook",
            "secret",
            self.outcomes.append,
            transport=httpx.MockTransport(self.answer),
            clock=lambda: self.at,
            sleep=self.sleep,
            draw_jitter=lambda: 1.0,
            trace=Tracing().delivery,
        )
        webhook._now = lambda: self.now
        async with webhook.running():
            yield webhook


def text(number: int) -> dict[str, object]:
    return {"type": "utterance", "utterance": number}


async def deliver(receiver: Receiver, n_events: int = 1) -> Webhook:
    """Deliver all events of one call. Returns what has delivered them."""
    async with receiver.webhook() as webhook:
        delivery = webhook.open("CA1", "MZ1", "acme")
        for number in range(n_events):
            delivery.push(text(number))
        delivery.close()
    return webhook


async def test_events_arrive_in_order_with_all_fields() -> None:
    receiver = Receiver()
    await deliver(receiver, 3)
    bodies = receiver.bodies()
    assert [body["event"] for body in bodies] == [text(0), text(1), text(2)]
    assert [body["sequence"] for body in bodies] == [0, 1, 2]
    fields = {tuple(body[name] for name in ("call_sid", "stream_sid", "key", "said_at")) for body in bodies}
    assert fields == {("CA1", "MZ1", "acme", 1.7e9)}
    assert len({body["id"] for body in bodies}) == 3
    assert receiver.outcomes == ["delivered"] * 3


def test_receivers_can_verify_requests_with_the_documented_code() -> None:
    """The code on the page accepts our signature, and refuses another body, secret or time."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    now = int(time.time())
    assert names["is_ours"](signature("secret", now, b"{}"), b"{}", "secret")
    assert not names["is_ours"](signature("secret", now, b"{}"), b"[]", "secret")
    assert not names["is_ours"](signature("secret", now, b"{}"), b"{}", "other")
    assert not names["is_ours"](signature("secret", now - 600, b"{}"), b"{}", "secret")


async def test_a_request_is_signed_with_its_time() -> None:
    """Each attempt is signed with its own time."""
    receiver = Receiver([httpx.Response(500), httpx.Response(500)])
    await deliver(receiver)
    for request, at in zip(receiver.requests, (1_700_000_000, 1_700_000_000, 1_700_000_001), strict=True):
        assert request.headers[SIGNATURE_HEADER] == signature("secret", at, request.content)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(503),
        httpx.Response(429),
        httpx.Response(408),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        TimeoutError(),
    ],
)
async def test_a_transient_failure_is_retried(answer: httpx.Response | Exception) -> None:
    """The same event is sent with the same id, before the next event."""
    receiver = Receiver([answer, answer])
    await deliver(receiver, 2)
    assert [body["sequence"] for body in receiver.bodies()] == [0, 0, 0, 1]
    assert len({body["id"] for body in receiver.bodies()}) == 2
    assert receiver.slept == [0.5, 1.0]
    assert receiver.outcomes == ["delivered", "delivered"]


async def test_a_receiver_may_ask_for_a_longer_wait() -> None:
    """The wait is never longer than `MAX_WAIT_S`."""
    again = [httpx.Response(429, headers={"retry-after": after}) for after in ("7", "86400", "Sat, 21 Nov")]
    receiver = Receiver(list(again))
    await deliver(receiver)
    assert receiver.slept == [7.0, MAX_WAIT_S, 2.0]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
async def test_a_refused_event_is_not_retried(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """The next event is still sent. Redirects are not followed: the signature is for one address."""
    receiver = Receiver([httpx.Response(status, headers={"location": "https://elsewhere.example/"})])
    await deliver(receiver, 2)
    assert receiver.outcomes == ["refused", "delivered"]
    assert f"[CA1] the webhook refuses an event: {status}" in caplog.text


async def test_an_event_that_is_too_old_expires(caplog: pytest.LogCaptureFixture) -> None:
    """Events of the same moment expire together, so that a call's queue does not outlive the call for long."""
    receiver = Receiver(always=503)
    await deliver(receiver, 3)
    assert receiver.outcomes == ["expired"] * 3
    assert MAX_AGE_S - MAX_WAIT_S <= sum(receiver.slept) <= MAX_AGE_S
    assert "took an event in none of" in caplog.text


async def test_an_event_is_as_old_whatever_the_clock_of_the_machine_says() -> None:
    """The clock is set while the receiver is away for a moment."""
    receiver = Receiver([httpx.Response(503), httpx.Response(503)])
    async with receiver.webhook() as webhook:
        delivery = webhook.open("CA1", "MZ1")
        delivery.push(text(0))
        receiver.now += 3600.0
        delivery.close()
    assert receiver.outcomes == ["delivered"] and receiver.bodies()[0]["said_at"] == 1.7e9


async def test_a_full_queue_drops_new_events(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does not wait. Each dropped event is counted; the log has one line, and the receiver sees a gap."""
    monkeypatch.setattr("tutti_server.app.publish.webhook.MAX_WAITING", 20)
    receiver = Receiver()
    receiver.is_open.clear()
    async with receiver.webhook() as webhook:
        delivery = webhook.open("CA1", "MZ1")
        for number in range(25):
            delivery.push(text(number))
        assert receiver.outcomes == ["dropped"] * 5
        await receiver.arrived.get()
        delivery.push(text(25))
        receiver.is_open.set()
        delivery.close()
    assert [body["sequence"] for body in receiver.bodies()] == [*range(20), 25]
    assert receiver.outcomes.count("delivered") == 21
    assert caplog.text.count("events are dropped") == 1


async def test_calls_are_delivered_side_by_side() -> None:
    receiver = Receiver()
    receiver.is_open.clear()
    async with receiver.webhook() as webhook:
        calls = [webhook.open(f"CA{number}", "MZ") for number in range(3)]
        for call in calls:
            call.push(text(0))
            call.close()
        for _ in calls:
            await receiver.arrived.get()
        receiver.is_open.set()
    assert sorted(body["call_sid"] for body in receiver.bodies()) == ["CA0", "CA1", "CA2"]


async def test_a_defect_costs_one_event(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, and its place is free for another one."""
    receiver = Receiver([ZeroDivisionError()])
    webhook = await deliver(receiver, 2)
    assert receiver.outcomes == ["dropped", "delivered"]
    assert webhook._n_waiting == 0
    assert "[CA1] delivery failed" in caplog.text
