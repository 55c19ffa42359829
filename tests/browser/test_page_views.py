"""axe-core has no objection to any view of the captions page, in light and dark colours, and keys open each of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow
from tests.browser.fake_server import MODEL, FakeServer, Step, final, interim, speech_started
from tests.browser.test_page_features import open_with, press, state, translation

pytestmark = [pytest.mark.browser, pytest.mark.node, pytest.mark.timeout(900)]

SHEETS = ("settings", "save", "share")


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
async def test_no_view_has_a_violation(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, theme: str
) -> None:
    """axe-core has no objection to any view, and the keys of the list open them."""
    page_server.model = MODEL | {"rooms": True, "translations": ["de", "fr"]}
    page_server.room = {"name": "r4nd0m", "path": "/captions/r4nd0m", "token": "t0ken"}
    page_server.script = [Step(0.1, [*final("Good morning."), speech_started(1), interim("Hello", " every", 1)])]
    settings = {"theme": theme, "translate": ["de"], "candidates": ["de"], "language": ""}
    found: dict[str, Any] = {}
    async with open_window(microphone) as page:
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
        assert page.errors == []
    assert found == {view: [] for view in found}
