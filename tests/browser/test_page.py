"""The captions page in a real browser, with a file as its microphone and a scripted server."""

import asyncio

import pytest

from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_server import (
    ENGLISH_MODEL,
    MODEL,
    FakeServer,
    Message,
    Step,
    final,
    interim,
    speech_started,
)

pytestmark = pytest.mark.browser

CAPTURE = """
    const RealContext = AudioContext;
    globalThis.AudioContext = class extends RealContext {
      constructor(...options) { super(...options); globalThis.context = this; }
    };
    const getUserMedia = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (constraints) => {
      const stream = await getUserMedia(constraints);
      globalThis.track = stream.getAudioTracks()[0];
      return stream;
    };
"""
"""Runs before the page, so that a test reaches its audio context and its track."""
LINES = "[...document.querySelectorAll('#finals .text')].map((line) => line.textContent)"
"""The text of the final lines, without their times."""


async def state(page: Page, expected: str) -> None:
    await page.wait_for(f"document.body.dataset.state === '{expected}'")


async def press_start(page: Page, server: FakeServer) -> None:
    """Open the page, and press Start."""
    await page.open(server.url)
    await page.click("#toggle")


async def press_stop(page: Page) -> None:
    """Press Stop, and wait for the last finals."""
    await page.click("#toggle")
    await state(page, "done")


async def message(page: Page) -> str:
    return str(await page.evaluate("document.querySelector('#message').innerText"))


async def status(page: Page, expected: str) -> None:
    await page.wait_for(f"document.querySelector('#status').innerText === '{expected}'")


async def test_captions_from_start_to_stop(page_server: FakeServer, page: Page) -> None:
    """Text is first lighter, then solid, then a final line with its time; Stop waits for the last finals.

    Starting again keeps the transcript. The new session begins at its end, in the language that was chosen meanwhile.
    """
    page_server.script = [Step(0.3, [speech_started(), interim("Hello", " everyone and")])]
    await page.open(page_server.url)
    await page.wait_for("document.querySelector('#model').innerText")
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' everyone and'")
    assert await page.evaluate("document.querySelector('#live .solid').textContent") == "Hello"
    assert await page.evaluate("document.querySelector('#toggle').innerText") == "Stop"

    await page_server.send(*final("Hello everyone."))
    await page.wait_for("document.querySelector('#finals .line')")
    assert await page.evaluate(LINES) == ["Hello everyone."]
    assert await page.evaluate("document.querySelector('#finals time').textContent") == "0:00"
    assert await page.evaluate("document.querySelector('#live').childElementCount") == 0
    await press_stop(page)
    assert page_server.stopped.is_set()
    rate = page_server.starts[0]["audio"]["sample_rate"]
    # The server receives nearly all of the tone: there is no silence between the chunks.
    assert page_server.loud_s > 0.8 * page_server.n_bytes / 2 / rate > 0.2

    page_server.script = [Step(0.1, final("Und weiter."))]
    await page.evaluate("document.querySelector('#language').value = 'de'")
    await page.click("#toggle")
    await page.wait_for("document.querySelectorAll('#finals .line').length === 2")
    await press_stop(page)

    first, second = page_server.starts
    assert first["audio"]["encoding"] == "pcm_s16le" and 8000 <= rate <= 48_000
    assert [first["language"], second["language"]] == [None, "de"]
    assert "resume" not in first and second["resume"]["from_s"] > 0.1


async def test_new_text_moves_nothing(page_server: FakeServer, page: Page) -> None:
    """The space of an open line only grows. The transcript follows the newest text until the reader scrolls up.

    A button leads back to it.
    """
    page_server.script = [Step(0.1, [speech_started(), interim("So", " it goes" * 30)])]
    height = "document.querySelector('#live').getBoundingClientRect().height"
    is_at_end = "(t => t.scrollHeight - t.scrollTop - t.clientHeight < 2)(document.querySelector('#transcript'))"
    await page.show_as(390, 800)
    await press_start(page, page_server)
    await page.wait_for("document.querySelector('#live .tail')?.textContent.length > 100")
    before = await page.evaluate(height)
    await page_server.send(interim("So", " it"))
    await page.wait_for("document.querySelector('#live .tail').textContent === ' it'")
    assert await page.evaluate(height) == before

    lines = [event for n in range(40) for event in final(f"Line {n}.", utterance=n, start_s=float(n))]
    await page_server.send(*lines)
    await page.wait_for("document.querySelectorAll('#finals .line').length === 40")
    await page.drawn()
    assert await page.evaluate(is_at_end)
    # Also by less than a line.
    scrolled = await page.evaluate("document.querySelector('#transcript').scrollTop -= 10")
    await page.wait_for("!document.querySelector('#latest').hidden")
    await page_server.send(*final("Meanwhile.", utterance=40))
    await page.wait_for("document.querySelectorAll('#finals .line').length === 41")
    await page.drawn()
    assert await page.evaluate("document.querySelector('#transcript').scrollTop") == scrolled
    await page.click("#latest")
    assert await page.evaluate(is_at_end)
    # The button is gone, and the keyboard goes on from the text.
    assert await page.evaluate("document.activeElement.id") == "transcript"


async def test_the_page_says_what_the_model_can_hear(page_server: FakeServer, open_window: OpenWindow) -> None:
    """Languages have their names in the language of the user, as far as the browser knows them.

    Without permission for the microphone no session is opened, and the page says what to do.
    """
    codes = {"en": "English", "pt": "Portuguese", "zz": "Zedish"}
    several = MODEL | {"languages": [{"code": code, "name": name} for code, name in codes.items()]}
    models: list[tuple[Message | None, str, list[str]]] = [
        (several, "openai/whisper-small · 3 languages", ["Detect language", "Inglés", "Portugués", "Zedish"]),
        (ENGLISH_MODEL, "a.en · Inglés only", ["Inglés"]),
        (None, "The model is not known", ["Detect language"]),
    ]
    async with open_window(None) as page:
        await page.show_as(390, 780)
        await page.command("Emulation.setLocaleOverride", locale="es")
        for page_server.model, shown, languages in models:
            await page.open(page_server.url)
            await page.wait_for("document.querySelector('#model').innerText")
            assert await page.evaluate("document.querySelector('#model').innerText") == shown
            offered = "[...document.querySelector('#language').options].map((option) => option.label)"
            assert await page.evaluate(offered) == languages
            assert await page.evaluate("document.querySelector('#language').selectedIndex") == 0
            for part in ("#model", "#transcript"):
                assert await page.evaluate(f"(e => e.scrollWidth <= e.clientWidth)(document.querySelector('{part}'))")
        await page.click("#toggle")
        await state(page, "failed")
        assert "microphone is blocked" in await message(page)
        assert page.errors == []
    assert page_server.starts == []


async def test_a_microphone_that_gives_no_sound_is_shown_at_once(page_server: FakeServer, page: Page) -> None:
    """Muted: until it is not muted any more. Suspended: what was spoken becomes final, and a click continues.

    Stop while it is muted leaves no message behind.
    """
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    await page.run_before(CAPTURE)
    await press_start(page, page_server)
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
    # The browser that suspends does not let the page resume before the user touches it.
    await page.evaluate("context.resume = () => new Promise(() => {}); context.suspend()")
    await status(page, "Microphone paused")
    assert "Tap or click" in await message(page)
    async with asyncio.timeout(30):
        await page_server.flushed.wait()
    await page.evaluate("delete context.resume")
    await page.click("#transcript")
    await status(page, "Listening")
    assert await page.evaluate("document.querySelector('#message').hidden")

    for value, event, shown in (
        ("true", "mute", "Microphone muted"),
        ("false", "unmute", "Listening"),
        ("true", "mute", "Microphone muted"),
    ):
        await page.evaluate(f"Object.defineProperty(track, 'muted', {{value: {value}, configurable: true}})")
        await page.evaluate(f"track.dispatchEvent(new Event('{event}'))")
        await status(page, shown)
        assert await page.evaluate("document.querySelector('#message').hidden") == (shown == "Listening")
    await press_stop(page)
    await page.wait_for("document.querySelector('#message').hidden")
