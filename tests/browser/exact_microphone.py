"""A microphone for tests that compare words: a recording, of which the page receives every sample exactly once.

Chromium's own fake microphone plays a file by the clock and loses samples on a busy machine. Here the page's audio
context plays the recording in the place of the microphone: a late context plays later, and loses nothing.
"""

import base64

import numpy as np

from app.media.pcm import Samples
from engine.api import SAMPLE_RATE
from tests.browser.chromium import Page

SCRIPT = """
    const RealContext = AudioContext;
    globalThis.AudioContext = class extends RealContext {
      constructor() { super({sampleRate: %(rate)d}); }
      createMediaStreamSource() {
        const bytes = Uint8Array.from(atob("%(pcm)s"), (character) => character.charCodeAt(0));
        const pcm = new Int16Array(bytes.buffer);
        const buffer = this.createBuffer(1, pcm.length, %(rate)d);
        buffer.copyToChannel(Float32Array.from(pcm, (sample) => sample / 32767), 0);
        const source = new AudioBufferSourceNode(this, {buffer});
        source.onended = () => document.body.setAttribute("data-microphone", "ended");
        source.start();
        return source;
      }
    };
"""
WATCH = """
    globalThis.changes = [];
    const shown = new Map();
    new MutationObserver(() => {
      const lines = new Map([...document.querySelectorAll('#finals .line, #live .line')].map(
        (line) => [line.dataset.utterance, line.querySelector('.solid').textContent.trim()]));
      for (const [utterance, before] of shown) {
        const now = lines.get(utterance);
        if (before !== "" && !now?.startsWith(before)) {
          changes.push(`${utterance}: ${before} became ${now}`);
        }
      }
      lines.forEach((text, utterance) => shown.set(utterance, text));
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
"""
"""Watches the lines of the page: `changes` lists each change of solid text that is not more text at its end."""


async def play(page: Page, samples: Samples) -> None:
    """Let the page's microphone be this recording, from its start. Call it before `page.open`.

    At its end the document gets the attribute `data-microphone="ended"`.
    """
    pcm = base64.b64encode(np.round(samples * 32767).astype("<i2").tobytes()).decode()
    await page.command("Page.addScriptToEvaluateOnNewDocument", source=SCRIPT % {"rate": SAMPLE_RATE, "pcm": pcm})


async def watch(page: Page) -> None:
    """Watch from now on whether text that the page shows as solid changes."""
    await page.evaluate(WATCH)
