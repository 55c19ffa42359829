"""The page that shows the OpenAPI document, in a real browser with the real server."""

import json

import pytest

from tests.app.conftest import running
from tests.browser.chromium import OpenWindow, Page
from tests.fakes import FakeTranscriber
from tutti_server.app.server.openapi import PATHS
from tutti_server.app.server.plugins import make_settings

pytestmark = pytest.mark.browser

ROOT = "document.querySelector('openapi-explorer')?.shadowRoot"


async def wait_for_text(page: Page, text: str) -> None:
    """Wait until the viewer shows a text. It is looked for with each picture that is drawn."""
    await page.evaluate(f"""new Promise((resolve) => {{
        const look = () => {ROOT}?.textContent.includes({json.dumps(text)}) ? resolve() : requestAnimationFrame(look);
        look();
    }})""")


async def test_the_page_shows_every_operation_and_loads_nothing_from_elsewhere(open_window: OpenWindow) -> None:
    async with (
        running(make_settings({"port": 0, "api_keys": "k"}), FakeTranscriber()) as server,
        open_window(None) as page,
    ):
        await page.open(f"{server.http}/docs")
        for operations in PATHS.values():
            for operation in operations.values():
                await wait_for_text(page, operation["summary"])
        name = json.dumps(PATHS["/v1/audio/transcriptions"]["post"]["summary"])
        is_it = f"(each) => each.innerText.trim() === {name}"
        await page.evaluate(f"[...{ROOT}.querySelectorAll('.nav-bar-path')].find({is_it}).click()")
        await wait_for_text(page, "/v1/audio/transcriptions")
        loaded = await page.evaluate("performance.getEntriesByType('resource').map(({name}) => name)")
        assert [each for each in loaded if not each.startswith((server.http, "data:"))] == []
        assert page.errors == []
