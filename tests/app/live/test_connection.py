"""Live sessions over a real WebSocket: limits, invalid input, slow clients, and clients that disconnect."""

import asyncio
import gc
import json
import logging
import signal
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Any, cast

import numpy as np
import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.app.conftest import Running, Serve, receive, receive_all, refusal, until
from tests.fakes import FakeTranscriber, pcm, said, silence, speech
from tutti_server.app.dialects.native.room_endpoint import Publication
from tutti_server.app.dialects.native.wire import Native
from tutti_server.app.live.connection import LAG_INTERVAL_S, Connection
from tutti_server.app.publish.outbox import MAX_WAITING
from tutti_server.app.service.auth import Client
from tutti_server.app.service.live_load import MIN_WAITS
from tutti_server.app.session.engine_driver import MAX_BACKLOG
from tutti_server.app.session.session import Session

Message = dict[str, Any]

START: Message = {"type": "start", "audio": {"encoding": "pcm_f32le"}}
NATIVE = Subprotocol("tutti.v1")
TURN = np.concatenate((speech([1, 2, 3, 4]), silence(0.7)))


@asynccontextmanager
async def session(url: str, start: Message | None = START, **options: Any) -> AsyncIterator[ClientConnection]:
    """A session that has started, unless `start` is `None`; `options` are those of `connect`."""
    async with connect(url, subprotocols=[NATIVE], compression=None, **options) as socket:
        if start:
            await send(socket, start)
            assert (await receive(socket))["type"] == "started"
        yield socket


async def send(socket: ClientConnection, message: Message) -> None:
    await socket.send(json.dumps(message))


async def test_a_session_from_start_to_stop(server: Running) -> None:
    """A client sends speech and receives its text, a summary, and a clean close."""
    async with session(server.stream) as socket:
        assert socket.subprotocol == "tutti.v1"
        await socket.send(pcm(TURN))
        await send(socket, {"type": "stop"})
        received = await receive_all(socket)
        assert socket.close_code == 1000
    assert [event["text"] for event in received if event["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert received[-1] == {
        "type": "stopped",
        "audio_s": pytest.approx(1.82),
        "speech_s": pytest.approx(1.04),
        "words": 4,
    }
    assert server.metric("tutti_sessions_total") == 1
    assert server.metric("tutti_final_latency_seconds_count") == 1
    assert server.metric("tutti_first_text_seconds_count") == 1


async def test_the_log_connects_a_session_with_its_request(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The client received the id of the request with the upgrade, and that of the session with `started`."""
    caplog.set_level(logging.INFO)
    server = await serve()
    async with session(server.stream, start=None) as socket:
        await send(socket, START)
        id_ = (await receive(socket))["session_id"]
        await send(socket, {"type": "stop"})
        await receive_all(socket)
        assert socket.response
        request = socket.response.headers["x-request-id"]
    server.server.stop()
    await server.task
    assert [line.partition(" after")[0] for line in caplog.messages if line.startswith(f"[{id_}]")] == [
        f"[{id_}] opened for {request}",
        f"[{id_}] closed with 1000 (done)",
    ]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_session_is_freed_when_it_ends(server: Running, is_cut: bool) -> None:
    """At once, with its audio: nothing waits for a full collection of garbage."""
    freed = asyncio.Event()
    gc.disable()
    try:
        before = {id(each) for each in gc.get_objects() if type(each) is Session}
        async with session(server.stream) as socket:
            (served,) = (each for each in gc.get_objects() if type(each) is Session and id(each) not in before)
            end = weakref.ref(served, lambda _: freed.set())
            del served
            await socket.send(pcm(TURN))
            if is_cut:
                socket.transport.abort()
            else:
                await send(socket, {"type": "stop"})
                await receive_all(socket)
        await freed.wait()
        assert end() is None
    finally:
        gc.enable()


async def test_speech_that_is_decoded_again_is_counted(serve: Serve) -> None:
    """Metrics count how often the model skips speech, and what decoding it again gives."""
    server = await serve(FakeTranscriber(lost=range(4)))
    async with session(server.stream, {**START, "interim": False}) as socket:
        await socket.send(pcm(TURN))
        await send(socket, {"type": "stop"})
        received = await receive_all(socket)
    assert [event["text"] for event in received if event["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert server.metric("tutti_redecodes_total") == 1
    assert server.metric("tutti_recovered_seconds_total") == pytest.approx(1.04, abs=0.05)
    assert server.metric("tutti_uncovered_seconds_total") == 0


@pytest.mark.parametrize(
    "text", ["hello", json.dumps(START), '{"type": "flush", "id": "\\ud800"}', '{"type": "flush", "id": 1e999}']
)
async def test_a_bad_message_is_explained_and_the_session_goes_on(server: Running, text: str) -> None:
    """So is one whose answer could not be written."""
    async with session(server.stream) as socket:
        await socket.send(text)
        error = await receive(socket)
        assert (error["type"], error["fatal"]) == ("error", False)
        await send(socket, {"type": "flush", "id": 9})
        assert await receive(socket) == {"type": "flushed", "id": 9}


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (json.dumps({"type": "start", "language": "xx"}), "bad_start"),
        (b"\0\0", "not_started"),
    ],
)
async def test_a_session_with_a_bad_first_message_ends(server: Running, first: str | bytes, code: str) -> None:
    async with session(server.stream, start=None) as socket:
        await socket.send(first)
        error = await receive(socket)
        assert (error["code"], error["fatal"]) == (code, True)
        assert await receive_all(socket) == []
        assert socket.close_code == 1008


@pytest.mark.parametrize(
    ("settings", "contents", "codes"),
    [
        pytest.param({"max_message_kb": 64}, ["x" * 70_000], ("too_big", 1009), id="a long text"),
        pytest.param({"max_message_kb": 64}, [b"x" * 70_000], ("too_big", 1009), id="a long message of audio"),
        # The protocol closes the connection; the service does not receive the message.
        pytest.param({"max_message_kb": 64}, [b"x" * 1_000_000], (None, 1009), id="a message far too long"),
        # The session ends before this audio is decoded.
        pytest.param({"max_ahead_s": 5.0}, [pcm(silence(4.0))] * 2, ("too_fast", 1008), id="audio ahead of the clock"),
    ],
)
async def test_what_is_too_much_ends_the_session(
    serve: Serve, settings: dict[str, Any], contents: list[str | bytes], codes: tuple[str | None, int]
) -> None:
    server = await serve(**settings)
    async with session(server.stream) as socket:
        for content in contents:
            await socket.send(content)
        received = await receive_all(socket)
    assert ([each["code"] for each in received if each["type"] == "error"], socket.close_code) == (
        [codes[0]] if codes[0] else [],
        codes[1],
    )
    assert all(each["fatal"] for each in received if each["type"] == "error")


async def test_an_idle_client_is_disconnected(serve: Serve) -> None:
    """Its audio becomes final text first."""
    server = await serve(idle_timeout_s=1.0)
    async with session(server.stream) as socket:
        await socket.send(pcm(speech([1, 2, 3])))
        *_, utterance, error = await receive_all(socket)
        assert (utterance["text"], error["code"]) == (said([1, 2, 3]), "idle")
        await receive_all(socket)
        assert socket.close_code == 1008


async def test_an_idle_client_that_resumes_keeps_its_open_utterance(serve: Serve) -> None:
    """It gets no final text and a close after which it may resume. There is no reservation, as it may stay silent."""
    server = await serve(idle_timeout_s=0.5)
    async with session(server.stream, START | {"resumes": True}) as socket:
        await socket.send(pcm(speech([1, 2, 3])))
        *others, error = await receive_all(socket)
        assert error["code"] == "idle" and not {"segment", "utterance"} & {other["type"] for other in others}
        assert (socket.close_code, socket.close_reason) == (1013, "idle")
    await server.service.admission.all_finished.wait()
    assert not server.service.admission.expects_returns


@pytest.mark.parametrize(("code", "comes_back"), [(1000, False), (1001, True), (4000, True)])
async def test_a_client_that_closes_for_good_has_no_reservation(serve: Serve, code: int, comes_back: bool) -> None:
    """1000 says that the client is done; a page that is left, or a client that changes its network, may resume."""
    server = await serve()
    async with session(server.stream, START | {"resumes": True}) as socket:
        await socket.close(code)
    await server.service.admission.all_finished.wait()
    assert server.service.admission.expects_returns is comes_back


async def test_a_client_that_does_not_read_is_disconnected(serve: Serve) -> None:
    """Its events do not accumulate, and another session may be admitted at once."""
    server = await serve(send_timeout_s=0.2)
    async with session(server.stream, max_queue=1, ping_interval=None) as socket:
        # What a small buffer has no room for waits at the server.
        socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
        flood = json.dumps({"type": "flush", "id": "x" * 200, **{f"{key}".zfill(70): 0 for key in range(20)}})

        async def send_all() -> None:
            with suppress(ConnectionClosed):
                while True:
                    await socket.send(flood)

        sending = asyncio.create_task(send_all())
        await server.service.admission.all_finished.wait()
        socket.transport.abort()
        await sending
    assert server.metric("tutti_closed_total", code="1008") == 1


class UnreadSocket:
    """A WebSocket whose client has sent all that it sends, and reads nothing before `is_read` is set."""

    def __init__(self, messages: Sequence[Message | bytes]) -> None:
        self.scope: Message = {"type": "websocket"}
        self.is_read = asyncio.Event()
        self.sent: list[Message] = []
        self.code = 0
        self._messages = asyncio.Queue[Message]()
        for each in messages:
            content = {"bytes": each} if isinstance(each, bytes) else {"text": json.dumps(each)}
            self._messages.put_nowait({"type": "websocket.receive", **content})
        self.is_used_up = asyncio.Event()
        """Set when the server waits for another message."""

    async def receive(self) -> Message:
        if self._messages.empty():
            self.is_used_up.set()
        return await self._messages.get()

    def connect(self, server: Running) -> Connection:
        """A connection of this server to the client, which is still to be served."""
        served = Session("s_test", server.transcriber.info, server.service.session_config)
        dialect = Native(Publication(server.service, Client()))
        return Connection(cast(WebSocket, self), dialect, served, server.service)

    def say(self, text: str) -> None:
        self._messages.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def send_text(self, text: str) -> None:
        await self.is_read.wait()
        self.sent.append(json.loads(text))

    async def close(self, code: int, reason: str) -> None:
        self.code = code


async def test_a_client_that_reads_late_misses_no_event(serve: Serve) -> None:
    """With one event too many its session ends, in order; with so many at the end of a session it has all of them."""
    server = await serve()
    codes = []
    for n_errors in range(MAX_WAITING - 8, MAX_WAITING + 2):
        talk = pcm(speech([1, 2, 3, 4]))
        socket = UnreadSocket([START | {"interim": False}, talk, *[{"type": "x"}] * n_errors, {"type": "stop"}])
        connection = socket.connect(server)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.serve("req_test", None))
            while not connection._session.is_closed:  # noqa: ASYNC110  # a session has no event for it
                await asyncio.sleep(0)
            socket.is_read.set()
        types = [each["type"] for each in socket.sent]
        assert (types.count("speech_started"), types.count("utterance")) == (1, 1), n_errors
        assert (types[-1], socket.code) in (("stopped", 1000), ("error", 1008)), n_errors
        codes.append(socket.code)
    assert codes == sorted(codes) and set(codes) == {1000, 1008}


async def test_a_drain_while_a_client_leaves_begins_no_window(serve: Serve) -> None:
    """In whichever moment of the connection's end it comes: no error stops the drain, and no task waits for text."""
    server = await serve()
    server.transcriber.holds = True
    for n_steps in range(12):
        socket = UnreadSocket([START | {"interim": False}, pcm(speech([1, 2, 3, 4]))])
        socket.is_read.set()
        connection = socket.connect(server)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.serve("req_test", None))
            await socket.is_used_up.wait()
            socket.leave()
            for _ in range(n_steps):
                await asyncio.sleep(0)
            connection.drain()
    assert server.transcriber.n_open == 0


async def test_a_fatal_error_is_the_last_event(serve: Serve) -> None:
    """A message that comes while the client still has to read the error is not answered."""
    socket = UnreadSocket([START])
    connection = socket.connect(await serve())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.serve("req_test", None))
        await socket.is_used_up.wait()
        connection.drain()
        socket.say('{"type": "keepalive", "unknown": 1}')
        for _ in range(12):
            await asyncio.sleep(0)
        socket.is_read.set()
    assert [each["type"] for each in socket.sent] == ["started", "error"]


@pytest.mark.parametrize("message", ["x", b""])
async def test_a_flood_of_empty_messages_uses_bounded_memory(serve: Serve, message: str | bytes) -> None:
    """Invalid and empty frames are not kept, and another session is served at the same time."""
    server = await serve(send_timeout_s=0.5)
    async with session(server.stream, max_queue=1, ping_interval=None) as socket:
        (connection,) = server.service.admission.sessions
        assert isinstance(connection, Connection)

        async def flood() -> None:
            with suppress(ConnectionClosed):
                for _ in range(5_000):
                    await socket.send(message)

        flooding = asyncio.create_task(flood())
        async with session(server.stream) as neighbour:
            await neighbour.send(pcm(TURN))
            await send(neighbour, {"type": "stop"})
            assert (await receive_all(neighbour))[-1]["type"] == "stopped"
        assert len(connection._writer._outbox._events) <= MAX_WAITING + 2
        assert len(connection._latency._arrivals._ends_s) <= 1
        socket.transport.abort()
        await flooding


async def test_a_defect_ends_one_session_only(serve: Serve) -> None:
    """An unexpected error closes the session with 1011 and is counted; the server continues."""
    server = await serve(FakeTranscriber(error=ZeroDivisionError()))  # type: ignore[arg-type]  # not an EngineError
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        await receive_all(socket)
        assert socket.close_code == 1011
    await server.service.admission.all_finished.wait()
    assert server.metric("tutti_sessions_open") == 0
    assert server.metric("tutti_closed_total", code="1011") == 1
    async with session(server.stream):
        pass


async def test_reading_stops_while_the_engine_has_a_backlog(serve: Serve) -> None:
    """The backlog of windows stays bounded, the client has to wait, and no audio is lost."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber, max_ahead_s=1000.0)
    n_turns = 40
    async with session(server.stream, start={**START, "interim": False}) as socket:

        async def send_all() -> None:
            for _ in range(n_turns):
                await socket.send(pcm(TURN))
            await send(socket, {"type": "stop"})

        sending = asyncio.create_task(send_all())
        await until(socket, "lag")
        (connection,) = server.service.admission.sessions
        assert isinstance(connection, Connection)
        assert connection._session.backlog <= MAX_BACKLOG
        transcriber.release()
        received = await receive_all(socket)
        await sending
    assert [e["text"] for e in received if e["type"] == "utterance"] == [said([1, 2, 3, 4])] * n_turns


async def test_a_session_over_the_limit_is_refused_with_retry_after(serve: Serve) -> None:
    server = await serve(max_sessions=1)
    async with session(server.stream):
        refused = await refusal(server.stream)
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
    assert server.metric("tutti_refused_total", reason="overloaded") == 1


async def test_new_sessions_are_refused_while_finals_wait_long(serve: Serve) -> None:
    """Open sessions continue. Without open sessions a new one is accepted."""
    server = await serve(max_final_wait_s=1.5)
    server.transcriber.queued_s = 2.0
    async with session(server.stream) as socket:
        for _ in range(MIN_WAITS):
            await socket.send(pcm(TURN))
        await send(socket, {"type": "flush", "id": 1})
        await until(socket, "flushed")
        refused = await refusal(server.stream)
        assert refused.status_code == 503 and b"2.0 s" in refused.body
    await server.service.admission.all_finished.wait()
    async with session(server.stream):
        assert server.metric("tutti_refused_total", reason="overloaded") == 1


KEY_OFFERED = {"subprotocols": ["tutti.v1", "tutti.key.k2"]}


@pytest.mark.parametrize(
    "options",
    [
        {"additional_headers": {"Authorization": "Bearer k2"}},
        KEY_OFFERED,
        KEY_OFFERED | {"additional_headers": {"Authorization": "Basic YTpi"}},
    ],
)
async def test_a_key_may_come_as_header_or_subprotocol(serve: Serve, options: dict[str, Any]) -> None:
    """A browser adds the password of a proxy to both."""
    server = await serve(api_keys="k1,k2")
    async with connect(server.stream, **options) as socket:
        await send(socket, START)
        assert (await receive(socket))["type"] == "started"
        assert socket.subprotocol in (None, "tutti.v1")


@pytest.mark.parametrize(
    "options", [{}, {"additional_headers": {"Authorization": "Bearer k"}}, {"subprotocols": ["tutti.v1", "tutti.key."]}]
)
async def test_a_wrong_key_is_refused_before_the_upgrade(serve: Serve, options: dict[str, Any]) -> None:
    server = await serve(api_keys="k1")
    assert (await refusal(server.stream, **options)).status_code == 401


@pytest.mark.parametrize(
    ("offered", "named"),
    [(["realtime"], "realtime"), (["tutti.key.k", "soap"], "soap"), (["tutti.key.k"], "a key alone")],
)
async def test_an_unknown_subprotocol_is_refused(server: Running, offered: list[Any], named: str) -> None:
    """The answer does not show the key."""
    refused = await refusal(server.stream, subprotocols=offered)
    assert refused.status_code == 400
    assert json.loads(refused.body)["error"]["message"] == f"subprotocol: expected tutti.v1, got {named}"


async def test_audio_that_comes_in_a_burst_brings_one_lag_a_second(serve: Serve) -> None:
    """The session counts in audio; people read in seconds."""
    server = await serve(transcriber := FakeTranscriber(holds=True))
    async with session(server.stream) as socket:
        began_s = time.monotonic()
        for samples in np.split(audio := speech([1] * 30), 30):
            await socket.send(pcm(samples))
        while server.metric("tutti_audio_seconds_total") < len(audio) / 16_000 - 0.001:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        transcriber.release()
        await send(socket, {"type": "stop"})
        n_lags = [each["type"] for each in await receive_all(socket)].count("lag")
    assert 1 <= n_lags <= 1 + (time.monotonic() - began_s) / LAG_INTERVAL_S


async def test_draining_delivers_finals_and_sends_clients_elsewhere(serve: Serve) -> None:
    """Sessions receive their finals and close with 1012, new sessions are refused, and the server ends."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    async with session(server.stream) as socket:
        await socket.send(pcm(speech([1, 2, 3, 4])))
        await until(socket, "speech_started")
        server.server.stop()
        with pytest.raises(InvalidStatus) as refused:
            while True:
                async with session(server.stream):
                    await asyncio.sleep(0)
        assert refused.value.response.status_code == 503
        transcriber.release()
        received = await receive_all(socket)
        assert socket.close_code == 1012
    assert [e["text"] for e in received if e["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert received[-1]["code"] == "draining"
    await server.task


@pytest.mark.parametrize(("drain_timeout_s", "has_stopped"), [(0.1, False), (60.0, True)])
async def test_a_drain_that_is_cut_short_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, drain_timeout_s: float, has_stopped: bool
) -> None:
    """By its time limit, or by a second signal, which is also the exit status. Clients that stop get it as well."""
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    server = await serve(FakeTranscriber(holds=True), drain_timeout_s=drain_timeout_s)
    async with session(server.stream) as socket, session(server.stream) as late:
        await socket.send(pcm(TURN))
        if has_stopped:
            await send(socket, {"type": "stop"})
        await until(socket, "speech_started")
        await server.transcriber.opened.wait()
        server.server.handle_exit(signal.SIGTERM, None)
        if drain_timeout_s == 60.0:
            # The drain has begun, as a session without audio has ended.
            await receive_all(late)
            server.server.handle_exit(signal.SIGTERM, None)
        *_, utterance, error = await receive_all(socket)
        assert socket.close_code == 1012
    assert (utterance["type"], error["code"], error["fatal"]) == ("utterance", "draining", True)
    await server.task
    assert raised == ([signal.SIGTERM] if drain_timeout_s == 60.0 else [])


async def test_a_stalled_engine_ends_the_session_with_the_finished_text(serve: Serve) -> None:
    """The client learns from which time to resume."""
    server = await serve(FakeTranscriber(holds=True), final_deadline_s=0.1)
    async with session(server.stream) as socket:
        await socket.send(pcm(TURN))
        *_, utterance, error = await receive_all(socket)
        assert socket.close_code == 1011
    assert (utterance["type"], utterance["resume_from_s"]) == ("utterance", [0.0])
    assert (error["code"], error["fatal"]) == ("engine_stalled", True)


async def test_many_sessions_each_get_their_own_text(server: Running) -> None:
    async def one(number: int) -> str:
        async with session(server.stream) as socket:
            await socket.send(pcm(np.concatenate((speech([number, 40, number]), silence(0.2)))))
            await send(socket, {"type": "stop"})
            return " ".join(e["text"] for e in await receive_all(socket) if e["type"] == "utterance")

    texts = await asyncio.gather(*map(one, range(8)))
    assert texts == [said([number, 40, number]) for number in range(8)]
