"""The captions page in a real browser, with a file as its microphone and a scripted server."""

import asyncio
from pathlib import Path

import pytest

from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_server import (
    ENGLISH,
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


async def state(page: Page) -> str:
    return str(await page.evaluate("document.body.dataset.state"))


async def finals(page: Page) -> list[str]:
    """The text of the final lines, without their times."""
    texts: list[str] = await page.evaluate(
        "[...document.querySelectorAll('#finals .text')].map((line) => line.textContent)"
    )
    return texts


async def test_captions_from_start_to_stop(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, tmp_path: Path
) -> None:
    """Text is first lighter, then solid, then a final line with its time; Stop waits for the last finals."""
    page_server.script = [
        Step(0.3, [speech_started(), interim("Hello", " everyone and")]),
    ]
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent === ' everyone and'")
        assert await page.evaluate("document.querySelector('#live .solid').textContent") == "Hello"
        assert await page.evaluate("document.querySelector('#toggle').innerText") == "Stop"
        await page.screenshot(tmp_path / "live.png")

        await page_server.send(*final("Hello everyone."))
        await page.wait_for("document.querySelector('#finals .line')")
        assert await finals(page) == ["Hello everyone."]
        assert await page.evaluate("document.querySelector('#finals time').textContent") == "0:00"
        assert await page.evaluate("document.querySelector('#live').childElementCount") == 0

        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        await page.screenshot(tmp_path / "done.png")
        assert page.errors == []

    (start,) = page_server.starts
    assert start["audio"]["encoding"] == "pcm_s16le"
    assert 8000 <= start["audio"]["sample_rate"] <= 48_000
    assert start["language"] is None
    assert page_server.stopped.is_set()
    # The server receives nearly all of the tone: there is no silence between the chunks.
    assert page_server.loud_s > 0.8 * page_server.n_bytes / 2 / start["audio"]["sample_rate"] > 0.2


async def test_a_second_session_continues_the_times(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow
) -> None:
    """Starting again keeps the transcript, and the new session begins at its end."""
    page_server.script = [Step(0.1, final("One."))]
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        for n_lines in (1, 2):
            await page.click("#toggle")
            await page.wait_for(f"document.querySelectorAll('#finals .line').length === {n_lines}")
            await page.click("#toggle")
            await page.wait_for("document.body.dataset.state === 'done'")
        await page.click("#save")
        await page.click("#clear")
        assert await finals(page) == []
        assert await state(page) == "idle"
        assert page.errors == []
    first, second = page_server.starts
    assert "resume" not in first
    assert second["resume"]["from_s"] > 0.1


async def test_a_lost_connection_is_reported_and_can_be_restarted(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, tmp_path: Path
) -> None:
    """Stable text is kept, the tail is removed, and the button shows Restart."""
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
        await page_server.close(1008)
        await page.wait_for("document.body.dataset.state === 'lost'")
        assert "was lost" in await page.evaluate("document.querySelector('#message').innerText")
        assert await page.evaluate("document.querySelector('#toggle').innerText") == "Restart"
        assert await finals(page) == ["Hello"]
        await page.screenshot(tmp_path / "lost.png")

        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'live'")
        assert await page.evaluate("document.querySelector('#message').hidden")
        assert page.errors == []


@pytest.mark.nightly
async def test_a_restart_of_the_server_stops_nothing(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow
) -> None:
    """The page shows that it reconnects, and continues by itself; the text that it has shown stays and goes on."""
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.evaluate("""globalThis.statuses = new Set();
            new MutationObserver(() => statuses.add(document.querySelector('#status').innerText))
                .observe(document.querySelector('#status'), {childList: true})""")
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
        page_server.script = [Step(0.1, [speech_started(), interim("Hello everyone", " and")])]
        await page_server.close(1012)
        await page.wait_for("document.querySelector('#live .solid')?.textContent === 'Hello everyone'")
        assert await page.evaluate("statuses.has('Reconnecting…')")
        assert await status(page) == "Listening"
        assert await page.evaluate("document.querySelector('#message').hidden")

        await page_server.send(*final("Hello everyone and welcome."))
        await page.wait_for("document.querySelector('#finals .line')")
        assert await finals(page) == ["Hello everyone and welcome."]
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        assert page.errors == []
    assert [start.get("resume") for start in page_server.starts] == [None, {"from_s": 0}]


async def test_a_server_with_keys_asks_for_one(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, tmp_path: Path
) -> None:
    """When a key is missing, the page shows a field for it; the right key opens the session."""
    page_server.api_key = "s3cret"
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("!document.querySelector('#key-form').hidden")
        assert "needs an API key" in await page.evaluate("document.querySelector('#message').innerText")
        await page.screenshot(tmp_path / "key.png")

        await page.type_text("wrong")
        await page.press_enter()
        await page.wait_for("document.querySelector('#message').innerText.includes('does not accept')")

        await page.evaluate("document.querySelector('#key').value = ''")
        await page.type_text("s3cret")
        await page.press_enter()
        await page.wait_for("document.body.dataset.state === 'live'")
        assert await page.evaluate("document.querySelector('#key-form').hidden")
        assert page.errors == []


async def test_a_refused_microphone_is_explained(page_server: FakeServer, open_window: OpenWindow) -> None:
    """Without permission no session is opened, and the page tells the user what to do."""
    async with open_window(None) as page:
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'failed'")
        assert "microphone is blocked" in await page.evaluate("document.querySelector('#message').innerText")
        assert page.errors == []
    assert page_server.starts == []


async def test_the_reader_may_scroll_up(page_server: FakeServer, microphone: Path, open_window: OpenWindow) -> None:
    """The transcript follows the newest text until the reader scrolls up; a button goes back to it."""
    page_server.script = [
        Step(0.1, [event for n in range(40) for event in final(f"Line {n}.", utterance=n, start_s=float(n))]),
    ]
    is_at_end = "(t => t.scrollHeight - t.scrollTop - t.clientHeight < 2)(document.querySelector('#transcript'))"
    async with open_window(microphone) as page:
        await page.show_as(800, 600)
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.querySelectorAll('#finals .line').length === 40")
        await page.drawn()
        assert await page.evaluate(is_at_end)

        await page.evaluate("document.querySelector('#transcript').scrollTop = 100")
        await page.wait_for("!document.querySelector('#latest').hidden")
        await page_server.send(*final("Meanwhile.", utterance=40))
        await page.wait_for("document.querySelectorAll('#finals .line').length === 41")
        await page.drawn()
        assert await page.evaluate("document.querySelector('#transcript').scrollTop") == 100

        await page.click("#latest")
        assert await page.evaluate(is_at_end)
        assert page.errors == []


async def test_a_shorter_tail_moves_nothing(page_server: FakeServer, microphone: Path, open_window: OpenWindow) -> None:
    """The space of an open line only grows."""
    page_server.script = [Step(0.1, [speech_started(), interim("So", " it goes" * 30)])]
    height = "document.querySelector('#live').getBoundingClientRect().height"
    async with open_window(microphone) as page:
        await page.show_as(390, 800)
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent.length > 100")
        before = await page.evaluate(height)
        await page_server.send(interim("So", " it"))
        await page.wait_for("document.querySelector('#live .tail').textContent === ' it'")
        assert await page.evaluate(height) == before
        assert page.errors == []


async def languages(page: Page) -> list[str]:
    labels: list[str] = await page.evaluate("[...document.querySelector('#language').options].map((o) => o.label)")
    return labels


async def test_the_page_offers_the_languages_of_the_model(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow
) -> None:
    """The model's languages by name, after the choice to detect them. No language is sent then."""
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.wait_for("document.querySelector('#model').innerText")
        assert await page.evaluate("document.querySelector('#model').innerText") == "openai/whisper-small · 3 languages"
        assert await languages(page) == ["Detect language", "Arabic", "English", "German"]
        assert await page.evaluate("document.querySelector('#language').selectedOptions[0].label") == "Detect language"
        for chosen in ("de", ""):
            await page.evaluate(f"document.querySelector('#language').value = '{chosen}'")
            await page.click("#toggle")
            await page.wait_for("document.body.dataset.state === 'live'")
            await page.click("#toggle")
            await page.wait_for("document.body.dataset.state === 'done'")
        assert page.errors == []
    assert [start["language"] for start in page_server.starts] == ["de", None]


async def test_languages_have_their_names_in_the_language_of_the_user(
    page_server: FakeServer, open_window: OpenWindow
) -> None:
    """As far as the browser knows them; the server names the others."""
    codes = {"en": "English", "pt": "Portuguese", "zz": "Zedish"}
    page_server.model = MODEL | {"languages": [{"code": code, "name": name} for code, name in codes.items()]}
    async with open_window(None) as page:
        await page.command("Emulation.setLocaleOverride", locale="es")
        await page.open(page_server.url)
        await page.wait_for("document.querySelector('#model').innerText")
        assert await languages(page) == ["Detect language", "Inglés", "Portugués", "Zedish"]
        assert page.errors == []


HEADINGS_AND_LINES = "[...document.querySelectorAll('#finals .spoken, #finals .solid')].map((each) => each.textContent)"


@pytest.mark.parametrize("chosen", ["", pytest.param("en", marks=pytest.mark.nightly)])
async def test_a_detected_language_is_named_above_its_lines(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, tmp_path: Path, chosen: str
) -> None:
    """Once, until another one is spoken; after a reload, too. A language that the user chose needs no name."""
    german = [event | {"language": "de"} for event in final("Guten Tag.", 2, 4.0)]
    page_server.script = [Step(0.1, [*final("Good morning."), *final("Hello.", 1, 2.0), *german])]
    shown = [*([] if chosen else ["English"]), "Good morning.", "Hello.", "German", "Guten Tag."]
    async with open_window(microphone) as page:
        await page.open(page_server.url)
        await page.evaluate(f"localStorage.setItem('tutti.settings', JSON.stringify({{ language: '{chosen}' }}))")
        await page.open(page_server.url)
        await page.wait_for("document.querySelector('#model').innerText")
        await page.click("#toggle")
        await page.wait_for("document.querySelectorAll('#finals .line').length === 3")
        assert await page.evaluate(HEADINGS_AND_LINES) == shown
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        await page.screenshot(tmp_path / "spoken.png")
        await page.open(page_server.url)
        await page.wait_for("document.querySelectorAll('#finals .line').length === 3")
        assert await page.evaluate(HEADINGS_AND_LINES) == shown
        assert page.errors == []


async def test_the_page_says_what_the_model_can_hear(page_server: FakeServer, open_window: OpenWindow) -> None:
    """A model for English offers English alone."""
    models: list[tuple[Message | None, str]] = [
        (ENGLISH_MODEL, "a.en · English only"),
        (None, "The model is not known"),
    ]
    async with open_window(None) as page:
        await page.show_as(390, 780)
        for page_server.model, shown in models:
            await page.open(page_server.url)
            await page.wait_for("document.querySelector('#model').innerText")
            assert await page.evaluate("document.querySelector('#model').innerText") == shown
            assert await languages(page) == [ENGLISH["name"] if page_server.model else "Detect language"]
            for part in ("#model", "#transcript"):
                assert await page.evaluate(f"(e => e.scrollWidth <= e.clientWidth)(document.querySelector('{part}'))")
        assert page.errors == []


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


async def status(page: Page) -> str:
    return str(await page.evaluate("document.querySelector('#status').innerText"))


@pytest.mark.nightly
async def test_a_suspended_microphone_is_shown_at_once(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, tmp_path: Path
) -> None:
    """What was spoken becomes final, the page says what to do, and a click continues."""
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    async with open_window(microphone) as page:
        await page.command("Page.addScriptToEvaluateOnNewDocument", source=CAPTURE)
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
        # The browser that suspends does not let the page resume before the user touches it.
        await page.evaluate("context.resume = () => new Promise(() => {}); context.suspend()")
        await page.wait_for("document.querySelector('#status').innerText === 'Microphone paused'")
        assert "Tap or click" in await page.evaluate("document.querySelector('#message').innerText")
        async with asyncio.timeout(30):
            await page_server.flushed.wait()
        await page.screenshot(tmp_path / "suspended.png")

        await page.evaluate("delete context.resume")
        await page.click("#finals")
        await page.wait_for("document.querySelector('#status').innerText === 'Listening'")
        assert await page.evaluate("document.querySelector('#message').hidden")
        assert await state(page) == "live"
        assert page.errors == []


async def test_a_muted_microphone_is_shown_at_once(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow
) -> None:
    """Until it is not muted any more. Stop while it is muted leaves no message behind."""
    async with open_window(microphone) as page:
        await page.command("Page.addScriptToEvaluateOnNewDocument", source=CAPTURE)
        await page.open(page_server.url)
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'live'")
        for value, event, shown in (
            ("true", "mute", "Microphone muted"),
            ("false", "unmute", "Listening"),
            ("true", "mute", "Microphone muted"),
        ):
            await page.evaluate(f"Object.defineProperty(track, 'muted', {{value: {value}, configurable: true}})")
            await page.evaluate(f"track.dispatchEvent(new Event('{event}'))")
            assert await status(page) == shown
            assert await page.evaluate("document.querySelector('#message').hidden") == (shown == "Listening")
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        await page.wait_for("document.querySelector('#message').hidden")
        assert page.errors == []
