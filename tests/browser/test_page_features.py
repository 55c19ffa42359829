"""What the captions page offers beside captions, in a real browser with a scripted server.

Text that stays on the device, files, pauses, changed options, readers, translations, and a page that opens offline.
"""

import asyncio
import json
from pathlib import Path

import pytest

from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_calls import RECORD, FakeCalls, as_file, drop
from tests.browser.fake_server import (
    MODEL,
    FakeServer,
    Message,
    Step,
    final,
    interim,
    serve,
    speech_started,
    translation,
)
from tests.browser.test_page import LINES, message, press_start, press_stop, state
from tutti_server.app.server.routes import STATIC

pytestmark = pytest.mark.browser

SPOKEN = "[...document.querySelectorAll('#finals .spoken')].map((heading) => heading.textContent)"
STORED = "Object.entries(localStorage).filter(([key]) => key !== 'tutti.settings').map(([, text]) => text).join()"


async def open_with(page: Page, server: FakeServer, settings: Message) -> None:
    """Open the page with these settings from an earlier visit, and wait until it knows the model."""
    await page.open(f"{server.url}/static/icon.svg")
    await page.evaluate(f"localStorage.setItem('tutti.settings', {json.dumps(json.dumps(settings))})")
    await page.open(server.url)
    await page.wait_for("document.querySelector('#model').innerText")


async def read_saved(page: Page, name: str) -> tuple[str, str]:
    """The name and the text of the file that a button of the sheet saves. `connect-src` forbids the page to read it."""
    await page.evaluate("""globalThis.saved = new Promise((resolve) => {
        const create = URL.createObjectURL;
        URL.createObjectURL = (blob) => { globalThis.blob = blob; return create(blob); };
        HTMLAnchorElement.prototype.click = function () { blob.text().then((text) => resolve([this.download, text])); };
    }); null""")
    await page.click("#save")
    await page.click(f"[data-format={name}]")
    file_name, text = await page.evaluate("saved")
    return file_name, text


async def check_that_nothing_is_kept(page: Page, url: str) -> None:
    """Once that is switched off, also of the text of other tabs."""
    # That of a closed tab: the next tab would show it.
    await page.evaluate("localStorage.setItem('tutti.entry.000000000-y.000000000', 'of before')")
    await page.evaluate(
        """new Promise((resolve) => {
        const remove = Storage.prototype.removeItem;
        Storage.prototype.removeItem = function (key) {
            remove.call(this, key);
            (key === 'tutti.open.000000000-y') && resolve();
        };
        document.querySelector('#keep').click();
    })""",
        5,
    )
    assert await page.evaluate(STORED) == ""

    # That of a tab which was open meanwhile, once it was shown.
    line = {"text": "Before.", "start_s": 0, "end_s": 1, "at": "2026-01-01T00:00:00Z", "segments": []}
    entry = json.dumps(json.dumps(line | {"kind": "line", "language": None, "translations": {}}))
    await page.evaluate(f"localStorage.setItem('tutti.entry.000000000-z.000000000', {entry})")
    # What the page cannot show does not keep it from starting.
    other = entry.replace("{}", "null")
    await page.evaluate(f"localStorage.setItem('tutti.entry.000000000-z.000000001', {other})")
    await page.evaluate("sessionStorage.clear()")
    await page.open(url)
    await page.evaluate("import('/static/page/keeper.js').then(({kept}) => kept)")
    assert await page.evaluate(LINES) == ["Before."]
    assert await page.evaluate(STORED) == ""


COPIED_TAB = """
    globalThis.asked = [];
    sessionStorage.setItem('tutti.tab', 'copied');
    localStorage.setItem('tutti.entry.copied.000000000', '{}');
    const request = navigator.locks.request.bind(navigator.locks);
    navigator.locks.request = (name, options, callback) => {
        asked.push(name);
        return name === 'tutti.transcript.copied' ? Promise.resolve(callback(null)) : request(name, options, callback);
    };
"""
"""The tab has the id of another one, which is open."""


async def check_that_a_copy_of_a_tab_waits_once(page: Page, url: str) -> None:
    """For the transcript of the tab that it was made of: each time takes two seconds."""
    await page.run_before(COPIED_TAB)
    await page.open(url)
    await page.evaluate("import('/static/page/keeper.js').then(({kept}) => kept)")
    assert (await page.evaluate("asked")).count("tutti.transcript.copied") == 1


async def test_text_stays_on_the_device_until_it_is_cleared(page_server: FakeServer, page: Page) -> None:
    """A reload in the middle of a sentence loses no word. What is cleared by mistake comes back, and then is gone.

    A language that was detected is named above its lines, until another one is spoken.
    """
    german = [event | {"language": "de"} for event in final("Guten Tag.")]
    open_line = [speech_started(2), interim("Hello", " every", 2)]
    page_server.script = [Step(0.1, [*german, *final("Good morning.", 1, 2.0), *open_line])]
    shown = ["Guten Tag.", "Good morning.", "Hello every"]
    await page.open(page_server.url)
    await page.wait_for("document.querySelector('#model').innerText")
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
    assert await page.evaluate(SPOKEN) == ["German", "English"]
    await page.open(page_server.url)
    await page.wait_for("document.querySelectorAll('#finals .line').length === 3")
    assert await page.evaluate(LINES) == shown
    assert await page.evaluate(SPOKEN) == ["German", "English"]
    assert await page.evaluate("document.querySelector('#finals .line:last-child .text').className") == "text cut"

    file_name, srt = await read_saved(page, "srt")
    assert file_name.startswith("captions-") and file_name.endswith(".srt")
    assert srt.startswith("1\n00:00:00,200 --> 00:00:01,100\nGuten Tag.\n\n2\n")
    await clear(page)
    assert await page.evaluate(LINES) == []
    await page.click("#undo")
    assert await page.evaluate(LINES) == shown
    await clear(page)
    assert "Hello" not in await page.evaluate(STORED)
    await page.open(page_server.url)
    await page.evaluate("import('/static/page/keeper.js').then(({kept}) => kept)")
    assert await page.evaluate(LINES) == []

    # The text of an old tab fills the device: it gives way, and the page says so.
    await page.evaluate("localStorage.setItem('tutti.entry.000000000-x.000000000', 'x'.repeat(3_000_000))")
    await press_start(page, page_server)
    await page.wait_for("document.querySelector('#finals .line')")
    assert "keeps no more text" in await message(page)
    assert await page.evaluate("localStorage.getItem('tutti.entry.000000000-x.000000000')") is None
    assert "Good morning." in await page.evaluate(STORED)

    # A setting of another tab stays when this one keeps another.
    other = "localStorage.setItem('tutti.settings', JSON.stringify({...%s, keep: false}))"
    kept = "JSON.parse(localStorage.getItem('tutti.settings'))"
    await page.evaluate("document.activeElement.blur()")
    await press(page, "+")
    await page.evaluate(other % kept)
    await press(page, "+")
    assert await page.evaluate(f"[{kept}.size, {kept}.keep]") == [150, False]

    await check_that_nothing_is_kept(page, page_server.url)
    await check_that_a_copy_of_a_tab_waits_once(page, page_server.url)


WITHOUT_SPACES = [
    {"start_s": 0, "end_s": 28, "text": text}
    for text in (
        "今天我们要讨论的是语音识别技术的最新进展" * 8,
        "彼は「はい。」と言った。" * 14,
        "วันนี้เราจะพูดถึงเทคโนโลยี" * 7,
        "a" * 200,
        "." * 200,
    )
]
"""Segments that are too long for a subtitle, in which no space says where to cut."""


async def test_the_transcript_in_every_format(page_server: FakeServer, page: Page) -> None:
    """A click copies a line. A long segment, also one without spaces, becomes several subtitles that fill its time."""
    long = "This is a sentence with rather too many words to be read at once, and so it is cut between two words."
    page_server.script = [Step(0.1, [*final("Good morning."), *final(long, 1, 4.0)])]
    about = (await page.command("Target.getTargetInfo"))["targetInfo"]
    profile = about["browserContextId"]
    await page.command("Browser.grantPermissions", permissions=["clipboardReadWrite"], browserContextId=profile)
    await press_start(page, page_server)
    await page.wait_for("document.querySelectorAll('#finals .line').length === 2")
    await press_stop(page)
    await page.click("#finals .line:last-child .solid")
    await page.wait_for("document.querySelector('#toast-text').textContent === 'Line copied'")
    assert await page.evaluate("navigator.clipboard.readText()") == long
    await page.evaluate("document.querySelector('#transcript').focus()")
    for key, shift in (("ArrowUp", 0), ("ArrowUp", 0), ("Enter", 8)):
        await press(page, key, shift)
    await page.wait_for("document.querySelector('#toast-text').textContent.includes('with its time')")
    assert await page.evaluate("navigator.clipboard.readText()") == "[0:00] Good morning."

    assert (await read_saved(page, "txt"))[1] == f"[0:00] Good morning.\n[0:04] {long}\n"
    for segment in WITHOUT_SPACES:
        made = await page.evaluate(f"import('/static/page/cues.js').then(({{cut}}) => cut({json.dumps(segment)}))")
        pieces = [cue["text"] for cue in made]
        assert "".join(pieces) == segment["text"]
        assert len(pieces) > 1 and max(map(len, pieces)) <= 84
        assert not any(piece.startswith(("。", "」")) or piece.endswith("「") for piece in pieces)
        assert (made[0]["start_s"], made[-1]["end_s"]) == (0, pytest.approx(28))
    cues = (await read_saved(page, "vtt"))[1].split("\n\n")[1:-1]
    assert [cue.split("\n")[1] for cue in cues][1:] == [
        "This is a sentence with rather too many words to be",
        "read at once, and so it is cut between two words.",
    ]
    assert cues[1].startswith("00:00:04.000 --> ") and cues[2].split("\n")[0].endswith(" --> 00:00:04.900")
    _, text = await read_saved(page, "json")
    first, second = json.loads(text)["entries"]
    assert (first["text"], first["start_s"], first["segments"][0]["end_s"]) == ("Good morning.", 0.2, 1.1)
    assert second["language"] == "en"


async def press(page: Page, key: str, modifiers: int = 0) -> None:
    """Press and release a key; 8 is Shift."""
    text = {"text": key} if len(key) == 1 else {}
    codes = {"ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9}
    more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
    await page.command("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text, **more)
    await page.command("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, **more)


FILE = [
    {"type": "transcript.text.segment", "id": 0, "start": 0.5, "end": 1.25, "text": "From a file.", "utterance": 0}
    | {"avg_logprob": -0.1, "confidence": 0.9, "language": "en"},
    {"type": "transcript.text.done", "text": "From a file.", "duration": 6, "speech_duration": 2, "words": 3}
    | {"warnings": [{"code": "cut_off", "message": "the recording breaks off after 6 s of 9 s"}]},
]
DROP = """(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(5000)], "sermon.mp3"));
    for (const type of ["dragenter", "dragover", "drop"]) {
      document.querySelector("#empty").dispatchEvent(new DragEvent(type, {dataTransfer: transfer, bubbles: true}));
    }
})()"""


EMPTY_DROP = """document.body.dispatchEvent(
    Object.assign(new Event("drop", {bubbles: true}), {dataTransfer: {types: ["Files"], files: []}})
)"""


async def test_a_dropped_file_is_transcribed(page_server: FakeServer, open_window: OpenWindow, tmp_path: Path) -> None:
    """The upload has the languages and terms of the settings, and a key if the server asks for one; warnings are shown.

    What is no file is refused: programs may promise one and give none, and a folder looks like one.
    """
    page_server.file_events = FILE
    page_server.api_key = "s3cret"
    settings = {"language": "", "candidates": ["de", "en"], "hotwords": "Zwickau, HDMI, Zwickau"}
    async with open_window(None) as page:
        await open_with(page, page_server, settings)
        await page.evaluate(EMPTY_DROP)
        assert await message(page) == "Expected one file at a time, got 0."
        folder = {"items": [], "files": [str(tmp_path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            await page.command("Input.dispatchDragEvent", type=kind, x=200, y=200, data=folder)
        await state(page, "failed")
        assert await message(page) == f"Cannot read {tmp_path.name}."
        await page.evaluate(DROP)
        await page.wait_for("!document.querySelector('#key-form').hidden")
        await page.type_text("s3cret")
        await page.press_enter()
        await state(page, "done")
        assert await page.evaluate(LINES) == ["sermon.mp3", "From a file."]
        assert await page.evaluate("document.querySelector('#elapsed').textContent") == "0:06"
        assert await page.evaluate("document.querySelector('#progress').hidden")
        assert await page.evaluate("document.querySelector('#message').textContent") == (
            "The recording breaks off after 6 s of 9 s."
        )
        assert page.errors == []
    (form,) = page_server.uploads
    assert ("file", 5000) in form
    assert [value for name, value in form if name == "keywords"] == ["Zwickau", "HDMI"]
    assert [value for name, value in form if name == "languages"] == ["de", "en"]


CHANGE_LANGUAGE = """(() => {
    const language = document.querySelector('#language');
    language.value = '%s';
    language.dispatchEvent(new Event('change'));
})()"""


CHANGE_AS_IT_OPENS = """
    globalThis.WebSocket = class extends WebSocket {
        constructor(...address) {
            super(...address);
            globalThis.WebSocket = Object.getPrototypeOf(this.constructor);
            this.addEventListener("open", () => %s);
        }
    };
"""
"""Makes a change when the next session connects."""
WAITING_AUDIO = """import('/static/page/feed.js').then(({Feed}) => {
    const feed = new Feed(16_000, 5, () => {});
    const session = () => ({isOpen: true, n: 0, send(samples) { this.n += samples.length; }});
    const [before, after] = [session(), session()];
    feed.attach(before);
    feed.push(new Int16Array(1600));
    feed.detach();
    Array.from({length: 20}, () => feed.push(new Int16Array(1600)));
    feed.isPaused = true;
    feed.push(new Int16Array(1600));
    feed.attach(after);
    return [before.n, after.n, feed.sentS];
})"""
"""Two seconds wait for the next session when a pause begins: how much each session gets, and the time after that."""


async def test_a_pause_and_another_language_lose_no_sound(page_server: FakeServer, page: Page) -> None:
    """In a pause nothing is sent. The session with the new language begins at the sample after the last one."""
    page_server.script = [Step(0.1, [*final("One.")])]
    await press_start(page, page_server)
    await page.wait_for("document.querySelector('#finals .line')")
    await page.click("#pause")
    await state(page, "paused")
    async with asyncio.timeout(30):
        await page_server.flushed.wait()
    # The answer to this command comes after the last audio of before.
    await page.evaluate("fetch('/page/model').then((response) => response.json())")
    n_bytes = page_server.n_bytes
    elapsed = await page.evaluate("document.querySelector('#elapsed').textContent")
    await page.evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
    assert page_server.n_bytes == n_bytes
    assert await page.evaluate("document.querySelector('#elapsed').textContent") == elapsed
    await page.click("#pause")
    await state(page, "live")

    await page.evaluate(CHANGE_LANGUAGE % "de")
    await page.wait_for("document.querySelectorAll('#finals .line').length === 2")
    assert await page.evaluate("document.body.dataset.state") == "live"
    assert await page.evaluate(WAITING_AUDIO) == [1600, 32_000, pytest.approx(7.1)]
    # Pause comes before the next session is there: what has waited for that session becomes final in it.
    page_server.flushed.clear()
    await page.evaluate(f"{CHANGE_LANGUAGE % 'en'}; document.querySelector('#pause').click()")
    async with asyncio.timeout(30):
        await page_server.flushed.wait()
    assert await page.evaluate("document.body.dataset.state") == "paused"
    await page.click("#pause")
    await state(page, "live")
    # Stop comes before the next session is there: it gets the sound that has waited for it.
    await page.evaluate(f"{CHANGE_LANGUAGE % 'ar'}; document.querySelector('#toggle').click()")
    await state(page, "done")
    # The pause had the focus of the keyboard, and is gone.
    assert await page.evaluate("document.activeElement.id") == "toggle"
    # Another language is chosen while a session begins.
    await page.evaluate(CHANGE_AS_IT_OPENS % (CHANGE_LANGUAGE % "de"))
    await page.click("#toggle")
    await state(page, "live")
    await press_stop(page)
    assert [start["language"] for start in page_server.starts] == [None, "de", "en", "ar", "ar", "de"]
    for start, n_bytes in zip(page_server.starts[1:4], page_server.bytes_at_stop[:3], strict=True):
        assert start["resume"]["from_s"] == pytest.approx(n_bytes / 2 / start["audio"]["sample_rate"], abs=1e-9)


async def test_the_language_of_the_last_visit_is_heard_although_the_model_is_known_late(
    page_server: FakeServer, page: Page
) -> None:
    """A session that has begun without it is followed by one with it."""
    await open_with(page, page_server, {"language": "de"})
    await page.run_before("""
        const known = new Promise((resolve) => { globalThis.tell = resolve; });
        globalThis.fetch = ((now) => async (...asked) => {
            await (asked[0] === "/page/model" && known);
            return now(...asked);
        })(fetch);""")
    await press_start(page, page_server)
    await state(page, "live")
    await page.evaluate("tell()")
    await page.wait_for("document.querySelector('#language').value === 'de'")
    await press_stop(page)
    assert [start["language"] for start in page_server.starts] == [None, "de"]


async def test_an_option_that_changes_in_an_outage_waits_until_the_sound_of_it_is_sent(
    page_server: FakeServer, page: Page
) -> None:
    """Sending minutes again takes minutes. What would wait that long for the next session could be too much for it."""
    await press_start(page, page_server)
    await state(page, "live")
    await page.evaluate("""import("/static/tutti/session.js").then(({Session}) => {
        Session.prototype.writable = () => new Promise((resolve) => { globalThis.onSent = resolve; });
    })""")
    # The page says so when it has no connection.
    await page.evaluate(f"console.info = () => {{ {CHANGE_LANGUAGE % 'de'} }}")
    await page_server.close(1012)
    await page.wait_for("globalThis.onSent")
    assert [start["language"] for start in page_server.starts] == [None, None]
    assert not page_server.stopped.is_set()
    await page.evaluate("onSent()")
    await press_stop(page)
    assert [start["language"] for start in page_server.starts] == [None, None, "de"]


async def clear(page: Page) -> None:
    await page.click("#save")
    await page.click("#clear")


async def check_news_of_cleared_lines(page: Page, server: FakeServer) -> None:
    """What comes for a line that was cleared changes nothing. When the line comes back, it is there."""
    await clear(page)
    spans = [{"from_s": 0.0, "until_s": 1.1, "speaker": "C"}]
    news = [translation(" Willkommen.", 0, 1.1, 1.2), {"type": "speakers", "channel": 0, "spans": spans}]
    await server.send(*news, speech_started(1), interim("", "And", 1))
    await page.wait_for("document.querySelector('#live .tail')?.textContent === 'And'")
    assert await page.evaluate(LINES) == []
    assert "everyone" not in await page.evaluate(STORED)
    await page.click("#undo")
    assert await page.evaluate(LINES) == ["Hello", "C: Hello everyone."]
    translated = "document.querySelector('#finals .line:has(.translation)')?.innerText"
    assert "Hallo allerseits. Willkommen." in await page.evaluate(translated)

    # A line that was cleared and came back has another number.
    await clear(page)
    await server.send(*final("And you.", 1, 2.0))
    await page.wait_for("document.querySelector('#finals .line')")
    await clear(page)
    await page.click("#undo")
    await server.send(*final("And me.", 2, 3.0), translation("Und du.", 1, 2.0, 2.9))
    shown = await page.wait_for(translated)
    assert "And you." in shown and "Und du." in shown
    kept = await page.evaluate(STORED)
    assert "And you." in kept and "And me." in kept and "everyone" not in kept


async def test_captions_are_shared_and_translated_and_name_their_speakers(page_server: FakeServer, page: Page) -> None:
    """Only where the server offers it. The link is the room's, and the next session asks for the same room.

    A later event may revise who has spoken. What comes for a line that was cleared is seen when the line comes back.
    Subtitles name the speakers, too.
    """
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    page_server.room = {"name": "r4nd0m", "path": "/captions/r4nd0m", "token": "t0ken"}
    await page.open(page_server.url)
    await page.wait_for("document.querySelector('#model').innerText")
    assert await page.evaluate("document.querySelector('#share').hidden")
    page_server.model = MODEL | {"rooms": True, "translations": ["de", "fr"]}
    await open_with(page, page_server, {"translate": ["de", "xx"], "speakers": True, "withTimes": False})
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .line')")
    page_server.script = ()
    await page.click("#share")
    await page.click("#shared")
    await page.wait_for("!document.querySelector('#share-link').hidden")
    assert await page.evaluate("document.querySelector('#link').value") == f"{page_server.url}/captions/r4nd0m"
    await page.evaluate("document.querySelector('#share-sheet').close()")

    segment, utterance = final("Hello everyone.")
    first, second = translation("Hallo", 0, 0.2, 0.6), translation(" allerseits.", 0, 0.6, 1.1)
    await page_server.send(segment | {"speaker": "A"}, first, utterance, second)
    await page.wait_for("document.querySelector('#finals .translation')?.textContent === 'Hallo allerseits.'")
    assert await page.evaluate("document.querySelector('#finals .translation').lang") == "de"
    newest = "document.querySelector('#finals .line:last-child .text')"
    await page.wait_for(f"{newest}.innerText.startsWith('A: Hello everyone.')")
    spans = [{"from_s": 0.0, "until_s": 1.1, "speaker": "B"}]
    await page_server.send({"type": "speakers", "channel": 0, "spans": spans})
    await page.wait_for(f"{newest}.innerText.startsWith('B: Hello everyone.')")
    await check_news_of_cleared_lines(page, page_server)
    await page_server.send(*(each | {"speaker": "A"} for each in final("مرحبا.", 3, 4.0)))
    await page.wait_for(f"{newest}.innerText.startsWith('A: مرحبا')")
    assert await page.evaluate(f"getComputedStyle({newest}).direction") == "rtl"
    await press_stop(page)
    await page.click("#toggle")
    await state(page, "live")
    await press_stop(page)
    rooms = [start.get("room") for start in page_server.starts]
    assert rooms == [None, {}, {"name": "r4nd0m", "token": "t0ken"}]
    assert [(start["translate"], start["speakers"]) for start in page_server.starts] == [(["de"], {})] * 3
    _, srt = await read_saved(page, "srt")
    assert srt.endswith("\nA: مرحبا.\n\n")


async def test_the_pages_open_without_their_server(page: Page) -> None:
    """From copies that hold neither text nor keys: the captions, and call records, which are read then, too.

    While the server is there, what it answers is shown, also where the device is too full for another copy.
    """
    cached = """(async () => [...new Set((await Promise.all((await caches.keys()).map(
        async (name) => (await (await caches.open(name)).keys()).map(({url}) => new URL(url).pathname)))).flat())])()"""
    loaded = "performance.getEntriesByType('resource').map(({name}) => new URL(name).pathname)"
    needed = {"/", "/calls", "/static/tutti/worklet.js"}
    async with serve(FakeCalls()) as server:
        for address in (f"{server.url}/calls", server.url):
            await page.open(address)
            needed |= {path for path in await page.evaluate(loaded) if path.startswith("/static/")}
        await page.wait_for("document.querySelector('#model').innerText")
        assert {"/static/captions.js", "/static/style.css", "/static/calls.js", "/static/calls/turns.js"} < needed
        async with asyncio.timeout(30):
            while not needed <= set(paths := await page.evaluate(cached)):
                await page.open(f"{server.url}/calls")
                await page.open(server.url)
        assert all(path in ("/", "/calls") or path.startswith("/static/") for path in paths)
        await page.evaluate("""caches.open('tutti-shell').then(async (cache) => {
            await cache.put('/static/icon.svg', new Response('old'));
        })""")
        await page.command("Storage.overrideQuotaForOrigin", origin=server.url, quotaSize=1)
        icon = await page.evaluate("fetch('/static/icon.svg').then((response) => response.text())")
        assert icon == (STATIC / "icon.svg").read_text()
        url = server.url
    await page.open(f"{url}/calls")
    await drop(page, as_file(RECORD))
    await page.wait_for("document.querySelectorAll('.turn').length === 4")
    await page.open(url)
    await page.wait_for("document.querySelector('#model').innerText === 'The model is not known'")
    await page.click("#toggle")
    await state(page, "failed")
    assert "cannot be reached" in await message(page)
