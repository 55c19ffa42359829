"""A microphone for tests that compare words: a recording, of which the page receives every sample exactly once.

A browser's own fake microphone plays a file by the clock and loses samples on a busy machine. Here the page's audio
context plays the recording in the place of the microphone: a late context plays later, and loses nothing.
"""

import base64

import numpy as np

from tests.browser.page import BrowserPage
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

PROBE_S = 0.05
"""Seconds between two looks at the position in the recording, which no event reports."""
PIECE_SAMPLES = 30 * SAMPLE_RATE
"""Samples that go to the browser in one message; it refuses long ones."""
SCRIPT = """
    globalThis.recording = [];
    const RealContext = AudioContext;
    globalThis.AudioContext = class extends RealContext {
      constructor() { super({sampleRate: %(rate)d}); }
      createMediaStreamSource() {
        const bytes = Uint8Array.from(recording.map(atob).join(""), (character) => character.charCodeAt(0));
        const pcm = new Int16Array(bytes.buffer);
        const buffer = this.createBuffer(1, pcm.length, %(rate)d);
        buffer.copyToChannel(Float32Array.from(pcm, (sample) => sample / 32767), 0);
        const source = new AudioBufferSourceNode(this, {buffer});
        source.onended = () => document.body.setAttribute("data-microphone", "ended");
        // On a busy machine the browser may end the real microphone; the page then opens it again.
        const beforeS = globalThis.playedS?.() ?? 0;
        source.start(0, beforeS);
        const beganS = this.currentTime - beforeS;
        globalThis.playedS = () => this.currentTime - beganS;
        return source;
      }
    };
"""
"""Runs before the page."""
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


FIXED_SILENCE = """
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
      const message = typeof data === "string" ? JSON.parse(data) : {};
      if (message.type === "start") {
        message.endpointing = {...message.endpointing, mode: "vad"};
        return send.call(this, JSON.stringify(message));
      }
      return send.call(this, data);
    };
"""
"""Runs before the page."""


async def play(page: BrowserPage, samples: Samples) -> None:
    """Let the page's microphone be this recording, from its start. Call it before `page.open`.

    At its end the document gets the attribute `data-microphone="ended"`.
    """
    await page.run_before(SCRIPT % {"rate": SAMPLE_RATE})
    pcm = np.round(samples * 32767).astype("<i2")
    for start in range(0, len(pcm), PIECE_SAMPLES):
        piece = base64.b64encode(pcm[start : start + PIECE_SAMPLES].tobytes()).decode()
        await page.run_before(f'recording.push("{piece}")')


async def use_fixed_silence(page: BrowserPage) -> None:
    """Let every session of the page use mode `vad`, so that no utterance ends sooner or later with a slow engine.

    Call it before `page.open`.
    """
    await page.run_before(FIXED_SILENCE)


async def watch(page: BrowserPage) -> None:
    """Watch from now on whether text that the page shows as solid changes."""
    await page.evaluate(WATCH)


async def wait_until_played(page: BrowserPage, time_s: float, timeout_s: float) -> None:
    """Wait until the microphone has played this much of its recording, in seconds."""
    await page.evaluate(
        f"""new Promise((resolve) => {{
            const check = () => {{
                const leftS = {time_s} - globalThis.playedS?.();
                if (leftS <= 0) resolve();
                // Not a number before the microphone is open.
                else setTimeout(check, 1000 * Math.max(leftS || 0, {PROBE_S}));
            }};
            check();
        }})""",
        timeout_s,
    )
