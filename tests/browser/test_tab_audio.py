"""The sound of another tab reaches a page that asks for it, as in a meeting that runs in a tab."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from engine.api import SAMPLE_RATE
from tests.browser.chromium import open_page
from tests.browser.fake_server import FakeServer
from tests.browser.speaking_tab import SHARE_FLAGS, SpeakingTab

pytestmark = pytest.mark.browser

LOUDEST = """
    globalThis.shared = navigator.mediaDevices.getDisplayMedia({video: true, audio: true}).then(async (stream) => {
      const context = new AudioContext();
      await context.resume();
      const analyser = new AnalyserNode(context);
      context.createMediaStreamSource(stream).connect(analyser);
      globalThis.loudest = new Promise((resolve) => {
        const samples = new Float32Array(analyser.fftSize);
        const look = () => {
          analyser.getFloatTimeDomainData(samples);
          const peak = Math.max(...samples);
          if (peak > 0.1) resolve(); else setTimeout(look, 10);
        };
        look();
      });
      return stream.getTracks().map(({kind, label}) => `${kind}: ${label}`);
    });
"""
"""Asks for a tab's sound, and waits until there is some.

No frames are drawn meanwhile: Chromium brings the shared tab to the front, so that the page is hidden.
"""


async def test_a_page_gets_the_sound_of_another_tab(page_server: FakeServer, tmp_path: Path) -> None:
    """The track is that of the tab, and sound comes from it when the tab plays."""
    seconds = np.arange(30 * SAMPLE_RATE) / SAMPLE_RATE
    tone = (0.5 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32)
    async with open_page(tmp_path / "profile", None, SHARE_FLAGS) as page:
        await page.open(page_server.url)
        tab = await SpeakingTab.open(page, tone)
        await page.evaluate(f"addEventListener('click', () => {{ {LOUDEST} }}, {{once: true}})")
        await page.click("#transcript")
        tracks = await page.evaluate("shared")
        assert "audio: Tab audio" in tracks
        playing = asyncio.create_task(tab.play())
        await page.evaluate("loudest")
        playing.cancel()
        assert page.errors == []
