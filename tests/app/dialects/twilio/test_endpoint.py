"""Calls on a real server, their subscribers, and what happens when one of them disconnects."""

import base64
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.app.conftest import Running, Serve, receive_all, refusal, until
from tests.app.dialects.twilio.test_wire import begin
from tests.fakes import FakeTranscriber, said, silence, slow_mulaw, speech
from tutti_server.app.service.shared_state import SharedState

CHUNK = 160


def slowly(words: list[int]) -> bytes:
    return slow_mulaw(np.concatenate((speech(words), silence(0.5))))


def messages(inbound: bytes, outbound: bytes | None = None) -> list[str]:
    """What Twilio sends: chunks of 20 ms of both tracks, one after the other."""
    sent = []
    tracks = {"inbound": inbound} | ({"outbound": outbound} if outbound is not None else {})
    for at in range(0, max(map(len, tracks.values())), CHUNK):
        for track, audio in tracks.items():
            if chunk := audio[at : at + CHUNK]:
                media = {"track": track, "chunk": str(at // CHUNK + 1), "timestamp": str(at // 8)}
                payload = base64.b64encode(chunk).decode()
                sent.append(json.dumps({"event": "media", "media": {**media, "payload": payload}}))
    return sent


@asynccontextmanager
async def call(address: str, path: str = "", **fields: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{address}/v1/twilio{path}", compression=None) as socket:
        await socket.send('{"event":"connected","protocol":"Call","version":"1.0.0"}')
        await socket.send(json.dumps(begin(**fields)))
        yield socket


async def speak(socket: ClientConnection, *tracks: bytes, stops: bool = True) -> None:
    """Send the audio of each track, and the end of the call."""
    for message in messages(*tracks) + ['{"event":"stop"}'] * stops:
        await socket.send(message)


@asynccontextmanager
async def subscriber(address: str, sid: str = "CA1", **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{address}/v1/calls/{sid}", compression=None, **options) as socket:
        yield socket


def texts(heard: list[dict[str, Any]], channel: int) -> list[str]:
    return [each["text"] for each in heard if each["type"] == "utterance" and each["channel"] == channel]


async def test_a_subscriber_receives_both_sides_of_a_call(server: Running) -> None:
    """It receives the events of the native protocol, between the beginning and the end of the call."""
    async with subscriber(server.address) as listener:
        async with call(server.address) as socket:
            await speak(socket, slowly([1, 2]), slowly([3, 4, 5]))
            assert await receive_all(socket) == [], "Twilio expects no answers on this socket"
            assert socket.close_code == 1000
        heard = await receive_all(listener)
        assert listener.close_code == 1000
    assert heard[0] == {
        "type": "call_started",
        "call_sid": "CA1",
        "stream_sid": "MZ1",
        "tracks": ["inbound", "outbound"],
        "parameters": {},
    }
    assert [each["type"] for each in (heard[1], *heard[-2:])] == ["started", "stopped", "call_ended"]
    assert (texts(heard, 0), texts(heard, 1)) == ([said([1, 2])], [said([3, 4, 5])])
    speakers = {(each["channel"], each["speaker"]) for each in heard if each["type"] in ("segment", "utterance")}
    assert speakers == {(0, "inbound"), (1, "outbound")}


@pytest.mark.parametrize("stops", [True, False])
async def test_a_call_that_hangs_up_is_still_made_final(serve: Serve, stops: bool) -> None:
    """Twilio closes its socket right after `stop`, or loses it, before the engine has answered."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    async with subscriber(server.address) as listener:
        async with call(server.address, tracks=["inbound"]) as socket:
            await speak(socket, slowly([1, 2, 3]), stops=stops)
            await transcriber.opened.wait()
        transcriber.release()
        heard = await receive_all(listener)
    assert texts(heard, 0) == [said([1, 2, 3])]
    assert heard[-1]["type"] == "call_ended"


@pytest.mark.parametrize(("path", "parameters"), [("/k", {}), ("", {"token": "k"}), ("/k", {"token": "not looked at"})])
async def test_a_key_is_in_the_path_or_a_parameter(serve: Serve, path: str, parameters: dict[str, str]) -> None:
    """Twilio passes on no query. No subscriber receives either of them."""
    server = await serve(api_keys="k")
    key: dict[str, Any] = {"additional_headers": {"Authorization": "Bearer k"}}
    async with subscriber(server.address, **key) as listener:
        async with call(server.address, path, customParameters={**parameters, "agent": "Ann"}) as socket:
            await socket.send('{"event":"stop"}')
            await receive_all(socket)
        heard = await receive_all(listener)
    assert heard[0]["parameters"] == {"agent": "Ann"}


async def test_without_a_key_there_is_no_call(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong key in the path is refused before the upgrade, another one after `start`. The log has the reason."""
    caplog.set_level(logging.INFO)
    server = await serve(api_keys="k")
    for path in ("v1/twilio/x", "v1/calls/CA1"):
        assert (await refusal(f"ws://{server.address}/{path}")).status_code == 401
    async with call(server.address, customParameters={"token": "x"}) as socket:
        assert await receive_all(socket) == []
        assert (socket.close_code, socket.close_reason) == (1008, "unauthorized")
    assert re.search(r"\[req_\w+\] a call is not taken: a valid API key is needed", caplog.text)
    assert server.metric("tutti_refused_total", reason="unauthorized") == 3


async def test_the_log_has_the_reason_for_a_wrong_parameter_without_the_key(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = await serve(api_keys="sk-secret")
    async with call(server.address, customParameters={"token": "sk-secret", "attempt": 1}) as socket:
        assert await receive_all(socket) == []
        assert (socket.close_code, socket.close_reason) == (1008, "bad_start")
    assert "customParameters: expected an object with values of text, got 'other values of attempt'" in caplog.text
    # The start of this one is understood, and its session cannot begin.
    async with call(server.address, customParameters={"token": "sk-secret", "silence_ms": "9"}) as socket:
        assert await receive_all(socket) == []
    assert "a call has an error: silence_ms: expected" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_a_stream_has_no_place_before_it_shows_a_key(serve: Serve) -> None:
    """So any number of unauthenticated connections leave room for a call with a key."""
    server = await serve(api_keys="k", max_sessions=1)
    async with AsyncExitStack() as connections:
        for _ in range(10):
            await connections.enter_async_context(connect(f"ws://{server.address}/v1/twilio"))
        assert server.service.admission.all_finished.is_set()
        assert len(server.service.unauthenticated) == 10
        async with subscriber(server.address, additional_headers={"Authorization": "Bearer k"}) as listener:
            async with call(server.address, tracks=["inbound"]) as socket:
                await speak(socket, slowly([1, 2]))
                await receive_all(socket)
            assert texts(await receive_all(listener), 0) == [said([1, 2])]
    assert server.metric("tutti_sessions_total") == 1


@pytest.mark.parametrize("sent", ['{"event":"connected"}', '{"event":"media"}', "x", b"\0"])
async def test_a_stream_without_start_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: str | bytes
) -> None:
    """At once if it sends something else, and in its time if it sends nothing."""
    monkeypatch.setattr("tutti_server.app.dialects.twilio.endpoint.START_TIMEOUT_S", 0.2)
    server = await serve(api_keys="k")
    async with connect(f"ws://{server.address}/v1/twilio") as socket:
        await socket.send(sent)
        assert await receive_all(socket) == []
        assert (socket.close_code, socket.close_reason) in ((1008, "idle"), (1008, "bad_message"), (1008, "bad_json"))


async def test_a_newer_stream_takes_a_call_over(serve: Serve) -> None:
    """The connection of the older one may be dead unnoticed. It ends with all that it has received: nothing is lost."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    async with subscriber(server.address) as listener, call(server.address, tracks=["inbound"]) as first:
        await speak(first, slow_mulaw(speech([1, 2])), stops=False)
        await first.send('{"event":"dtmf","dtmf":{"digit":"1"}}')
        # Everything before it has been received, too.
        await until(listener, "dtmf")
        async with call(server.address, tracks=["inbound"], streamSid="MZ2") as second:
            await speak(second, slowly([3]))
            transcriber.release()
            assert await receive_all(first) == await receive_all(second) == []
        heard = await receive_all(listener)
    assert (first.close_reason, second.close_reason) == ("call_is_on", "done")
    assert texts(heard, 0) == [said([1, 2]), said([3])]
    around = [(each["type"], each["stream_sid"]) for each in heard if each["type"].startswith("call_")]
    assert around == [("call_ended", "MZ1"), ("call_started", "MZ2"), ("call_ended", "MZ2")]


async def test_subscribers_receive_the_errors_of_a_call(server: Running) -> None:
    async with subscriber(server.address) as listener, call(server.address, mediaFormat={"encoding": "audio/opus"}):
        heard = await receive_all(listener)
    assert [each["type"] for each in heard] == ["call_started", "error", "call_ended"]
    assert heard[1]["message"].startswith("mediaFormat: expected ")


async def test_subscribers_are_refused_with_several_gateways(serve: Serve) -> None:
    """The call may be at another gateway. Calls themselves are always accepted."""
    server = await serve(shared=SharedState(n_gateways=2))
    response = await refusal(f"ws://{server.address}/v1/calls/CA1")
    assert response.status_code == 501 and b"webhook" in response.body
    async with call(server.address, tracks=["inbound"]):
        pass


async def test_a_call_counts_as_a_session(serve: Serve) -> None:
    server = await serve(max_sessions=1)
    async with call(server.address), subscriber(server.address) as listener:
        await listener.recv()
        assert (await refusal(f"ws://{server.address}/v1/twilio")).status_code == 503


async def test_a_draining_server_sends_waiting_subscribers_elsewhere(server: Running) -> None:
    """A subscriber whose call has not begun would wait in vain."""
    async with subscriber(server.address) as listener, call(server.address, callSid="CA2") as other:
        await other.send(messages(slowly([1]))[0])
        server.server.stop()
        (event,) = await receive_all(listener)
        assert (event["type"], event["code"]) == ("error", "draining")
        assert (listener.close_code, listener.close_reason) == (1012, "draining")


async def test_a_forced_stop_tells_the_subscribers_of_a_call(serve: Serve) -> None:
    """They learn why the call has ended, though its text does not come in time."""
    server = await serve(FakeTranscriber(holds=True), drain_timeout_s=0.5)
    async with subscriber(server.address) as listener, call(server.address, tracks=["inbound"]) as socket:
        await speak(socket, slowly([1, 2]), stops=False)
        await until(listener, "speech_started")
        await server.transcriber.opened.wait()
        server.server.stop()
        heard = await receive_all(listener)
    assert [each["type"] for each in heard[-2:]] == ["error", "call_ended"]
    assert heard[-2]["code"] == "draining"
    assert (listener.close_code, listener.close_reason) == (1000, "done")


async def test_one_live_key_leaves_places_of_subscribers_to_others(serve: Serve) -> None:
    """Also where it asks for calls that never begin."""
    server = await serve(max_sessions=2, api_keys="greedy,modest")
    greedy, modest = ({"Authorization": f"Bearer {key}"} for key in ("greedy", "modest"))
    async with AsyncExitStack() as stack:
        for number in range(8):
            await stack.enter_async_context(subscriber(server.address, f"CA{number}", additional_headers=greedy))
        response = await refusal(f"ws://{server.address}/v1/calls/CA1", additional_headers=greedy)
        assert response.status_code == 503 and response.headers["retry-after"]
        await stack.enter_async_context(subscriber(server.address, additional_headers=modest))
