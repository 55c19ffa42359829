"""What the captions page must do in every browser, with the real service and the small model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.live.faulty_proxy import FaultyProxy, faulty_proxy
from tests.browser import exact_microphone, firefox
from tests.browser.chromium import write_wav
from tests.browser.fake_server import FakeServer, Step, final, interim, speech_started
from tests.browser.page import BrowserPage, OpenPage
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
CUT_AT_S = 3.0
CUT_S = 2.0
"""A short form of `python -m benchmarks.faults page`."""
TIMEOUT_S = 60
LINES = "[...document.querySelectorAll('#finals .text')].map((e) => e.textContent.trim())"
"""The final lines of the page, without their times."""


@pytest.fixture
async def network() -> AsyncIterator[FaultyProxy]:
    """The real service, through a network that the test may cut."""
    settings = small_settings()
    with bind(settings) as listener:
        async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine, asyncio.TaskGroup() as tasks:
            server = Server(build_app(settings, engine), settings)
            tasks.create_task(server.serve([listener]))
            async with faulty_proxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
                yield proxy
            server.stop()


async def speech() -> Samples:
    """The recording with silence at its end, so that its last sentence becomes final."""
    with MEETING.open("rb") as file:
        async with aclosing(decode_file(file)) as pieces:
            samples = np.concatenate([piece async for piece in pieces])
    return samples[: round(SPEECH_S * SAMPLE_RATE)]


@pytest.mark.nightly
async def test_captions_are_as_spoken_through_a_bad_network(
    open_browser: OpenPage, network: FaultyProxy, tmp_path: Path
) -> None:
    """Every sentence once and in order, though the network is cut in one of them and the connection is then lost."""
    silence = write_wav(tmp_path / "silence.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
    async with open_browser(tmp_path / "profile", silence) as page:
        await exact_microphone.play(page, await speech())
        await exact_microphone.use_fixed_silence(page)
        await page.open(network.url)
        await exact_microphone.watch(page)
        await page.click("#toggle")
        await exact_microphone.wait_until_played(page, CUT_AT_S, TIMEOUT_S)
        await network.cut(CUT_S)
        network.drop_connections()
        await page.wait_for("document.querySelector('#status').innerText === 'Reconnecting…'", TIMEOUT_S)
        await page.wait_for("document.querySelector('#status').innerText === 'Listening'", TIMEOUT_S)
        await page.wait_for("document.body.dataset.microphone === 'ended'", TIMEOUT_S)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'", TIMEOUT_S)
        assert await page.evaluate(LINES) == TURNS
        assert await page.evaluate("changes") == []
        assert page.errors == []


async def test_a_reloaded_page_captions_again(
    open_browser: OpenPage, page_server: FakeServer, microphone: Path, tmp_path: Path
) -> None:
    """A reload in the middle of a session ends it, and the next session shows its own text from a real microphone."""
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    async with open_browser(tmp_path / "profile", microphone) as page:
        await page.open(page_server.url)
        await start(page)
        await page.reload()
        assert await page.evaluate("document.body.dataset.state") == "idle"
        await start(page)
        await page_server.send(*final("Hello everyone."))
        await page.wait_for(f"{LINES}.includes('Hello everyone.')")
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        assert page.errors == []
    assert len(page_server.starts) == 2


@pytest.mark.nightly
async def test_a_microphone_that_firefox_refuses_is_explained(page_server: FakeServer, tmp_path: Path) -> None:
    """Every browser refuses in its own way; `test_page.py` has Chromium's."""
    async with firefox.open_page(tmp_path / "profile", None) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'failed'")
        assert "microphone is blocked" in await page.evaluate("document.querySelector('#message').innerText")
        assert page.errors == []


async def start(page: BrowserPage) -> None:
    """Start a session, and wait until the server's first text is shown."""
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
