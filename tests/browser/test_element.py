"""`<tutti-captions>` in a real browser: what it shows, what it says, and what a screen reader gets of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_room import INSIDE, FakeRoom, lines, wait_inside
from tests.browser.fake_server import Message, Step, final, interim, serve, speech_started, translation

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HERE = Path(__file__).parent
EXCHANGE: list[Message] = json.loads((HERE / "exchange.json").read_text())
NEW_ELEMENT = """(() => {
    document.querySelector("tutti-captions")?.remove();
    globalThis.captions = document.createElement("tutti-captions");
    captions.append(Object.assign(document.createElement("p"), {textContent: "Press start."}));
    document.querySelector("main").append(captions);
})()"""
"""Takes the place of another page: to load one takes longer than a test."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[FakeRoom]:
    async with serve(FakeRoom()) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(open_window: OpenWindow, microphone: Path, server: FakeRoom) -> AsyncIterator[Page]:
    async with open_window(microphone) as page:
        await page.open(f"{server.url}/element")
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Page, server: FakeRoom) -> AsyncIterator[Page]:
    """A page with an empty element, which `captions` is."""
    server.script, server.history = [], []
    server.starts.clear()
    server.last_ids.clear()
    browser.errors.clear()
    await browser.show_as(800, 600)
    await browser.evaluate(NEW_ELEMENT)
    yield browser
    assert browser.errors == []


async def apply(page: Page, *events: Message) -> None:
    await page.evaluate(f"{json.dumps(events)}.forEach((event) => captions.apply(event))")


async def set_attributes(page: Page, **attributes: str) -> None:
    for name, value in attributes.items():
        await page.evaluate(f"captions.setAttribute('{name.replace('_', '-')}', {json.dumps(value)})")


async def test_recorded_events_become_lines_and_each_final_is_said_once(page: Page) -> None:
    """The live region gets every segment once and nothing else, and keeps a few."""
    await page.evaluate(f"""globalThis.said = [];
        new MutationObserver((changes) => changes.forEach((change) =>
            change.addedNodes.forEach((node) => said.push(node.textContent)))
        ).observe({INSIDE}.querySelector('[aria-live]'), {{childList: true, subtree: true}})""")
    await apply(page, *EXCHANGE)
    texts = [event["text"] for event in EXCHANGE if event["type"] == "utterance" and event["text"]]
    assert await lines(page) == texts
    segments = [event["text"].strip() for event in EXCHANGE if event["type"] == "segment"]
    assert await page.evaluate("said") == segments
    assert await page.evaluate(f"{INSIDE}.querySelector('[aria-live]').childElementCount") <= 5
    # What may still change is hidden from screen readers.
    assert await page.evaluate(f"{INSIDE}.querySelector('.open').getAttribute('aria-hidden')") == "true"
    assert await page.evaluate("captions.captions.lines.map((line) => line.text)") == texts
    await page.evaluate("captions.clear()")
    assert await lines(page) == []


async def test_changing_text_is_lighter_and_still_easy_to_read(page: Page) -> None:
    """Where the system sets the colours, it is underlined. axe-core checks its contrast.

    What the page has put into the element is shown until there is text.
    """
    is_shown = "document.querySelector('tutti-captions p').getClientRects().length > 0"
    assert await page.evaluate(is_shown)
    await apply(page, interim("Hello", " every"))
    assert not await page.evaluate(is_shown)
    look = f"getComputedStyle({INSIDE}.querySelector('.open .changing'))"
    assert 1 > float(await page.evaluate(f"{look}.opacity")) > 0.5
    await page.command("Emulation.setEmulatedMedia", features=[{"name": "forced-colors", "value": "active"}])
    assert "dotted" in await page.evaluate(f"{look}.textDecoration")
    assert await page.evaluate(f"{look}.opacity") == "1"
    assert await page.evaluate("document.getAnimations().length") == 0


async def test_lines_shows_the_last_rows(page: Page) -> None:
    """Rows as they are drawn, not utterances; the newest word is always in them, also at twice the size."""
    await set_attributes(page, lines="2", size="40")
    await page.show_as(500, 400)
    await apply(page, *final("Short."), speech_started(1), interim("A long utterance that takes many rows", " and", 1))
    for size in ("40", "80"):
        await set_attributes(page, size=size)
        await page.drawn()
        box, word, row = await page.evaluate(f"""(() => {{
            const root = {INSIDE};
            const box = root.querySelector('.scroller').getBoundingClientRect();
            const word = [...root.querySelector('.open .changing').getClientRects()].at(-1);
            const row = Number.parseFloat(getComputedStyle(root.querySelector('.scroller')).lineHeight);
            return [[box.top, box.bottom], [word.top, word.bottom], row];
        }})()""")
        assert box[1] - box[0] == pytest.approx(2 * row, abs=1)
        assert box[1] - row < word[0] and word[1] <= box[1] + 1
    await set_attributes(page, size="40")
    # The document has little more than what is shown.
    await apply(page, *[event for n in range(2, 60) for event in final(f"Line {n}.", n)])
    assert await page.evaluate(f"{INSIDE}.querySelectorAll('.line').length") < 10
    # Screen readers get the text from the live region alone.
    assert await page.evaluate(f"{INSIDE}.querySelector('.scroller').getAttribute('aria-hidden')") == "true"
    await page.evaluate("captions.removeAttribute('lines')")
    assert len(await lines(page)) == 60 - 1


async def test_silence_hides_the_text(page: Page) -> None:
    """With `clear-after`; the next word shows it again, and neither a cough nor another speaker of the text does."""
    await set_attributes(page, lines="2", clear_after="0.05")
    await apply(page, *final("Hello."))
    await wait_inside(page, "root.querySelector('.silent')")
    assert await page.evaluate(f"getComputedStyle({INSIDE}.querySelector('.line')).visibility") == "hidden"
    cough = final("", utterance=1, start_s=3.0)[1]
    speaker = {"type": "speakers", "spans": [{"from_s": 0.0, "until_s": 1.0, "speaker": "B"}]}
    for event, is_hidden in ((cough, True), (speaker, True), (interim("Again", "", utterance=2), False)):
        shown = f"(captions.apply({json.dumps(event)}), {INSIDE}.querySelector('.silent') !== null)"
        assert await page.evaluate(shown) == is_hidden
    await set_attributes(page, clear_after="60")
    assert await page.evaluate(f"getComputedStyle({INSIDE}.querySelector('.line')).visibility") == "visible"


async def test_labels_and_times_stand_before_the_text(page: Page) -> None:
    await set_attributes(page, labels="Agent, Caller", times="")
    answer = [event | {"channel": 1} for event in final("Yes?", utterance=1, start_s=3661)]
    await apply(page, *final("Hello."), *answer)
    texts = [" ".join(line.split()) for line in await lines(page)]
    assert texts == ["0:00 Agent: Hello.", "1:01:01 Caller: Yes?"]
    spoken = f"[...{INSIDE}.querySelectorAll('.spoken p')].map((p) => p.textContent)"
    assert await page.evaluate(spoken) == ["Agent: Hello.", "Caller: Yes?"]
    # An empty label is none.
    await set_attributes(page, labels=",Caller")
    assert (await page.evaluate(f"{INSIDE}.querySelector('.line').innerText")).split() == ["0:00", "Hello."]


async def test_text_has_its_language_and_direction(page: Page) -> None:
    """By the language, also where the text begins with a Latin name; without one, by the text."""
    arabic = [event | {"language": "ar"} for event in final("Tutti مرحبا")]
    unknown = [event | {"language": None, "channel": 1} for event in final("שלום", utterance=1)]
    await apply(page, *arabic, *final("Hello.", utterance=2), *unknown)
    shown = await page.evaluate(f"""[...{INSIDE}.querySelectorAll('.finals .original')].map(
        (text) => [text.lang, getComputedStyle(text).direction])""")
    assert shown == [["ar", "rtl"], ["en", "ltr"], ["", "rtl"]]


async def test_translations_stand_under_the_original_or_in_its_place(page: Page) -> None:
    """Readers of a translation hear it, and get the original of a line whose translation does not come."""
    spoken = f"[...{INSIDE}.querySelectorAll('.spoken p')].map((p) => [p.lang, p.textContent])"
    await set_attributes(page, language="de")
    await apply(page, *final("Hello."), translation("Hallo."), translation("Bonjour.") | {"language": "fr"})
    assert await lines(page) == ["Hello.\nHallo."]
    assert await page.evaluate(spoken) == [["de", "Hallo."]]
    await set_attributes(page, show="translation")
    assert await lines(page) == ["Hallo."]
    await apply(page, *final("One.", 1), *final("Two.", 2), translation("Zwei.", 2))
    assert await lines(page) == ["Hallo.", "Zwei."]
    await apply(page, *final("Three.", 3))
    assert await lines(page) == ["Hallo.", "One.", "Zwei."]
    assert (await page.evaluate(spoken))[-2:] == [["de", "Zwei."], ["en", "One."]]
    await apply(page, translation("Eins.", 1))
    assert await lines(page) == ["Hallo.", "Eins.", "Zwei."]
    await set_attributes(page, show="original")
    assert await lines(page) == ["Hello.", "One.", "Two.", "Three."]
    assert await page.evaluate("captions.captions.languages") == ["de", "fr"]


async def test_a_day_of_text_needs_little_of_the_document_and_all_of_it_can_be_read(page: Page) -> None:
    """The reader scrolls up to the first line; nothing moves when older lines come in; a button leads back."""
    n = 600
    await page.evaluate("captions.style.height = '400px'")
    await apply(page, *[event for k in range(n) for event in final(f"Line {k}.", k)])
    await page.drawn()
    count = f"{INSIDE}.querySelectorAll('.line').length"
    scroller = f"{INSIDE}.querySelector('.scroller')"
    assert await page.evaluate(count) <= 400
    is_at_end = f"(s => s.scrollHeight - s.scrollTop - s.clientHeight < 2)({scroller})"
    assert await page.evaluate(is_at_end)

    moved = await page.evaluate(f"""(async () => {{
        const scroller = {scroller};
        const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        const first = () => [...scroller.querySelectorAll('.line')].find((l) => l.getBoundingClientRect().top > 50);
        let moved = 0;
        for (let step = 0; step < 400 && !scroller.textContent.startsWith('Line 0.'); step++) {{
            scroller.scrollTop = Math.max(0, scroller.scrollTop - 1500);
            const line = first();
            const before = line.getBoundingClientRect().top;
            await frame();
            moved = Math.max(moved, Math.abs(line.getBoundingClientRect().top - before));
            if (scroller.querySelectorAll('.line').length > 400) throw new Error('too many lines');
        }}
        return moved;
    }})()""")
    assert moved < 2
    shown = await lines(page)
    assert shown == [f"Line {k}." for k in range(len(shown))]
    assert not await page.evaluate(f"{INSIDE}.querySelector('.latest').hidden")

    # What is said meanwhile does not disturb the reader, who can scroll back to it.
    at = await page.evaluate(f"{scroller}.scrollTop")
    await apply(page, *final("Meanwhile.", n), interim("And", " now", n + 1))
    await page.drawn()
    assert await page.evaluate(f"{scroller}.scrollTop") == at
    await page.evaluate(f"""(async () => {{
        const scroller = {scroller};
        for (let step = 0; step < 60 && !scroller.textContent.includes('Meanwhile.'); step++) {{
            scroller.scrollTop += 1e6;
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        }}
    }})()""")
    shown = await lines(page)
    assert shown[-2:] == [f"Line {n - 1}.", "Meanwhile."]
    await page.evaluate(f"{scroller}.scrollTop -= 3000")
    await page.drawn()
    await page.evaluate(f"{INSIDE}.querySelector('.latest').click()")
    assert await page.evaluate(is_at_end)
    assert await page.evaluate(f"{INSIDE}.querySelector('.open').innerText.trim()") == "And now"


async def test_texts_may_be_assigned_before_the_element_is_defined(page: Page) -> None:
    """As by a script that runs before the module of the element."""
    await page.evaluate("""(() => {
        const early = new DOMParser().parseFromString("<tutti-captions></tutti-captions>", "text/html").body.firstChild;
        early.texts = {latest: "Zum Ende"};
        captions.replaceWith(early);
        captions = early;
    })()""")
    assert await page.evaluate(f"{INSIDE}.querySelector('.latest').textContent") == "Zum Ende"
    assert await page.evaluate("captions.texts.states.listening") == "Listening"


async def test_an_element_that_is_moved_to_another_document_keeps_its_look(page: Page) -> None:
    """As into a window that stays on top, and back."""
    await set_attributes(page, theme="contrast")
    await apply(page, *final("Hello."))
    ground = "captions.ownerDocument.defaultView.getComputedStyle(captions).backgroundColor"
    seen = [await page.evaluate(ground)]
    await page.evaluate("document.body.append(Object.assign(document.createElement('iframe'), {id: 'other'}))")
    for document in ("other.contentDocument", "document"):
        await page.evaluate(f"{document}.body.append(captions)")
        seen.append(await page.evaluate(ground))
    await page.evaluate("new DOMParser().parseFromString('', 'text/html').body.append(captions)")
    await page.evaluate("document.body.append(captions); other.remove()")
    assert [*seen, await page.evaluate(ground)] == ["rgb(0, 0, 0)"] * 4
    assert await lines(page) == ["Hello."]


async def test_mistakes_are_explained(page: Page) -> None:
    """Wrong events and attributes name what was expected and what came. Of a wrong value this is said once."""
    said = """(() => { try { captions.apply(%s); } catch (error) { return `${error.name}: ${error.message}`; } })()"""
    assert "segment.utterance: expected a number" in await page.evaluate(said % "{type: 'segment'}")
    assert "event: expected an object" in await page.evaluate(said % "'hello'")
    await page.evaluate("globalThis.warnings = []; console.warn = (text) => warnings.push(text)")
    await set_attributes(page, lines="two", show="all")
    assert 'lines: expected a positive whole number, got "two"' in (await page.evaluate("warnings.join()"))
    assert "expected original, translation or both" in (await page.evaluate("warnings.join()"))
    await set_attributes(page, size="40")
    await apply(page, *final("Hello."))
    assert await page.evaluate("warnings.length") == 2
    await set_attributes(page, lines="three")
    assert await page.evaluate("warnings.length") == 3
    await set_attributes(page, room="choir")
    assert "without the attribute room" in await page.evaluate("captions.start().catch((error) => error.message)")
    await wait_inside(page, "captions.state === 'live'")


async def test_a_wrong_value_is_as_good_as_none(page: Page) -> None:
    """All text is shown where `lines` is no number, and stays where `clear-after` is no time. The console says why."""
    await page.evaluate("globalThis.warnings = []; console.warn = (text) => warnings.push(text)")
    await apply(page, *[event for n in range(60) for event in final(f"Line {n}.", n)])
    await page.drawn()
    scroller = f"{INSIDE}.querySelector('.scroller')"
    heights = f"[{scroller}.clientHeight, {scroller}.scrollHeight]"
    seen, said = await page.evaluate(heights), []
    wrong = {"lines": ["two", "2.5", "0", ""], "clear-after": ["Infinity"], "size": ["1e999"], "theme": ["blue"]}
    for name, values in wrong.items():
        for value in values:
            await page.evaluate(f"warnings.length = 0; captions.setAttribute('{name}', '{value}')")
            await page.drawn()
            assert await page.evaluate(heights) == seen
            said += await page.evaluate("warnings")
        await page.evaluate(f"captions.removeAttribute('{name}')")
    assert [each.split(": ")[1] for each in said] == [name for name, values in wrong.items() for _ in values]
    assert 'lines: expected a positive whole number, got "2.5"' in " ".join(said)
    # As long as a timer can be, and no longer.
    await page.evaluate("captions.setAttribute('clear-after', '3000000')")
    await page.evaluate("new Promise((resolve) => setTimeout(resolve, 20))")
    assert not await page.evaluate(f"{scroller}.classList.contains('silent')")


async def record_events(page: Page) -> None:
    await page.evaluate("""globalThis.seen = [];
        for (const name of ['start', 'state', 'line', 'error', 'end']) {
            captions.addEventListener(`tutti-${name}`, ({detail}) =>
                seen.push(name === 'state' ? detail.state : name === 'error' ? detail.error.code : name));
        }""")


async def test_the_microphone_makes_captions(page: Page, server: FakeRoom) -> None:
    """From `start` to `stop`, and again; times go on, and the attributes make the fields of `start`."""
    server.script = [Step(0.1, [speech_started(), interim("Hello", " every"), *final("Hello everyone.")])]
    await set_attributes(page, server=server.url, spoken="en", language="de")
    await page.evaluate("captions.startOptions = {hotwords: ['tutti']}; captions.apiKey = async () => 'key-1'")
    await record_events(page)
    for _ in range(2):
        line = "new Promise((done) => captions.addEventListener('tutti-line', done, {once: true}))"
        await page.evaluate(f"Promise.all([{line}, captions.start()]).then(() => null)")
        await page.evaluate("captions.stop()")
    assert await lines(page) == ["Hello everyone."] * 2
    session = ["asking", "connecting", "live", "start", "line", "finishing", "idle", "end"]
    assert await page.evaluate("seen") == session * 2
    # A start that is followed by a stop at once opens nothing.
    await page.evaluate("captions.start(); captions.stop()", 10)
    assert await page.evaluate("seen.slice(16)") == ["asking", "idle", "end"]
    # Nor does one whose key does not come.
    await page.evaluate("""new Promise((resolve) => {
        captions.apiKey = () => { resolve(); return new Promise(() => {}); };
        captions.start();
    })""")
    await page.evaluate("captions.stop()", 10)
    assert await page.evaluate("seen.slice(19)") == ["asking", "connecting", "idle", "end"]
    # One that cannot be had is named as the reason.
    await page.evaluate("captions.apiKey = () => Promise.reject(new Error('logged out')); captions.start()", 10)
    assert await page.evaluate("seen.slice(23)") == ["asking", "connecting", "failed", "no_api_key", "end"]
    await wait_inside(page, "part('status').includes('logged out')")
    first, second = server.starts
    wanted: dict[str, Any] = {"language": "en", "translate": ["de"], "hotwords": ["tutti"]}
    assert {name: first[name] for name in wanted} == wanted
    assert "resume" not in first and second["resume"]["from_s"] > 0


async def test_a_lost_connection_of_the_microphone_mends_itself(page: Page, server: FakeRoom) -> None:
    server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    await set_attributes(page, server=server.url)
    await page.evaluate("globalThis.nKeys = 0; captions.apiKey = async () => `secret-${++nKeys}`")
    await page.evaluate("captions.start()")
    await wait_inside(page, "part('open').includes('every')")
    await server.close(1012)
    await wait_inside(page, "part('status').includes('Reconnecting')")
    await wait_inside(page, "part('status') === 'Listening'")
    # A key may have ended meanwhile.
    assert await page.evaluate("[captions.state, nKeys]") == ["live", 2]
    # Taken out of the document, it lets go of the microphone.
    left = """new Promise((done) => {
        captions.addEventListener('tutti-end', () => done(captions.state), {once: true});
        captions.remove();
    })"""
    assert await page.evaluate(left) == "idle"


async def test_a_session_that_is_stopped_without_a_connection_does_not_listen_again(
    page: Page, server: FakeRoom
) -> None:
    """It connects again for the last text alone."""
    await set_attributes(page, server=server.url)
    await page.evaluate("captions.start()")
    await record_events(page)
    ended = """new Promise((done) => {
        captions.addEventListener('tutti-end', () => done(null));
        captions.addEventListener('tutti-state', ({detail}) => detail.state === 'reconnecting' && captions.stop());
    })"""
    await asyncio.gather(page.evaluate(ended), server.close(1012))
    assert await page.evaluate("seen") == ["reconnecting", "finishing", "idle", "end"]


async def test_a_refused_microphone_is_explained(page: Page, server: FakeRoom) -> None:
    await page.evaluate("""navigator.mediaDevices.getUserMedia = async () => {
        throw new DOMException('no', 'NotAllowedError');
    }""")
    await record_events(page)
    await page.evaluate("captions.start()")
    assert await page.evaluate("seen") == ["asking", "failed", "permission_denied", "end"]
    assert "microphone is blocked" in await page.evaluate(f"{INSIDE}.querySelector('.status').innerText")
    await page.evaluate("captions.setAttribute('server', 'http://['); captions.start()")
    assert (await page.evaluate("seen"))[-2:] == ["bad_url", "end"]
    await page.evaluate("delete navigator.mediaDevices.getUserMedia")


async def test_a_moved_element_keeps_its_room_and_a_removed_one_leaves_it(page: Page, server: FakeRoom) -> None:
    await set_attributes(page, room="choir")
    await wait_inside(page, "part('status') === '' && captions.state === 'live'")
    await page.evaluate("document.body.append(captions)")
    server.publish(*final("Still here."))
    await wait_inside(page, "part('finals').includes('Still here.')")
    assert len(server.last_ids) == 1
    await page.evaluate("captions.remove()")
    assert await page.evaluate("captions.state") == "idle"
    await page.evaluate("document.body.append(captions)")
    await wait_inside(page, "part('finals').includes('Still here.')")
    assert len(server.last_ids) == 2


@pytest.mark.node
@pytest.mark.timeout(600)
async def test_axe_finds_nothing_wrong_in_any_state(page: Page) -> None:
    """Empty, with changing text, with labels and translations, scrolled up, as rows, and failed; in light and dark."""
    states: dict[str, list[str]] = {
        "empty": [],
        "text": [f"{json.dumps(EXCHANGE[:90])}.forEach((event) => captions.apply(event))"],
        "labels": [
            "captions.setAttribute('labels', 'Agent,Caller'); captions.setAttribute('times', '')",
            f"captions.setAttribute('language', 'de'); captions.apply({json.dumps(translation('Guten Morgen.'))})",
        ],
        "scrolled": [f"captions.style.height = '120px'; {INSIDE}.querySelector('.scroller').scrollTop = 5"],
        "rows": ["captions.setAttribute('lines', '2'); captions.setAttribute('theme', 'contrast')"],
        "failed": ["captions.setAttribute('server', 'http://['); captions.start()"],
    }
    for number, (name, scripts) in enumerate(states.items()):
        for script in scripts:
            await page.evaluate(script)
        await page.show_as(800, 600, dark=number % 2 == 1)
        await page.drawn()
        assert await violations(page) == [], name
