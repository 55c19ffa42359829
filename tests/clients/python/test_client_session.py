"""Sessions against a scripted server."""

import asyncio
import pickle
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

import tutti
from tests.clients.python.client_fakes import (
    INTERIM,
    SEGMENT,
    SPEECH,
    STOPPED,
    UTTERANCE,
    Peer,
    Script,
    answer_start,
    make_started,
    open_briefly,
    play,
    refuse_with,
    serve_nothing,
    serve_script,
    wait_for_other_tasks,
)
from tests.clients.python.test_client_audio import make_wav
from tutti.handshake import resolve_url


@pytest.fixture(autouse=True)
async def tasks() -> AsyncIterator[None]:
    """No test leaves a task."""
    yield
    await wait_for_other_tasks()


answer = play(SPEECH, INTERIM, SEGMENT, UTTERANCE)
"""One utterance, then the end."""


async def test_a_session_from_start_to_stopped() -> None:
    """Events are typed and in order, `stopped` is the last, and `final_until_s` is known."""
    async with (
        serve_script(answer) as server,
        tutti.connect(server.url, language="de", silence_ms=300, api_key="k1") as session,
    ):
        assert session.started.session_id == "s_01"
        assert session.final_until_s == 0
        await session.send(b"\x00\x01")
        await session.stop()
        events = [event async for event in session]
        assert [event async for event in session] == []
    assert [tutti.event_to_wire(event) for event in events] == [SPEECH, INTERIM, SEGMENT, UTTERANCE, STOPPED]
    assert session.final_until_s == 1.6
    assert session.stopped == events[-1]
    assert server.peer.messages[0] == {
        "type": "start",
        "audio": {"encoding": "pcm_s16le", "sample_rate": 16000, "channels": 1},
        "language": "de",
        "task": "transcribe",
        "interim": True,
        "endpointing": {"silence_ms": 300},
        "resumes": True,
    }
    assert server.requests[0].path == "/v1/stream"
    assert server.requests[0].headers["Authorization"] == "Bearer k1"
    assert server.requests[0].headers["Sec-WebSocket-Protocol"] == "tutti.v1"


async def test_resume_continues_a_lost_session() -> None:
    """The time and the text before it are sent, and `final_until_s` begins there."""
    async with (
        serve_script(play(UTTERANCE)) as server,
        tutti.connect(server.url, resume=tutti.Resume(12.5, "Before."), hotwords="tutti") as session,
    ):
        assert session.final_until_s == 12.5
        await session.stop()
        _ = [event async for event in session]
        # It never decreases, whatever the server sends.
        assert session.final_until_s == 12.5
    assert server.peer.messages[0]["resume"] == {"from_s": 12.5, "prompt": "Before."}
    assert server.peer.messages[0]["hotwords"] == ["tutti"]


async def test_large_audio_is_split() -> None:
    """No message is larger than the server accepts, and no audio is lost or reordered."""
    audio = bytes(range(25))
    async with serve_script(play(max_message_bytes=10)) as server, tutti.connect(server.url) as session:
        await session.send(audio)
        await session.send(b"")
        await session.send(memoryview(bytearray(audio[:4])))
        await session.stop()
        _ = [event async for event in session]
    assert [len(message) for message in server.peer.audio] == [10, 10, 5, 4]
    assert b"".join(server.peer.audio) == audio + audio[:4]


async def test_flush_and_keepalive() -> None:
    """A flush has the id of the caller or a new one, and the answer has the same."""

    async def echo(peer: Peer) -> None:
        await peer.begin()
        for _ in range(3):
            await peer.send({"type": "flushed", "id": (await peer.receive_until("flush"))["id"]})
        await peer.receive_until("keepalive")
        await peer.finish()

    async with serve_script(echo) as server, tutti.connect(server.url) as session:
        ids = [await session.flush(), await session.flush(0), await session.flush()]
        await session.keepalive()
        await session.stop()
        flushed = [event.id async for event in session if isinstance(event, tutti.Flushed)]
    assert flushed == ids
    assert ids[1] == 0
    assert len(set(ids)) == 3


async def test_nothing_is_sent_after_stop() -> None:
    """The client refuses audio and flush after `stop`; a second `stop` has no effect."""
    async with serve_script(answer) as server, tutti.connect(server.url) as session:
        await session.stop()
        await session.stop()
        with pytest.raises(tutti.SessionStopped, match="audio"):
            await session.send(b"\x00\x00")
        with pytest.raises(tutti.SessionStopped, match="flush"):
            await session.flush()
        _ = [event async for event in session]
    assert [message["type"] for message in server.peer.messages] == ["start", "stop"]


async def test_an_error_that_is_not_fatal_is_an_event() -> None:
    """The session continues after it, as after unknown events of newer servers."""
    complain = play({"type": "error", "code": "bad_json", "message": "m", "fatal": False}, {"type": "new"})
    async with serve_script(complain) as server, tutti.connect(server.url) as session:
        await session.stop()
        events = [event async for event in session]
    assert events[0] == tutti.ErrorEvent("bad_json", "m", fatal=False)
    assert events[1] == tutti.UnknownEvent("new", {"type": "new"})
    assert isinstance(events[2], tutti.Stopped)


FATAL = {"type": "error", "code": "draining", "message": "going down", "fatal": True}


async def test_a_fatal_error_ends_the_iteration() -> None:
    """It is raised with its code after the events before it, and again by every later call."""
    async with (
        serve_script(play(UTTERANCE, FATAL, close=1012)) as server,
        tutti.connect(server.url, resume_buffer_s=0) as session,
    ):
        assert isinstance(await anext(session), tutti.Utterance)
        for _ in range(2):
            with pytest.raises(tutti.SessionError) as caught:
                await anext(session)
            assert (caught.value.code, caught.value.message) == ("draining", "going down")
            assert caught.value.final_until_s == 1.6


async def test_a_send_that_fails_gives_the_reason() -> None:
    """`send` raises the fatal error although no task has received it, and the events before it are not lost."""
    drain = play(SPEECH, UTTERANCE, FATAL, close=1012)
    async with serve_script(drain) as server, tutti.connect(server.url, resume_buffer_s=0) as session:
        await server.peer.socket.wait_closed()
        with pytest.raises(tutti.SessionError) as caught:
            while True:
                await session.send(bytes(2))
        assert caught.value.code == "draining"
        assert caught.value.__cause__ is not None
        # The utterance is not delivered yet: a session that resumes now must get it again.
        assert caught.value.final_until_s == 0
        assert isinstance(await anext(session), tutti.SpeechStarted)
        assert isinstance(await anext(session), tutti.Utterance)
        with pytest.raises(tutti.SessionError):
            await anext(session)


async def test_a_send_does_not_wait_for_a_connection_that_ended_with_no_event() -> None:
    async with (
        serve_script(play({"type": "lag"}, close=1011)) as server,
        tutti.connect(server.url, resume_buffer_s=0) as session,
    ):
        await server.peer.socket.wait_closed()
        with pytest.raises(tutti.ProtocolError, match=r"lag\.behind_s"):
            while True:
                await session.send(bytes(2))


async def test_an_abnormal_close_tells_where_to_resume() -> None:
    """A connection that ends before `stopped` is an error with close code and `final_until_s`, for both tasks."""
    leave = play(UTTERANCE, close=1011, reason="oh no")
    async with serve_script(leave) as server, tutti.connect(server.url, resume_buffer_s=0) as session:
        await anext(session)
        with pytest.raises(tutti.ConnectionLost) as caught:
            await anext(session)
        assert (caught.value.close_code, caught.value.reason, caught.value.final_until_s) == (1011, "oh no", 1.6)
        with pytest.raises(tutti.ConnectionLost):
            await session.send(b"\x00\x00")


async def test_a_message_that_is_not_an_event_is_a_protocol_error() -> None:
    """The error names the wrong field; binary frames are refused too."""

    async def babble(peer: Peer) -> None:
        await peer.begin()
        await peer.socket.send(b"abc")
        await peer.send({"type": "lag", "behind_s": "much"})
        await peer.socket.wait_closed()

    async with serve_script(babble) as server, tutti.connect(server.url) as session:
        with pytest.raises(tutti.ProtocolError, match="expected a text frame, got 3 bytes"):
            await anext(session)
        with pytest.raises(tutti.ProtocolError, match=r"lag\.behind_s: expected a number"):
            await anext(session)


BAD_START = {"type": "error", "code": "bad_start", "message": "language: expected …", "fatal": True}


@pytest.mark.parametrize(
    ("script", "options", "expected", "message"),
    [
        pytest.param(answer_start(BAD_START, close=1008), {}, tutti.SessionError, r"\(bad_start\)", id="refusal"),
        pytest.param(answer_start(SPEECH), {}, tutti.ProtocolError, "speech_started", id="another event"),
        # The error names the option that limits the wait.
        pytest.param(answer_start(), {"started_timeout_s": 0.01}, tutti.TimedOut, "started_timeout_s", id="nothing"),
    ],
)
async def test_an_answer_other_than_started_is_an_error(
    script: Script, options: dict[str, Any], expected: type[tutti.TuttiError], message: str
) -> None:
    """`connect` raises it."""
    async with serve_script(script) as server:
        with pytest.raises(expected, match=message):
            await open_briefly(server.url, **options)


async def test_waiting_for_the_end_is_bounded() -> None:
    """A server may stop sending after `stop`. A task that waited already gets the error too."""

    async def forget(peer: Peer) -> None:
        await peer.begin()
        await peer.receive_until("stop")
        await peer.socket.wait_closed()

    async with serve_script(forget) as server, tutti.connect(server.url, stop_timeout_s=0.01) as session:
        receiving = asyncio.create_task(anext(session))
        await asyncio.sleep(0)
        await session.stop()
        with pytest.raises(tutti.TimedOut, match="stop_timeout_s"):
            await receiving
        with pytest.raises(tutti.TimedOut, match="stop_timeout_s"):
            await anext(session)


async def test_opening_is_bounded() -> None:
    """A server may accept the connection and then send nothing."""
    async with serve_nothing() as (address, _):
        with pytest.raises(tutti.TimedOut, match="open_timeout_s"):
            await open_briefly(f"ws://{address}", open_timeout_s=0.01)


async def test_a_missing_key_is_unauthorized() -> None:
    """HTTP 401 is an error of its own, with the server's sentence."""
    body = b'{"error":{"message":"no key"}}'
    async with serve_script(answer, process_request=refuse_with(HTTPStatus.UNAUTHORIZED, body=body)) as server:
        with pytest.raises(tutti.Unauthorized, match="HTTP 401, no key; the API key") as caught:
            await open_briefly(server.url)
    assert (caught.value.status, caught.value.body) == (401, body.decode())


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": formatdate(0, usegmt=True)}, 0),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
async def test_an_overloaded_server_tells_when_to_retry(headers: dict[str, str], expected: float | None) -> None:
    """HTTP 503 carries Retry-After, in seconds or as a date."""
    refusal = refuse_with(HTTPStatus.SERVICE_UNAVAILABLE, headers)
    async with serve_script(answer, process_request=refusal) as server:
        with pytest.raises(tutti.Overloaded) as caught:
            await open_briefly(server.url)
    assert caught.value.retry_after_s == expected


@pytest.mark.parametrize(
    ("key", "got"),
    [
        ("", ""),
        ("sk-secret\n", "\n"),
        ("sk-secret\r\nx-other: 1", "\r"),
        (" sk-secret", " "),
        ("schlüssel-secret", "ü"),
    ],
)
async def test_an_api_key_that_no_header_can_carry_is_refused(key: str, got: str) -> None:
    """Before anything is sent. The error shows what is wrong in the key, and not the key."""
    async with serve_script(answer) as server:
        with pytest.raises(tutti.BadOption, match="api_key: expected") as caught:
            await open_briefly(server.url, api_key=key)
    assert caught.value.got == got
    assert "secret" not in repr(caught.value) + str(caught.value)
    assert server.requests == []


async def test_an_api_key_may_have_any_character_of_ascii() -> None:
    """Servers have keys in base64, or of several words."""
    key = "YWJj+/== and more"
    async with serve_script(answer) as server:
        await open_briefly(server.url, api_key=key)
    assert server.requests[0].headers["Authorization"] == f"Bearer {key}"


async def test_a_proxy_that_needs_another_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment may name one."""
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("socks_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(tutti.BadOption, match=r"proxy: expected a proxy that can be used .*python-socks"):
        await open_briefly("ws://127.0.0.1:1")


async def test_a_proxy_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(tutti.BadOption, match="proxy: expected"):
        await open_briefly("ws://127.0.0.1:1", proxy="gopher://127.0.0.1")


async def test_a_redirect_is_refused() -> None:
    """The API key goes only to the address that the caller gave."""
    async with serve_script(answer) as other:
        refusal = refuse_with(HTTPStatus.FOUND, {"Location": other.url})
        async with serve_script(answer, process_request=refusal) as server:
            with pytest.raises(tutti.Refused) as caught:
                await open_briefly(server.url, api_key="secret")
    assert (caught.value.status, caught.value.headers["location"]) == (302, other.url)
    assert other.requests == []


async def test_other_servers_are_unreachable() -> None:
    """No listener, no WebSocket and no `tutti.v1` have different messages."""
    async with serve_script(answer) as server:
        pass
    with pytest.raises(tutti.Unreachable):
        await open_briefly(server.url)
    async with serve_nothing(b"220 smtp ready\r\n") as (address, _):
        with pytest.raises(tutti.Unreachable, match="no WebSocket"):
            await open_briefly(f"ws://{address}")
    async with serve_script(answer_start(), subprotocols=None) as server:
        with pytest.raises(tutti.Unreachable, match=r"tutti\.v1"):
            await open_briefly(server.url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://host", "ws://host/v1/stream"),
        ("wss://host:8443/", "wss://host:8443/v1/stream"),
        ("http://[::1]:8000", "ws://[::1]:8000/v1/stream"),
        ("HTTPS://host/asr/v1/stream?model=a", "wss://host/asr/v1/stream?model=a"),
        ("https://host?token=t", "wss://host/v1/stream?token=t"),
    ],
)
def test_urls_are_completed(url: str, expected: str) -> None:
    """There are four schemes, and the path may be left out."""
    assert resolve_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        *("", "host", "localhost:8000", "ftp://host", "ws://", "ws://:80", "ws://host:port", "ws://host#a", "//host"),
        *("ws://host..org", f"ws://{'a' * 64}"),
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    """The error shows the URL."""
    with pytest.raises(tutti.BadURL) as caught:
        resolve_url(url)
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize("error", [tutti.BadURL("ws:", "no host"), tutti.Overloaded("ws://h", 503, {}, "full", 7.0)])
def test_an_error_of_another_process_is_the_same(error: tutti.TuttiError) -> None:
    """A program with many files may have a pool of processes."""
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


async def test_leaving_early_closes() -> None:
    """Leaving the block without `stop` closes the connection."""
    async with serve_script(answer_start(make_started(), SPEECH)) as server:
        async with tutti.connect(server.url) as session:
            async for _ in session:
                break
        await server.peer.socket.wait_closed()
        assert server.peer.socket.close_code == 1000


async def test_nothing_is_taken_after_leaving() -> None:
    """The session would accept audio and flushes that no server reads."""
    async with serve_script(Peer.begin) as server, tutti.connect(server.url) as session:
        pass
    for late in (session.send(bytes(2)), session.flush(), session.keepalive(), anext(session)):
        with pytest.raises(tutti.ConnectionLost, match="closed"):
            await late


async def test_leaving_does_not_hang_on_a_server_that_reads_nothing() -> None:
    """A sender that waits for a full socket is cancelled, and leaving takes no longer than `close_timeout_s`."""

    async def never_read(peer: Peer) -> None:
        await peer.begin()
        await released.wait()

    released = asyncio.Event()
    async with serve_script(never_read, max_queue=1) as server:
        async with tutti.connect(server.url, close_timeout_s=0.05) as session:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    while True:
                        await session.send(bytes(1_000_000))
        released.set()


async def test_leaving_does_not_hang_on_a_server_that_sends_endlessly() -> None:
    """Events that are not read do not keep the connection open."""

    async def flood(peer: Peer) -> None:
        await peer.begin()
        while True:
            await peer.send({"type": "lag", "behind_s": 1})
            # The client runs on the same thread.
            await asyncio.sleep(0)

    async with serve_script(flood) as server:
        async with tutti.connect(server.url, close_timeout_s=0.1) as session:
            assert isinstance(await anext(session), tutti.Lag)
        await server.peer.socket.wait_closed()


async def endless() -> AsyncGenerator[bytes, None]:
    yield bytes(2)
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("stage", ["opening", "starting", "receiving", "streaming"])
async def test_cancelling_leaves_no_task(stage: str) -> None:
    """At whatever stage it is cancelled, the connection is closed and all its tasks end."""
    reached = asyncio.Event()

    async def script(peer: Peer) -> None:
        if stage != "starting":
            await peer.begin()
        if stage == "streaming":
            await peer.receive()
        reached.set()
        await peer.socket.wait_closed()

    async def hold_handshake(socket: ServerConnection, request: Request) -> None:
        if stage == "opening":
            reached.set()
            await socket.wait_closed()

    async def client(url: str) -> None:
        async with tutti.connect(url, close_timeout_s=0.1) as session:
            async for _ in session.stream(endless()) if stage == "streaming" else session:
                pass

    before = asyncio.all_tasks()
    async with serve_script(script, process_request=hold_handshake, open_timeout=0.2) as server:
        task = asyncio.create_task(client(server.url))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await wait_for_other_tasks()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("when", ["before", "while"])
async def test_the_audio_of_a_stream_can_be_ended_early(when: str) -> None:
    """`end_audio` interrupts a source that has nothing to give; the last finals still come."""

    async def reply(peer: Peer) -> None:
        await peer.begin()
        await peer.send(SPEECH)
        await peer.receive_until("stop")
        await peer.send(UTTERANCE, STOPPED)

    async with serve_script(reply) as server, tutti.connect(server.url) as session:
        if when == "before":
            session.end_audio()
        events = []
        async for event in session.stream(endless()):
            events.append(event.type)
            session.end_audio()
    assert events == ["speech_started", "utterance", "stopped"]


@pytest.mark.parametrize("kind", [ValueError, TimeoutError, asyncio.CancelledError])
async def test_a_source_that_fails_loses_no_finals(kind: type[BaseException]) -> None:
    """The finals of the audio before the error come first, then the error of the source."""

    async def source() -> AsyncIterator[bytes]:
        yield bytes(2)
        raise kind("microphone")

    async with serve_script(answer) as server, tutti.connect(server.url) as session:
        transcript = tutti.Transcript()
        with pytest.raises(kind, match="microphone"):
            async for event in session.stream(source()):
                transcript.add(event)
        assert session.stopped is not None
    assert transcript.text() == "Hello there."


async def test_a_silent_source_keeps_the_session_alive() -> None:
    """`stream` sends `keepalive` well before the server would end the session."""

    async def wait(peer: Peer) -> None:
        await peer.begin(idle_timeout_s=0.03)
        await peer.receive_until("keepalive")
        await peer.receive_until("keepalive")
        silent.set_result(None)
        await peer.finish()

    silent = asyncio.get_running_loop().create_future()

    async def source() -> AsyncIterator[bytes]:
        await silent
        yield bytes(2)

    async with serve_script(wait) as server, tutti.connect(server.url) as session:
        events = [event.type async for event in session.stream(source())]
    assert events == ["stopped"]


async def test_a_file_is_streamed(tmp_path: Path) -> None:
    """With a speed, `transcribe_file` sends the file's format, all of its audio, and `stop`."""
    samples = bytes(range(256)) * 100
    path = tmp_path / "call.wav"
    path.write_bytes(make_wav(7, 8, samples, rate=8000, channels=2))
    async with serve_script(answer) as server:
        events = [event.type async for event in tutti.transcribe_file(server.url, path, language="en", speed=9)]
    assert events == ["speech_started", "interim", "segment", "utterance", "stopped"]
    assert server.peer.messages[0]["audio"] == {"encoding": "mulaw", "sample_rate": 8000, "channels": 2}
    assert server.peer.messages[0]["language"] == "en"
    assert b"".join(server.peer.audio) == samples


async def test_a_connection_that_is_lost_during_a_file_is_an_error(tmp_path: Path) -> None:
    """Also while the file is still being streamed."""

    async def cut(peer: Peer) -> None:
        await peer.begin(max_ahead_s=1.0)
        await peer.receive()
        await peer.send(UTTERANCE)
        peer.socket.transport.abort()

    path = tmp_path / "long.wav"
    path.write_bytes(make_wav(1, 16, bytes(60 * 32000)))
    async with serve_script(cut) as server:
        with pytest.raises(tutti.ConnectionLost) as caught:
            async for _ in tutti.transcribe_file(server.url, path, speed=1000.0, resume_buffer_s=0):
                pass
    assert caught.value.close_code == 1006


@pytest.mark.parametrize("end", ["lost", "left"])
async def test_a_source_may_be_closed_when_its_stream_has_ended(end: str) -> None:
    """After a lost connection, and after the application has left the loop, no task reads the source any more."""
    is_closed = False

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield bytes(2)
            await asyncio.get_running_loop().create_future()
        finally:
            is_closed = True

    async def reply(peer: Peer) -> None:
        await peer.begin()
        await peer.receive()
        await peer.send(SPEECH)
        if end == "lost":
            peer.socket.transport.abort()
        await peer.socket.wait_closed()

    async with (
        serve_script(reply) as server,
        tutti.connect(server.url, resume_buffer_s=0) as session,
        aclosing(endless()) as source,
    ):
        try:
            async with aclosing(session.stream(source)) as events:
                async for _ in events:
                    if end == "left":
                        break
        except tutti.ConnectionLost:
            assert end == "lost"
        assert is_closed


async def test_a_certificate_store_needs_an_encrypted_url() -> None:
    """`ssl` for ws:// is refused rather than ignored."""
    import ssl

    with pytest.raises(tutti.BadOption, match="ssl"):
        await open_briefly("ws://127.0.0.1:1", ssl=ssl.create_default_context())
