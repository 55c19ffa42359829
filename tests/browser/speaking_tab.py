"""Another tab of Chromium with sound, which the page gets when it asks for the audio of a tab.

Chromium chooses it by its title, without a question: open the browser with `microphone=None` and `flags=SHARE_FLAGS`. A
fake microphone would take the place of the shared sound too.
"""

import base64

import numpy as np

from tests.browser.chromium import Page
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

TITLE = "A tab that speaks"
SHARE_FLAGS = (f"--auto-select-tab-capture-source-by-title={TITLE}", "--autoplay-policy=no-user-gesture-required")
PREPARE = """(async () => {
    document.title = "%(title)s";
    const bytes = Uint8Array.from(atob("%(pcm)s"), (character) => character.charCodeAt(0));
    const pcm = new Int16Array(bytes.buffer);
    globalThis.context = new AudioContext();
    globalThis.buffer = context.createBuffer(1, pcm.length, %(rate)d);
    buffer.copyToChannel(Float32Array.from(pcm, (sample) => sample / 32767), 0);
    await context.resume();
})()"""
PLAY = """new Promise((resolve) => {
    const source = new AudioBufferSourceNode(context, {buffer});
    source.connect(context.destination);
    source.onended = resolve;
    source.start();
})"""
TIMEOUT_S = 60


class SpeakingTab:
    """A tab that plays a recording of up to a minute."""

    def __init__(self, tab: Page) -> None:
        self._tab = tab

    @classmethod
    async def open(cls, page: Page, samples: Samples) -> "SpeakingTab":
        """Open the tab beside the page. It is silent until `play`."""
        tab = await page.open_tab()
        pcm = base64.b64encode(np.round(samples * 32767).astype("<i2").tobytes()).decode()
        await tab.evaluate(PREPARE % {"title": TITLE, "pcm": pcm, "rate": SAMPLE_RATE})
        return cls(tab)

    async def play(self) -> None:
        """Play the recording to its end."""
        await self._tab.evaluate(PLAY, TIMEOUT_S)
