"""Nothing that is spoken, named or translated becomes a part of a page: every page shows it as text, and runs nothing.

Whoever speaks, uploads a file, names a room or answers translations decides what readers see, in pages with a key.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import OpenBrowser
from tests.browser.fake_calls import FakeCalls, as_file, drop, said
from tests.browser.fake_room import FakeRoom, wait_inside
from tests.browser.fake_server import FakeServer, Message, Step, final, interim, serve, speech_started, translation
from tests.browser.page import BrowserPage
from tests.browser.test_page_features import open_with
from tutti_server.app.files.call_record import make_record
from tutti_server.app.files.call_rendering import as_cues, as_json
from tutti_server.app.files.subtitles import vtt

pytestmark = pytest.mark.browser

HOSTILE = (
    """</textarea></title></style><x-mark id=page></x-mark><img src=/x onerror=attack()><svg onload=attack()>"""
    """<script>attack()</script><iframe srcdoc="<script>parent.attack()</script>"></iframe>"""
    """"' onfocus=attack() autofocus ${attack()} <a href="javascript:attack()">here</a> &lt;x-mark&gt;"""
)
NAME = HOSTILE.replace("/", "_")
"""A file's name has no slash."""
BEFORE = "globalThis.attack = () => { globalThis.wasAttacked = true; };"
FOUND = """(() => {
    const found = globalThis.wasAttacked ? ["attack"] : [];
    const look = (root) => {
        for (const each of root.querySelectorAll("*")) {
            const attributes = [...each.attributes];
            const isCode = attributes.some(({name, value}) => /^on|srcdoc/.test(name) || /^javascript:/.test(value));
            if (isCode || each.matches("x-mark, iframe, img[src='/x'], script:not([src])")) found.push(each.outerHTML);
            if (each.shadowRoot) look(each.shadowRoot);
        }
    };
    look(document);
    return found;
})()"""
SHOWN = """(() => {
    const all = (root) => [root.textContent, ...[...root.querySelectorAll("*")].flatMap((each) =>
        [each.value ?? "", each.title ?? "", ...(each.shadowRoot ? all(each.shadowRoot) : [])])];
    return all(document.documentElement).join(" ").split(%s).length - 1;
})()"""
"""How often a page shows a text."""


def speech() -> list[Message]:
    """What a speaker says, with hostile text in each place for text."""
    segment, utterance = final(HOSTILE)
    segment |= {"speaker": HOSTILE, "language": HOSTILE}
    warning = {"type": "warning", "code": HOSTILE, "message": HOSTILE}
    return [segment, utterance, translation(HOSTILE), warning, speech_started(1), interim(HOSTILE, HOSTILE, 1)]


async def check(page: BrowserPage, n: int, text: str = HOSTILE) -> None:
    """The page shows the text so often, and nothing of it is an element or has run."""
    await page.drawn()
    assert await page.evaluate(FOUND) == []
    assert await page.evaluate(SHOWN % json.dumps(text)) >= n


async def check_live_page(page: BrowserPage, server: FakeServer) -> None:
    language = {"code": "en", "name": HOSTILE}
    server.model = {"name": HOSTILE, "languages": [language, {"code": "de", "name": HOSTILE}]}
    server.script = [Step(0.1, speech())]
    server.file_events = [
        {"type": "transcript.text.segment", "id": 0, "start": 0.5, "end": 1.25, "text": HOSTILE, "utterance": 0}
        | {"avg_logprob": -0.1, "confidence": 0.9, "language": "en"},
        {"type": "transcript.text.done", "text": HOSTILE, "duration": 6, "speech_duration": 2, "words": 3},
    ]
    await open_with(page, server, {"hotwords": HOSTILE[:60], "language": "en"})  # type: ignore[arg-type]
    await page.click("#toggle")
    await page.wait_for("document.querySelector('#live .tail')?.textContent")
    await check(page, 4)
    await page.click("#toggle")
    await page.wait_for("document.body.dataset.state === 'done'")
    await page.evaluate(f"""(() => {{
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(5000)], {json.dumps(NAME + ".mp3")}));
        for (const type of ["dragenter", "dragover", "drop"]) {{
          document.querySelector("main").dispatchEvent(new DragEvent(type, {{dataTransfer: transfer, bubbles: true}}));
        }}
    }})()""")
    await page.wait_for(f"document.querySelector('#finals').textContent.includes({json.dumps(NAME)})")
    await check(page, 1, NAME)


async def check_room_and_element(page: BrowserPage, server: FakeRoom) -> None:
    server.title, server.history = HOSTILE, speech()
    await page.open(f"{server.url}/captions/choir?language=de&show=both")
    await wait_inside(page, f"part('open').includes({json.dumps(HOSTILE)})")  # type: ignore[arg-type]
    # The heading, the title of the window, both texts and the translation.
    await check(page, 4)
    await page.open("about:blank")
    await page.open(f"{server.url}/element")
    await page.evaluate(f"""(() => {{
        const captions = document.querySelector("tutti-captions");
        captions.setAttribute("show", "both");
        captions.setAttribute("language", "de");
        captions.setAttribute("label", {json.dumps(HOSTILE)});
        {json.dumps(speech())}.forEach((event) => captions.apply(event));
        captions.setAttribute("language", {json.dumps(HOSTILE)});
    }})()""")
    await check(page, 2)


async def check_call_records(page: BrowserPage, server: FakeCalls) -> None:
    stretches = (said(HOSTILE, 0.4, HOSTILE), said("caller", 1.0, HOSTILE), said(HOSTILE, 30.0, HOSTILE, 0.3))
    record = make_record(stretches, 60.0)

    await page.open(f"{server.url}/calls")
    await drop(page, as_file({"type": "<x-mark></x-mark>", "version": 1}, f"{NAME}.json"))
    await page.wait_for("document.body.innerText.includes('<x-mark>')")
    await check(page, 0)
    await drop(page, as_file(as_json(record), f"{NAME}.json"))
    await page.wait_for("document.body.dataset.state === 'open'")
    await check(page, 4)
    # Subtitles of the server and of the page: text in a cue, whose only element is its voice.
    modules = '["/static/calls/record.js", "/static/calls/exports.js"].map((each) => import(each))'
    source = json.dumps(json.dumps(as_json(record)))
    write = f"Promise.all({modules}).then(([{{parseRecord}}, {{toVtt}}]) => toVtt(parseRecord({source})))"
    written = [vtt(as_cues(record)), await page.evaluate(write)]
    for text in written:
        elements = await page.evaluate(f"""{json.dumps(text)}.split("\\n\\n").slice(1, -1).map((each) => {{
            const [times, ...lines] = each.split("\\n");
            const cue = new VTTCue(0, 1, lines.join("\\n")).getCueAsHTML();
            return [/^[\\d:.]+ --> [\\d:.]+$/.test(times), lines.length <= 2, cue.querySelectorAll("*").length];
        }})""")
        assert elements and all(each == [True, True, 1] for each in elements), text


@pytest.mark.parametrize(
    ("make_server", "check_pages"),
    [
        pytest.param(FakeServer, check_live_page, id="live"),
        pytest.param(FakeRoom, check_room_and_element, id="room"),
        pytest.param(FakeCalls, check_call_records, id="calls"),
    ],
)
async def test_nothing_that_is_said_or_named_becomes_a_part_of_a_page(
    open_browser: OpenBrowser,
    microphone: Path,
    make_server: Callable[[], FakeServer],
    check_pages: Callable[[BrowserPage, Any], Awaitable[None]],
) -> None:
    """The live page, the page of a room, the element, the page of call records, and the subtitles that they save."""
    async with serve(make_server()) as server, open_browser(microphone) as page:
        await page.run_before(BEFORE)
        await check_pages(page, server)
        assert page.errors == []


def test_a_name_cannot_end_its_cue() -> None:
    """Not with an empty line, after which a forged cue would follow, nor with a line break alone."""
    record = make_record((said("a\n\n00:00.000 --> 09:00.000\nb", 0.4, "One."),), 2.0)
    _, cue, *rest = vtt(as_cues(record)).split("\n\n")
    assert rest == [""] and len(cue.split("\n")) == 2
