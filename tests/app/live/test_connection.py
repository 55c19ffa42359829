"""Live sessions over a real WebSocket: limits, bad input, slow and vanishing clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.delivery.outbox import MAX_WAITING
from app.service.admission import MIN_WAITS
from app.session.engine_driver import MAX_BACKLOG
from engine.errors import EngineFailed
from tests.fakes import FakeTranscriber, pcm, said, silence, speech

START = {"type": "start", "audio": {"encoding": "pcm_f32le"}}
TURN = np.concatenate((speech([1, 2, 3, 4]), silence(0.7)))


@pytest.fixture(autouse=True)
async def time_limit() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


@asynccontextmanager
async def session(url: str, start: dict | None = START, **options) -> AsyncIterator[ClientConnection]:
    async with connect(url, subprotocols=["tutti.v1"], compression=None, **options) as socket:
        if start:
            await say(socket, start)
            assert (await hear(socket))["type"] == "started"
        yield socket


async def say(socket: ClientConnection, message: dict) -> None:
    await socket.send(json.dumps(message))


async def hear(socket: ClientConnection) -> dict:
    return json.loads(await socket.recv())


async def hear_all(socket: ClientConnection) -> list[dict]:
    """Everything until the server closes."""
    return [json.loads(message) async for message in _until_closed(socket)]


async def _until_closed(socket: ClientConnection) -> AsyncIterator[str]:
    try:
        while True:
            yield await socket.recv()
    except ConnectionClosed:
        return


async def test_a_session_from_start_to_stop(serve) -> None:
    """Speech in, its text out, a summary, and a clean close."""
    server = await serve()
    async with session(server.stream) as socket:
        assert socket.subprotocol == "tutti.v1"
        await socket.send(pcm(TURN))
        await say(socket, {"type": "stop"})
        heard = await hear_all(socket)
        assert socket.close_code == 1000
    assert [event["text"] for event in heard if event["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert heard[-1] == {"type": "stopped", "audio_s": pytest.approx(1.82), "speech_s": pytest.approx(1.04), "words": 4}
    assert server.metric("tutti_sessions_total") == 1
    assert server.metric("tutti_final_latency_seconds_count") == 1
    assert server.metric("tutti_first_text_seconds_count") == 1


async def test_speech_that_was_read_again_is_counted(serve) -> None:
    """The operator sees how often the model passes speech over, and what a second reading gives."""
    server = await serve(FakeTranscriber(lost=range(4)))
    async with session(server.stream, {**START, "interim": False}) as socket:
        await socket.send(pcm(TURN))
        await say(socket, {"type": "stop"})
        heard = await hear_all(socket)
    assert [event["text"] for event in heard if event["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert server.metric("tutti_redecodes_total") == 1
    assert server.metric("tutti_recovered_seconds_total") == pytest.approx(1.04, abs=0.05)
    assert server.metric("tutti_uncovered_seconds_total") == 0


async def test_a_client_without_a_subprotocol_is_served(serve) -> None:
    """Plain WebSocket tools can be used to try the service."""
    server = await serve()
    async with connect(server.stream) as socket:
        await say(socket, START)
        assert (await hear(socket))["type"] == "started"


@pytest.mark.parametrize("text", ["hello", '{"type": "begin"}', '{"type": "flush"}', json.dumps(START)])
async def test_a_bad_message_is_explained_and_the_session_goes_on(serve, text: str) -> None:
    server = await serve()
    async with session(server.stream) as socket:
        await socket.send(text)
        error = await hear(socket)
        assert (error["type"], error["fatal"]) == ("error", False)
        await say(socket, {"type": "flush", "id": 9})
        assert await hear(socket) == {"type": "flushed", "id": 9}


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (json.dumps({"type": "start", "audio": {"encoding": "mp3"}}), "bad_start"),
        (json.dumps({"type": "start", "language": "xx"}), "bad_start"),
        (b"\0\0", "not_started"),
        (json.dumps({"type": "flush", "id": 1}), "not_started"),
    ],
)
async def test_a_session_that_begins_wrong_is_ended(serve, first, code: str) -> None:
    server = await serve()
    async with session(server.stream, start=None) as socket:
        await socket.send(first)
        error = await hear(socket)
        assert (error["code"], error["fatal"]) == (code, True)
        assert await hear_all(socket) == []
        assert socket.close_code == 1008


@pytest.mark.parametrize("content", ["x" * 70_000, b"x" * 70_000])
async def test_a_message_that_is_too_big_is_refused(serve, content) -> None:
    server = await serve(max_message_kb=64)
    async with session(server.stream) as socket:
        await socket.send(content)
        assert (await hear(socket))["code"] == "too_big"
        await hear_all(socket)
        assert socket.close_code == 1009


async def test_a_message_far_too_big_is_cut_off(serve) -> None:
    """What is a multiple of the limit is not even read."""
    server = await serve(max_message_kb=64)
    async with session(server.stream) as socket:
        await socket.send(b"x" * 1_000_000)
        await hear_all(socket)
        assert socket.close_code == 1009


async def test_audio_far_ahead_of_the_clock_is_refused(serve) -> None:
    """A flood is stopped before it is worked on."""
    server = await serve(max_ahead_s=5.0)
    async with session(server.stream) as socket:
        await socket.send(pcm(silence(4.0)))
        await socket.send(pcm(silence(4.0)))
        error = await hear(socket)
        assert (error["code"], error["fatal"]) == ("too_fast", True)
        await hear_all(socket)
        assert socket.close_code == 1008


async def test_a_silent_client_is_let_go(serve) -> None:
    """What it said before is made final first."""
    server = await serve(idle_timeout_s=1.0)
    async with session(server.stream) as socket:
        await socket.send(pcm(speech([1, 2, 3])))
        *_, utterance, error = await hear_all(socket)
        assert (utterance["text"], error["code"]) == (said([1, 2, 3]), "idle")
        await hear_all(socket)
        assert socket.close_code == 1008


async def test_a_client_that_does_not_read_is_let_go(serve) -> None:
    """Nothing piles up for it, and its place is free at once."""
    server = await serve(send_timeout_s=0.2)
    async with session(server.stream, max_queue=1, ping_interval=None) as socket:
        flood = json.dumps({"type": "flush", "id": "x" * 200, **{f"{key}".zfill(70): 0 for key in range(20)}})

        async def send() -> None:
            with suppress(ConnectionClosed):
                while True:
                    await socket.send(flood)

        sending = asyncio.create_task(send())
        await server.service.admission.all_finished.wait()
        socket.transport.abort()
        await sending
    assert server.metric("tutti_closed_total", code="1008") == 1


@pytest.mark.parametrize("message", ["x", b""])
async def test_a_flood_of_nothing_stays_bounded(serve, message) -> None:
    """Bad frames and empty ones leave nothing behind, and a neighbour is served meanwhile."""
    server = await serve(send_timeout_s=0.5)
    async with session(server.stream, max_queue=1, ping_interval=None) as socket, asyncio.timeout(20):
        (connection,) = server.service.admission.sessions

        async def flood() -> None:
            with suppress(ConnectionClosed):
                for _ in range(20_000):
                    await socket.send(message)

        flooding = asyncio.create_task(flood())
        async with session(server.stream) as neighbour:
            await neighbour.send(pcm(TURN))
            await say(neighbour, {"type": "stop"})
            assert (await hear_all(neighbour))[-1]["type"] == "stopped"
        assert len(connection._writer._outbox._events) <= MAX_WAITING + 1
        assert len(connection._latency._arrivals._ends_s) <= 1
        socket.transport.abort()
        await flooding


async def test_a_mistake_of_ours_ends_one_session_only(serve) -> None:
    """An error that nobody expected is closed as ours, and counted; the server goes on."""
    server = await serve(FakeTranscriber(error=ZeroDivisionError()))
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        await hear_all(socket)
        assert socket.close_code == 1011
    async with asyncio.timeout(5):
        await server.service.admission.all_finished.wait()
    assert server.metric("tutti_closed_total", code="1011") == 1
    async with session(server.stream):
        pass


@pytest.mark.parametrize(
    "text",
    ['{"type": "flush", "id": "\\ud800"}', '{"type": "keepalive", "\\ud800": 1}', '{"type": "flush", "id": 1e999}'],
)
async def test_text_that_cannot_be_written_is_refused(serve, text: str) -> None:
    server = await serve()
    async with session(server.stream) as socket:
        await socket.send(text)
        assert (await hear(socket))["fatal"] is False
        await say(socket, {"type": "flush", "id": 1})
        assert await hear(socket) == {"type": "flushed", "id": 1}


async def test_a_client_that_resumes_may_replay_what_was_not_final(serve) -> None:
    """More than others may be ahead of the clock: an utterance at its longest, and a window."""
    server = await serve(max_ahead_s=5.0)
    start = {**START, "resume": {"from_s": 10.0}, "endpointing": {"max_utterance_s": 10}}
    async with session(server.stream, start=start) as socket:
        for _ in range(4):
            await socket.send(pcm(silence(10.0)))
        await say(socket, {"type": "flush", "id": 1})
        assert await hear(socket) == {"type": "flushed", "id": 1}


async def test_a_client_that_vanishes_takes_its_windows_along(serve) -> None:
    """No task, window or place is left behind when the network goes away."""
    server = await serve(FakeTranscriber(holds=True))
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        while (await hear(socket))["type"] != "speech_started":
            pass
        socket.transport.abort()
    async with asyncio.timeout(5):
        await server.service.admission.all_finished.wait()
    assert server.transcriber.n_open == 0
    assert server.metric("tutti_sessions_open") == 0


async def test_reading_stops_while_the_engine_is_behind(serve) -> None:
    """A backlog of windows holds the client back instead of growing, and nothing is lost."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber, max_ahead_s=1000.0)
    n_turns = 40
    async with session(server.stream, start={**START, "interim": False}) as socket:

        async def send() -> None:
            for _ in range(n_turns):
                await socket.send(pcm(TURN))
            await say(socket, {"type": "stop"})

        sending = asyncio.create_task(send())
        while (await hear(socket))["type"] != "lag":
            pass
        (connection,) = server.service.admission.sessions
        assert connection._session.backlog <= MAX_BACKLOG
        transcriber.release()
        heard = await hear_all(socket)
        await sending
    assert [e["text"] for e in heard if e["type"] == "utterance"] == [said([1, 2, 3, 4])] * n_turns


async def test_one_more_session_is_told_when_to_come_back(serve) -> None:
    server = await serve(max_sessions=1)
    async with session(server.stream):
        with pytest.raises(InvalidStatus) as refused:
            async with session(server.stream):
                pass
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) > 0
    assert server.metric("tutti_refused_total", reason="overloaded") == 1


async def test_newcomers_are_refused_while_finals_wait_long(serve) -> None:
    """Whoever is in stays, and is what tells how it goes; once nobody is, there is room."""
    server = await serve(max_final_wait_s=1.5)
    server.transcriber.queued_s = 2.0
    async with session(server.stream) as socket:
        for _ in range(MIN_WAITS):
            await socket.send(pcm(TURN))
        await say(socket, {"type": "flush", "id": 1})
        while (await hear(socket))["type"] != "flushed":
            pass
        with pytest.raises(InvalidStatus) as refused:
            async with session(server.stream):
                pass
        assert refused.value.response.status_code == 503
        assert b"2.0 s" in refused.value.response.body
    await server.service.admission.all_finished.wait()
    async with session(server.stream):
        assert server.metric("tutti_refused_total", reason="overloaded") == 1


@pytest.mark.parametrize(
    "options", [{"additional_headers": {"Authorization": "Bearer k2"}}, {"subprotocols": ["tutti.v1", "tutti.key.k2"]}]
)
async def test_a_key_may_come_as_header_or_subprotocol(serve, options) -> None:
    server = await serve(api_keys="k1,k2")
    async with connect(server.stream, **options) as socket:
        await say(socket, START)
        assert (await hear(socket))["type"] == "started"
        assert socket.subprotocol in (None, "tutti.v1")


@pytest.mark.parametrize(
    "options", [{}, {"additional_headers": {"Authorization": "Bearer k"}}, {"subprotocols": ["tutti.v1", "tutti.key."]}]
)
async def test_a_wrong_key_is_refused_before_the_upgrade(serve, options) -> None:
    server = await serve(api_keys="k1")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(server.stream, **options):
            pass
    assert refused.value.response.status_code == 401


async def test_an_unknown_subprotocol_is_refused(serve) -> None:
    server = await serve()
    with pytest.raises(InvalidStatus) as refused:
        async with connect(server.stream, subprotocols=["realtime"]):
            pass
    assert refused.value.response.status_code == 400


async def test_draining_delivers_finals_and_sends_clients_elsewhere(serve) -> None:
    """Sessions get their finals and 1012; new ones are refused, and the server ends."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    async with session(server.stream) as socket:
        await socket.send(pcm(speech([1, 2, 3, 4])))
        while (await hear(socket))["type"] != "speech_started":
            pass
        server.server.stop()
        with pytest.raises(InvalidStatus) as refused:
            while True:
                async with session(server.stream):
                    await asyncio.sleep(0)
        assert refused.value.response.status_code == 503
        transcriber.release()
        heard = await hear_all(socket)
        assert socket.close_code == 1012
    assert [e["text"] for e in heard if e["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert heard[-1]["code"] == "draining"
    await server.task


async def test_a_failed_engine_ends_the_session_clearly(serve) -> None:
    server = await serve(FakeTranscriber(error=EngineFailed("the engine has died")))
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        heard = await hear_all(socket)
        assert socket.close_code == 1011
    assert (heard[-1]["code"], heard[-1]["fatal"]) == ("engine_failed", True)


async def test_an_engine_that_stalls_ends_the_session_with_what_is_done(serve) -> None:
    """The client is told from when on to resume."""
    server = await serve(FakeTranscriber(holds=True), final_deadline_s=0.1)
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        *_, utterance, error = await hear_all(socket)
        assert socket.close_code == 1011
    assert (utterance["type"], utterance["resume_from_s"]) == ("utterance", [0.0])
    assert (error["code"], error["fatal"]) == ("engine_stalled", True)


async def test_many_sessions_each_get_their_own_text(serve) -> None:
    server = await serve()

    async def one(number: int) -> str:
        async with session(server.stream) as socket:
            await socket.send(pcm(np.concatenate((speech([number, 40, number]), silence(0.2)))))
            await say(socket, {"type": "stop"})
            return " ".join(e["text"] for e in await hear_all(socket) if e["type"] == "utterance")

    texts = await asyncio.gather(*map(one, range(20)))
    assert texts == [said([number, 40, number]) for number in range(20)]
