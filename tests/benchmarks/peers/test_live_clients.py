"""Clients of peers against servers that say what theirs do: their messages become captions."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.peers import live_clients
from benchmarks.peers.live_clients import (
    CaptionLog,
    PeerClient,
    WhisperLiveText,
    run_client,
    tutti_client,
    whisper_streaming_client,
    whisperlive_client,
    whisperlivekit_client,
    whisperlivekit_text,
)
from benchmarks.recordings import Recording, ReferenceUtterance
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE

Serve = Callable[[ServerConnection], Awaitable[None]]
HandleTcp = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SHORT = Recording(
    "short", np.zeros(SAMPLE_RATE // 4, np.float32), "one two", (ReferenceUtterance("one two", ((0.0, 0.2),)),)
)


@asynccontextmanager
async def fake_server(handle: Serve) -> AsyncIterator[str]:
    async with serve(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


def audio_of(message: str | bytes) -> bytes:
    assert isinstance(message, bytes)
    return message


async def log_of(client: PeerClient, url: str, recording: Recording = SHORT) -> CaptionLog:
    log = CaptionLog(recording=recording)
    async with asyncio.timeout(30):
        await run_client(client, url, log, language="en", delay_s=0.0)
    return log


def segment(start: float, text: str, *, completed: bool) -> dict[str, object]:
    return {"start": f"{start:.3f}", "end": f"{start + 0.5:.3f}", "text": text, "completed": completed}


async def test_whisperlive_is_heard_to_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """All float32 audio arrives, behind the options; the client leaves when nothing new comes any more."""
    monkeypatch.setattr(live_clients, "QUIET_S", 0.1)
    received = bytearray()

    async def handle(socket: ServerConnection) -> None:
        asked = json.loads(await socket.recv())
        assert (asked["language"], asked["use_vad"]) == ("en", True)
        await socket.send(json.dumps({"uid": asked["uid"], "message": "SERVER_READY"}))
        received.extend(audio_of(await socket.recv()))
        await socket.send(json.dumps({"segments": [segment(0, " one", completed=False)]}))
        async for message in socket:
            if message == b"END_OF_AUDIO":
                return
            received.extend(audio_of(message))
            await socket.send(
                json.dumps({"segments": [segment(0, " one", completed=True), segment(1, " two", completed=False)]})
            )

    async with fake_server(handle) as url:
        log = await log_of(whisperlive_client, url)
    assert log.failure is None
    assert [(each.shown, each.stable) for each in log.captions] == [("one", ""), ("one two", "one")]
    assert len(received) == 4 * len(SHORT.samples)
    assert log.captions[0].arrived_at > log.started_at
    assert [until_s for _, until_s in log.covered][:2] == [0.5, 1.5]
    assert log.covered[0][0] == pytest.approx(log.captions[0].arrived_at, abs=1.0)


def test_whisperlive_forgets_segments_that_the_client_keeps() -> None:
    """Only the last ones are sent again; a text that was open and is not sent any more is gone."""
    text = WhisperLiveText()
    assert text.apply({"segments": [segment(0, "a", completed=True), segment(2, "b", completed=False)]}) == ("a b", "a")
    assert text.apply({"segments": [segment(2, "B.", completed=True)]}) == ("a B.", "a B.")
    assert text.apply({"language": "en"}) == ("a B.", "a B.")


async def test_a_full_server_has_failed_the_session() -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"status": "WAIT", "message": 3.0}))
        await socket.wait_closed()

    async with fake_server(handle) as url:
        log = await log_of(whisperlive_client, url)
    assert log.failure and "WAIT" in log.failure
    assert log.all_sent.is_set()


async def test_whisperlivekit_is_heard_until_it_is_ready_to_stop() -> None:
    """16-bit audio, an empty message behind it, and the whole state in every message."""
    received = bytearray()

    async def handle(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "config", "mode": "full"}))
        while message := await socket.recv():
            received.extend(audio_of(message))
        state = {"lines": [{"text": " One."}, {"text": None}], "buffer_transcription": " two"}
        await socket.send(json.dumps(state))
        await socket.send(json.dumps(state))
        await socket.send(json.dumps({"type": "ready_to_stop"}))

    async with fake_server(handle) as url:
        log = await log_of(whisperlivekit_client, url)
    assert log.failure is None
    assert [(each.shown, each.stable) for each in log.captions] == [("One. two", "One.")]
    assert len(received) == 2 * len(SHORT.samples)


def test_whisperlivekit_lines_stand_before_the_buffer() -> None:
    message = {"lines": [{"text": "a"}, {"text": ""}, {"text": " b "}], "buffer_transcription": ""}
    assert whisperlivekit_text(message) == ("a b", "a b")


@asynccontextmanager
async def fake_tcp_server(handle: HandleTcp) -> AsyncIterator[str]:
    async def handle_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(handle_and_close, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_whisper_streaming_hears_silence_until_it_says_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """16-bit audio and silence behind it; lines add to the text, up to the one that comes when the client is done."""
    monkeypatch.setattr(live_clients, "QUIET_S", 0.3)
    received = bytearray()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readexactly(2 * len(SHORT.samples)))
        writer.write(b"0 200  one\n")
        received.extend(await reader.readexactly(2))
        writer.write(b"200 400  two\n")
        received.extend(await reader.read())
        writer.write(b"400 600 -three\n")

    async with fake_tcp_server(handle) as url:
        log = await log_of(whisper_streaming_client, url)
    assert log.failure is None
    assert [each.shown for each in log.captions] == ["one", "one two", "one two-three"]
    assert all(each.shown == each.stable for each in log.captions)
    assert len(received) > 2 * len(SHORT.samples)


async def test_whisper_streaming_that_hangs_up_has_failed_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_clients, "QUIET_S", 0.3)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)

    async with fake_tcp_server(handle) as url:
        log = await log_of(whisper_streaming_client, url)
    assert log.failure


@pytest.mark.parametrize("client", [whisperlive_client, whisperlivekit_client])
async def test_a_server_that_goes_away_has_failed_the_session(client: PeerClient) -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.close(1011, "gone")

    async with fake_server(handle) as url:
        log = await log_of(client, url)
    assert log.failure and "ConnectionClosed" in log.failure


async def test_tutti_keeps_the_same_log() -> None:
    """Its events become captions, and its promises are looked at as in `benchmarks.live`."""
    words = [1, 2, 3]
    samples = np.concatenate((silence(0.2), speech(words), silence(0.7)))
    async with running(Settings(port=0), FakeTranscriber()) as server:
        log = await log_of(tutti_client, server.http, Recording("made-up", samples, said(words)))
    assert (log.failure, log.problems) == (None, [])
    assert log.captions[-1].shown == log.captions[-1].stable == said(words)
    end_s = 0.2 + len(speech(words)) / SAMPLE_RATE
    assert max(until_s for _, until_s in log.covered) == pytest.approx(end_s, abs=0.2)
    assert log.started_at > 0 and log.all_sent.is_set()
