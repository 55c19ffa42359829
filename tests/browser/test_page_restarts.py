"""The captions page goes through restarts of the real service in the middle of speech, and loses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from tests.browser import chromium, exact_microphone, firefox
from tests.browser.page import OpenPage
from tests.recordings import MEETING, SENTENCES
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.media.file_decoder import decode_file
from tutti_server.app.media.pcm import Samples
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.browser

SPEECH_S = 12.0
"""The first two turns of `meeting.flac`, with three sentences."""
TURNS = [" ".join(SENTENCES[:2]), SENTENCES[2]]
DRAINED_AT = "read every"
"""The words after which the server drains and is started again, as in a rolling restart."""
KILLED_AT = "same time"
"""The words after which the connection and the server end without a word, as when a process is killed."""
TIMEOUT_S = 60


class RestartedServer:
    """The real service on one port, with an engine that outlives it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = small_settings()
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Accept connections, after the first time on the port of the first time."""
        listener = bind(self._settings)
        port = listener.getsockname()[1]
        self._settings = small_settings(port=port)
        self.url = f"http://127.0.0.1:{port}"
        started = asyncio.Event()
        self._server = Server(build_app(self._settings, self._engine), self._settings, on_started=started.set)
        self._serving = asyncio.create_task(self._server.serve([listener]))
        await started.wait()

    async def drain(self) -> None:
        """Stop as at SIGTERM."""
        assert self._server is not None and self._serving is not None
        self._server.stop()
        await self._serving

    async def kill(self) -> None:
        """Stop without a close frame."""
        assert self._server is not None
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await self.drain()


@pytest.fixture
async def server() -> AsyncIterator[RestartedServer]:
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        server = RestartedServer(engine)
        await server.start()
        yield server
        await server.drain()


async def speech() -> Samples:
    """The recording with silence at its end, so that its last sentence becomes final."""
    with MEETING.open("rb") as file:
        async with aclosing(decode_file(file)) as pieces:
            samples = np.concatenate([piece async for piece in pieces])
    return samples[: round(SPEECH_S * SAMPLE_RATE)]


@pytest.mark.parametrize(
    "open_page",
    [
        pytest.param(chromium.open_page, id="chromium"),
        pytest.param(firefox.open_page, id="firefox", marks=pytest.mark.nightly),
    ],
)
async def test_restarts_in_the_middle_of_speech_change_nothing(
    server: RestartedServer, open_page: OpenPage, tmp_path: Path
) -> None:
    """The page has every sentence once, in order, with its punctuation. What it showed as solid never changed."""
    shown = "document.querySelector('#transcript').innerText"
    silence = chromium.write_wav(tmp_path / "silence.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
    async with open_page(tmp_path / "profile", silence) as page:
        await exact_microphone.play(page, await speech())
        await exact_microphone.use_fixed_silence(page)
        await page.open(server.url)
        await exact_microphone.watch(page)
        await page.click("#toggle")
        for words, stop in ((DRAINED_AT, server.drain), (KILLED_AT, server.kill)):
            await page.wait_for(f"{shown}.includes('{words}')", TIMEOUT_S)
            await stop()
            await page.wait_for("document.querySelector('#status').innerText === 'Reconnecting…'", TIMEOUT_S)
            await server.start()
            await page.wait_for("document.querySelector('#status').innerText === 'Listening'", TIMEOUT_S)
        await page.wait_for("document.body.dataset.microphone === 'ended'", TIMEOUT_S)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'", TIMEOUT_S)
        lines = await page.evaluate("[...document.querySelectorAll('#finals .text')].map((e) => e.textContent.trim())")
        assert await page.evaluate("changes") == []
        assert page.errors == []
    assert lines == TURNS
