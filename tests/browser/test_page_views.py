"""axe-core has no objection to any view of the captions page, and the page says in each what to do."""

from typing import Any

import pytest

from tests.browser.axe import violations
from tests.browser.chromium import Page
from tests.browser.fake_server import MODEL, FakeServer, Step, final, interim, speech_started, translation
from tests.browser.test_page import LINES, message, press_start, press_stop, state
from tests.browser.test_page_features import open_with, press

pytestmark = [pytest.mark.browser, pytest.mark.node, pytest.mark.timeout(900)]

SHEETS = ("settings", "save", "share")


async def test_a_lost_session_and_a_missing_key_are_explained(page_server: FakeServer, page: Page) -> None:
    """Stable text is kept, the tail is removed, and the button shows Restart; the right key opens the session.

    The browser is as old as Safari 16 in that it cannot join two signals.
    """
    page_server.script = [Step(0.1, [speech_started(), interim("Hello", " every")])]
    found: dict[str, Any] = {}
    await page.show_as(390, 780)
    await page.run_before("delete AbortSignal.any")
    await press_start(page, page_server)
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
    page_server.api_key = "s3cret"
    await page_server.close(1008)
    await state(page, "lost")
    assert "was lost" in await message(page)
    assert await page.evaluate("document.querySelector('#toggle').innerText") == "Restart"
    assert await page.evaluate(LINES) == ["Hello"]
    found["lost"] = await violations(page)

    await page.click("#toggle")
    await page.wait_for("!document.querySelector('#key-form').hidden")
    assert "needs an API key" in await message(page)
    found["key"] = await violations(page)
    await page.type_text("wrong")
    await page.press_enter()
    await page.wait_for("document.querySelector('#message').innerText.includes('does not accept')")
    await page.evaluate("document.querySelector('#key').value = ''")
    await page.type_text("s3cret")
    await page.press_enter()
    await state(page, "live")
    assert await page.evaluate("document.querySelector('#key-form').hidden")
    assert await page.evaluate("document.activeElement.id") == "toggle"
    assert await page.evaluate("document.querySelector('#message').hidden")
    await press_stop(page)
    found["done"] = await violations(page)
    assert found == {view: [] for view in found}

    await page.evaluate("document.querySelector('#toggle').parentElement.append(document.createElement('button'))")
    assert [each.partition(":")[0] for each in await violations(page)] == ["button-name"]


async def test_no_key_is_asked_for_where_the_server_needs_none(page_server: FakeServer, page: Page) -> None:
    """A server that answers the page's other requests and opens no session may be full: a key would not help."""
    page_server.is_full = True
    await press_start(page, page_server)
    await state(page, "failed")
    assert "may be full" in await message(page)
    assert await page.evaluate("document.querySelector('#key-form').hidden")


async def test_a_microphone_is_checked_and_released(page_server: FakeServer, page: Page) -> None:
    """Also where the sheet is closed while the names of the microphones are looked up."""
    is_checked = "document.querySelector('#check').ariaPressed === 'true'"
    await page.run_before("""
        const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (asked) => (globalThis.stream = await open(asked));""")
    await page.open(page_server.url)
    await page.click("#settings")
    await page.click("#check")
    await page.wait_for("document.querySelector('#check-text').textContent.includes('hears something')")
    await page.click("#check")
    await page.wait_for(f"!({is_checked})")
    assert await page.evaluate("stream.getTracks()[0].readyState") == "ended"

    await page.evaluate("""stream = undefined; navigator.mediaDevices.enumerateDevices = async () => {
        const sheet = document.querySelector('#settings-sheet');
        const closed = new Promise((resolve) => sheet.addEventListener('close', () => setTimeout(resolve)));
        sheet.close();
        await closed;
        return [];
    }""")
    await page.click("#check")
    await page.wait_for(f"stream !== undefined && !({is_checked})", 5)
    assert await page.evaluate("stream.getTracks()[0].readyState") == "ended"


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
async def test_no_view_has_a_violation(page_server: FakeServer, page: Page, theme: str) -> None:
    """axe-core has no objection to any view, and the keys of the list open them."""
    page_server.model = MODEL | {"rooms": True, "translations": ["de", "fr"]}
    page_server.room = {"name": "r4nd0m", "path": "/captions/r4nd0m", "token": "t0ken"}
    page_server.script = [Step(0.1, [*final("Good morning."), speech_started(1), interim("Hello", " every", 1)])]
    settings = {"theme": theme, "translate": ["de"], "candidates": ["de"], "language": ""}
    found: dict[str, Any] = {}
    await page.show_as(360, 740)
    await open_with(page, page_server, settings)
    found["idle"] = await violations(page)
    await press(page, "s")
    await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
    await page_server.send(translation("Guten Morgen.", 0))
    await page.wait_for("document.querySelector('.translation')")
    for key, sheet in zip((",", "d", "h"), SHEETS, strict=True):
        await press(page, key)
        await page.wait_for(f"document.querySelector('#{sheet}-sheet').open")
        if sheet == "share":
            await page.click("#shared")
            await page.wait_for("!document.querySelector('#share-link').hidden")
        found[sheet] = await violations(page)
        await press(page, "Escape")
        await page.wait_for("document.querySelector('dialog[open]') === null")
    await press(page, "l")
    found["large"] = await violations(page)
    assert await page.evaluate("document.body.dataset.view") == "large"
    await press(page, "Escape")
    assert await page.evaluate("document.body.dataset.view") == "transcript"
    await press(page, "t")
    other = {"light": "dark", "dark": "light"}[theme]
    assert (
        await page.evaluate(
            "[document.documentElement.dataset.theme, JSON.parse(localStorage['tutti.settings']).theme]"
        )
        == [other] * 2
    )
    await press(page, "p")
    await state(page, "paused")
    found["paused"] = await violations(page)
    assert found == {view: [] for view in found}
