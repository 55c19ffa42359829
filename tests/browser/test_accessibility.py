"""axe-core finds no violation in any state of the captions page, and finds one where there is one."""

from pathlib import Path

import pytest

from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow
from tests.browser.fake_server import ENGLISH_MODEL, FakeServer, Step, final, interim, speech_started
from tests.node import INSTALL_TIMEOUT_S

pytestmark = [pytest.mark.browser, pytest.mark.node, pytest.mark.timeout(2 * INSTALL_TIMEOUT_S)]


@pytest.mark.parametrize(
    "is_dark", [pytest.param(False, id="light"), pytest.param(True, id="dark", marks=pytest.mark.nightly)]
)
async def test_no_state_of_the_page_has_a_violation(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow, is_dark: bool
) -> None:
    """Before a session, while text changes, when the connection is lost, when a key is needed, and at the end."""
    page_server.model = ENGLISH_MODEL
    page_server.script = [Step(0.1, [*final("Good morning."), speech_started(1), interim("Hello", " every", 1)])]
    async with open_window(microphone) as page:
        await page.show_as(390, 780, dark=is_dark)
        await page.open(page_server.url)
        await page.wait_for("document.querySelector('#model').innerText")
        found = {"idle": await violations(page)}
        await page.click("#toggle")
        await page.wait_for("document.querySelector('#live .tail')?.textContent === ' every'")
        found["live"] = await violations(page)
        page_server.api_key = "s3cret"
        await page_server.close(1008)
        await page.wait_for("document.body.dataset.state === 'lost'")
        found["lost"] = await violations(page)
        await page.click("#toggle")
        await page.wait_for("!document.querySelector('#key-form').hidden")
        found["key"] = await violations(page)
        page_server.api_key = None
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'live'")
        await page.click("#toggle")
        await page.wait_for("document.body.dataset.state === 'done'")
        found["done"] = await violations(page)
        assert found == {each: [] for each in found}

        await page.evaluate("document.querySelector('#toggle').parentElement.append(document.createElement('button'))")
        assert [each.partition(":")[0] for each in await violations(page)] == ["button-name"]
