"""What each browser does in its own way, in Firefox; the other tests of this folder have Chromium."""

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.browser import firefox
from tests.browser.chromium import write_wav
from tests.browser.fake_calls import RECORD, FakeCalls, as_file, drop, texts_of
from tests.browser.fake_server import FakeServer, Step, final, interim, serve, speech_started
from tests.browser.page import BrowserPage

pytestmark = [pytest.mark.browser, pytest.mark.nightly]


async def start(page: BrowserPage) -> None:
    """Start a session, and wait until the server's first text is shown."""
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")


async def test_a_reloaded_page_captions_again(page_server: FakeServer, microphone: Path, tmp_path: Path) -> None:
    """A reload in the middle of a session ends it, and the next session shows its own text from a real microphone."""
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    async with firefox.open_page(tmp_path / "profile", microphone) as page:
        await page.open(page_server.url)
        await start(page)
        await page.reload()
        assert await page.evaluate("document.body.dataset.state") == "idle"
        await start(page)
        await page_server.send(*final("Hello everyone."))
        await page.wait_for("document.querySelector('#finals').innerText.includes('Hello everyone.')")
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        assert page.errors == []
    assert len(page_server.starts) == 2


async def test_a_refused_microphone_is_explained(page_server: FakeServer, tmp_path: Path) -> None:
    async with firefox.open_page(tmp_path / "profile", None) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'failed'")
        assert "microphone is blocked" in await page.evaluate("document.querySelector('#message').innerText")
        assert page.errors == []


async def test_a_record_is_read_and_its_recording_plays(tmp_path: Path) -> None:
    """From a word on. The word that is spoken is marked, and it is redacted places alone that are muted."""
    tone = write_wav(tmp_path / "tone.wav", np.full(16 * 8000, 0.1, np.float32), 8000)
    sound = base64.b64encode(tone.read_bytes()).decode()
    async with serve(FakeCalls()) as server, firefox.open_page(tmp_path / "profile", None) as page:
        await page.show_as(1200, 1000)
        await page.open(f"{server.url}/calls")
        await drop(page, as_file(RECORD), ("monday.wav", "audio/wav", sound))
        await page.wait_for("document.body.dataset.state === 'open'")
        assert await page.evaluate(texts_of(".turn .name")) == ["agent", "caller", "agent", "caller"]
        await page.click(".turn:last-child [data-word='2']")
        await page.wait_for("document.body.dataset.playing === ''")
        await page.wait_for("document.querySelector('#muted').innerText === 'Redacted: muted'")
        await page.wait_for("document.querySelector('.word.now')?.innerText === '[CARD_NUMBER]'")
        await page.wait_for("document.querySelector('#muted').innerText === ''")
        await page.click("#play")
        await page.wait_for("document.body.dataset.playing === undefined")
        assert page.errors == []
