"""The sound of another tab reaches the captions page, as in a meeting that runs in a tab."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.browser.chromium import open_page
from tests.browser.fake_server import FakeServer, Step, final
from tests.browser.speaking_tab import SHARE_FLAGS, SpeakingTab
from tutti_server.engine.api import SAMPLE_RATE

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

CHOOSE_TAB = """(() => {
    const source = document.querySelector("#source");
    source.value = "tab";
    source.dispatchEvent(new Event("change"));
})()"""


async def test_the_page_captions_the_sound_of_another_tab(page_server: FakeServer, tmp_path: Path) -> None:
    """The choice of the source, a click, the sound of the tab at the server, its text on the page, and the end."""
    seconds = np.arange(30 * SAMPLE_RATE) / SAMPLE_RATE
    tone = (0.5 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32)
    # Nothing is loud before the tab plays.
    page_server.script = [Step(0.5, final("From a tab."))]
    async with open_page(tmp_path / "profile", None, SHARE_FLAGS) as page:
        await page.open(page_server.url)
        tab = await SpeakingTab.open(page, tone)
        await page.evaluate(CHOOSE_TAB)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'live'")
        assert page_server.loud_s == 0
        playing = asyncio.create_task(tab.play())
        await page.wait_for("document.querySelector('#finals .text')?.textContent === 'From a tab.'")
        playing.cancel()
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        assert page.errors == []
    assert page_server.stopped.is_set() and page_server.loud_s >= 0.5
