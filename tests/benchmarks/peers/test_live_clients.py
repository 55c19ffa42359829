"""Clients of tutti and of WhisperLive keep the same log: their messages become captions."""

import asyncio
import json

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
    whisperlive_client,
)
from benchmarks.recordings import Recording, ReferenceUtterance
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE

SHORT = Recording(
    "short", np.zeros(SAMPLE_RATE // 4, np.float32), "one two", (ReferenceUtterance("one two", ((0.0, 0.2),)),)
)


async def log_of(client: PeerClient, url: str, recording: Recording = SHORT) -> CaptionLog:
    log = CaptionLog(recording=recording)
    async with asyncio.timeout(30):
        await run_client(client, url, log, language="en", delay_s=0.0)
    assert log.all_sent.is_set()
    return log


def segment(start: float, text: str, *, completed: bool) -> dict[str, object]:
    return {"start": f"{start:.3f}", "end": f"{start + 0.5:.3f}", "text": text, "completed": completed}


@pytest.mark.parametrize("is_full", [False, True])
async def test_whisperlive_is_heard_to_its_last_word(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All float32 audio arrives, behind the options; the client leaves when nothing new comes any more.

    A server that is full has failed the session.
    """
    monkeypatch.setattr(live_clients, "QUIET_S", 0.1)
    received = bytearray()

    async def handle(socket: ServerConnection) -> None:
        asked = json.loads(await socket.recv())
        assert (asked["language"], asked["use_vad"]) == ("en", True)
        await socket.send(json.dumps({"status": "WAIT"} if is_full else {"message": "SERVER_READY"}))
        async for message in socket:
            if message == b"END_OF_AUDIO":
                return
            assert isinstance(message, bytes)
            is_first = not received
            received.extend(message)
            segments = [segment(0, " one", completed=not is_first), segment(1, " two", completed=False)]
            await socket.send(json.dumps({"segments": segments[: 1 if is_first else 2]}))

    async with serve(handle, "127.0.0.1", 0) as server:
        log = await log_of(whisperlive_client, f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}")
    if is_full:
        assert log.failure and "WAIT" in log.failure
        return
    assert log.failure is None
    assert [(each.shown, each.stable) for each in log.captions] == [("one", ""), ("one two", "one")]
    assert len(received) == 4 * len(SHORT.samples)
    assert log.captions[0].arrived_at > log.started_at


def test_whisperlive_forgets_segments_that_the_client_keeps() -> None:
    """Only the last ones are sent again; a text that was open and is not sent any more is gone."""
    text = WhisperLiveText()
    assert text.apply({"segments": [segment(0, "a", completed=True), segment(2, "b", completed=False)]}) == ("a b", "a")
    assert text.apply({"segments": [segment(2, "B.", completed=True)]}) == ("a B.", "a B.")
    assert text.apply({"language": "en"}) == ("a B.", "a B.")


async def test_tutti_keeps_the_same_log() -> None:
    """Its events become captions, and its promises are looked at as in `benchmarks.live`."""
    words = [1, 2, 3]
    samples = np.concatenate((silence(0.2), speech(words), silence(0.7)))
    async with running(Settings(port=0), FakeTranscriber()) as server:
        log = await log_of(tutti_client, server.http, Recording("made-up", samples, said(words)))
    assert (log.failure, log.problems) == (None, [])
    assert log.captions[-1].shown == log.captions[-1].stable == said(words)
    assert log.started_at > 0
