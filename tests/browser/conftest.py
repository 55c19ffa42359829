"""Fixtures for the tests of the page: a scripted server, and audio for the microphone."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.browser import chromium, firefox
from tests.browser.chromium import write_wav
from tests.browser.fake_server import FakeServer, serve
from tests.browser.page import OpenPage

TONE_RATE = 44_100


@pytest.fixture(
    params=[
        pytest.param(chromium.open_page, id="chromium"),
        pytest.param(firefox.open_page, id="firefox", marks=pytest.mark.nightly),
    ]
)
def open_browser(request: pytest.FixtureRequest) -> OpenPage:
    """Each browser in turn."""
    open_page: OpenPage = request.param
    return open_page


@pytest.fixture
def microphone(tmp_path: Path) -> Path:
    """Ten seconds of a tone."""
    seconds = np.arange(10 * TONE_RATE) / TONE_RATE
    return write_wav(tmp_path / "tone.wav", (0.5 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32), TONE_RATE)


@pytest.fixture
async def page_server() -> AsyncIterator[FakeServer]:
    """The fake server. A test may set its fields before the page connects."""
    async with serve(FakeServer()) as server:
        yield server
