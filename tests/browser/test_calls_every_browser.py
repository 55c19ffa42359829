"""What the page for call records must do in every browser, and with the real service and the small model."""

import asyncio
import base64
import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.browser import chromium
from tests.browser.fake_calls import RECORD, FakeCalls, drop, texts_of
from tests.browser.fake_server import serve
from tests.browser.page import OpenPage
from tests.recordings import TEXTS, read
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.browser

RECORD_TIMEOUT_S = 120


async def test_a_record_is_read_and_its_recording_plays(open_browser: OpenPage, tmp_path: Path) -> None:
    """From a word on. The word that is spoken is marked, and it is redacted places alone that are muted."""
    tone = chromium.write_wav(tmp_path / "tone.wav", np.full(16 * 8000, 0.1, np.float32), 8000)
    sound = base64.b64encode(tone.read_bytes()).decode()
    text = base64.b64encode(json.dumps(RECORD).encode()).decode()
    async with serve(FakeCalls()) as server, open_browser(tmp_path / "profile", None) as page:
        await page.show_as(1200, 1000)
        await page.open(f"{server.url}/calls")
        await drop(page, ("monday.json", "application/json", text), ("monday.wav", "audio/wav", sound))
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


async def test_the_service_makes_the_record_of_a_call(tmp_path: Path) -> None:
    """From the recording of a call to the text of both sides, by name."""
    settings = small_settings()
    sides = [read("hello"), np.concatenate((np.zeros(3 * 16_000, np.int16), read("train")))]
    n_samples = max(map(len, sides))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(np.stack([np.pad(side, (0, n_samples - len(side))) for side in sides], 1).tobytes())
    sound = base64.b64encode(file.getvalue()).decode()
    async with (
        Engine.start(EngineConfig(model=SMALL_MODEL)) as engine,
        chromium.open_page(tmp_path / "profile", None) as page,
    ):
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            await page.open(f"http://127.0.0.1:{listener.getsockname()[1]}/calls")
            await drop(page, ("call.wav", "audio/wav", sound))
            await page.wait_for("document.activeElement.id === 'channel-names'")
            await page.type_text("agent, customer")
            await page.press_enter()
            await page.wait_for("document.body.dataset.state === 'open'", RECORD_TIMEOUT_S)
            names = await page.evaluate(texts_of(".turn .name"))
            said = await page.evaluate("[...document.querySelectorAll('.said')].map((each) => each.textContent)")
            server.stop()
            await serving
        assert page.errors == []
    assert (names, said) == (["agent", "customer"], [TEXTS["hello"], TEXTS["train"]])
