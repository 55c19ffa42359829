"""The captions page with the real service and the small model, from the microphone to the words on the screen."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from tests.browser.chromium import open_page, write_wav
from tests.small_model import SMALL_MODEL, SMALL_MODEL_NAME, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.browser

SPEECH = Path(__file__).parents[1] / "audio" / "hello.flac"
WORDS = "hello everyone and welcome to the morning meeting"
SAMPLE_RATE = 16_000
LEAD_S = 1
"""Silence before the speech, in seconds: Chromium plays the file from the moment it grants the microphone, before the
session is open."""
TRAIL_S = 1
FINAL_TIMEOUT_S = 60
"""For a cold engine on a busy machine; a user waits much less."""


@pytest.fixture
async def page_server() -> AsyncIterator[str]:
    """The address of the real service on a free port."""
    settings = small_settings()
    listener = bind(settings)
    with listener:
        async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine, asyncio.TaskGroup() as tasks:
            server = Server(build_app(settings, engine), settings)
            tasks.create_task(server.serve([listener]))
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.stop()


def decode(path: Path) -> npt.NDArray[np.float32]:
    """Mono samples in [-1, 1] at 16 kHz, with silence around them."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    with av.open(str(path)) as container:
        frames = [part for frame in container.decode(audio=0) for part in resampler.resample(frame)]
    samples = [frame.to_ndarray().reshape(-1) for frame in frames]
    lead, trail = np.zeros(LEAD_S * SAMPLE_RATE), np.zeros(TRAIL_S * SAMPLE_RATE)
    return np.concatenate([lead, *samples, trail]).astype(np.float32)


@pytest.mark.nightly
async def test_speech_becomes_a_caption(page_server: str, tmp_path: Path) -> None:
    """A spoken sentence appears as a final line."""
    microphone = write_wav(tmp_path / "hello.wav", decode(SPEECH), SAMPLE_RATE)
    async with open_page(tmp_path / "profile", microphone) as page:
        await page.open(page_server)
        await page.wait_for(f"document.querySelector('#model').innerText === '{SMALL_MODEL_NAME} · 100 languages'")
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#finals .line')", FINAL_TIMEOUT_S)
        text = await page.evaluate("document.querySelector('#finals .text').textContent")
        await page.screenshot(tmp_path / "final.png")
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'", FINAL_TIMEOUT_S)
        assert page.errors == []
    # Chromium's fake microphone loses samples on a busy machine. Other tests check every word.
    assert len(set(WORDS.split()) & set(re.findall(r"\w+", text.lower()))) >= 5
