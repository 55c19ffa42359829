"""Captions do not jump while they change, in a real browser, with recorded events of the service.

`exchange.json` has the events for 54 s of noisy speech on a busy machine: tails that are revised, an utterance of
several segments, and one that begins before the one before it is final.
"""

import json
from pathlib import Path

import pytest

from tests.browser.chromium import Page
from tests.browser.fake_server import FakeServer, Message, interim, speech_started
from tests.browser.test_page import press_start, state

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

EXCHANGE: list[Message] = json.loads((Path(__file__).parent / "exchange.json").read_text())
LOOKS = {
    "light": {"width": 1000, "height": 700, "dark": False},
    "phone-dark": {"width": 390, "height": 780, "dark": True, "scale": 2},
}
WATCH = """(() => {
    let seen = -1;
    let wake = () => {};
    console.warn = (text) => {
        seen = Number(/^mark: (\\d+)$/.exec(text)?.[1] ?? seen);
        wake();
    };
    const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    globalThis.drawn = async (mark) => {
        await new Promise((resolve) => {
            wake = () => seen >= mark && resolve();
            wake();
        });
        await nextFrame();
        await nextFrame();
        const text = document.querySelector("#transcript");
        const bottom = [...document.querySelectorAll(".line .text")].at(-1)?.getBoundingClientRect().bottom ?? 0;
        const below = text.scrollHeight - text.scrollTop - text.clientHeight;
        return bottom <= text.getBoundingClientRect().bottom && below < 1;
    };
    globalThis.shifts = [];
    const begunMs = performance.now();
    new PerformanceObserver((list) => {
        for (const { startTime, sources } of list.getEntries()) {
            // When an utterance ends, the box of the open lines moves down.
            const nodes = sources.map(({ node }) => node).filter((node) => node?.id !== "live");
            if (startTime >= begunMs && nodes.length > 0) shifts.push(nodes.map((node) => node?.textContent));
        }
    }).observe({ type: "layout-shift" });
})()"""
"""`drawn` waits until a message before a mark has been drawn, and says whether the newest words are in view.

`shifts` are movements without scrolling, as the browser measures them. A mark is a warning, which the page logs.
"""


async def show(page: Page, server: FakeServer, message: Message, mark: int) -> bool:
    """Send a message, and return whether the newest words are in view once it has been drawn."""
    await server.send(message, {"type": "warning", "code": "mark", "message": str(mark)})
    return bool(await page.evaluate(f"drawn({mark})"))


@pytest.mark.parametrize("look", LOOKS)
async def test_a_session_is_shown_without_jumping(page_server: FakeServer, page: Page, look: str) -> None:
    """Neither when a tail or a final text gets shorter, nor when a line below opens; the newest words are in view."""
    await page.show_as(**LOOKS[look])  # type: ignore[arg-type]  # sizes and flags, each of its kind
    await press_start(page, page_server)
    await state(page, "live")
    await page.drawn()
    await page.evaluate(WATCH)
    hidden = [n for n, event in enumerate(EXCHANGE) if not await show(page, page_server, event, n)]
    assert hidden == []
    assert await page.evaluate("shifts") == []

    # What moves is found.
    await show(page, page_server, speech_started(90), len(EXCHANGE))
    await show(page, page_server, interim("Hello", " there", 90), len(EXCHANGE) + 1)
    await page.evaluate("document.querySelector('#transcript').style.paddingTop = '100px'")
    await show(page, page_server, interim("Hello", " there you", 90), len(EXCHANGE) + 2)
    assert await page.evaluate("shifts") != []
