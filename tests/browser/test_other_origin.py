"""The six lines of the documentation in a page of another origin, with the real server: allowed, refused, not there."""

import itertools
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.app.conftest import running
from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_room import INSIDE, wait_inside
from tests.fakes import FakeTranscriber
from tutti_server.app.server.plugins import make_settings

pytestmark = pytest.mark.browser

LINES = re.findall(
    "```html\n(.*?)```", (Path(__file__).parents[2] / "docs" / "captions_element.md").read_text(), re.DOTALL
)
SERVER_IN_LINES = "https://captions.example.org"
STATUS = f"{INSIDE}.querySelector('.status').innerText"

ShowLines = Callable[..., str]
"""Returns the address of a page of another origin, whose lines name this server, and perhaps another for the script."""


class Files(SimpleHTTPRequestHandler):
    """A web server of files, without its log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def show_lines(tmp_path: Path) -> Iterator[ShowLines]:
    """A web server on another port, which has the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(tmp_path))) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        numbers = itertools.count()

        def show(address: str, script_address: str = "") -> str:
            script, rest = LINES[0].split("\n", 1)
            page = script.replace(SERVER_IN_LINES, script_address or address) + rest.replace(SERVER_IN_LINES, address)
            # Each has a name of its own: of two that were written in one second, the browser shows the first again.
            name = f"{next(numbers)}.html"
            (tmp_path / name).write_text(f"<!doctype html><title>A page</title>{page}")
            return f"http://127.0.0.1:{server.server_address[1]}/{name}"

        yield show
        server.shutdown()
        thread.join()


ERROR = "new Promise((done) => document.addEventListener('tutti-error', (event) => done(event.detail.error.code)))"


async def press_start(page: Page, url: str) -> None:
    """Open a page, and click on Start once the element is there. The page's `code` will be that of its error."""
    await page.open(url)
    await page.wait_for("customElements.get('tutti-captions') !== undefined")
    await page.evaluate(f"globalThis.code = {ERROR}; 0")
    await page.click("button")


async def test_the_element_listens_or_says_why_not(
    open_window: OpenWindow, microphone: Path, show_lines: ShowLines
) -> None:
    """A page that is refused learns who can allow it; a server that is not there is told apart.

    Where the origin is listed, the page can read that a key is needed, and else it cannot.
    """
    origin = show_lines("").rpartition("/")[0]
    refused: list[tuple[dict[str, str], str, str]] = [
        ({}, "origin_not_allowed", f"refuses this page: its operator can add {origin} to TUTTI_ALLOWED_ORIGINS."),
        ({"api_keys": "k"}, "connect_failed", "opens no session: it may be full, or it needs an API key."),
        ({"api_keys": "k", "allowed_origins": origin}, "unauthorized", "needs an API key."),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with open_window(microphone) as page:
        for values, code, reason in refused:
            async with running(make_settings({"port": 0, **values}), FakeTranscriber()) as server:
                await press_start(page, show_lines(server.http))
                assert await page.evaluate("code") == code
                assert await page.evaluate(STATUS) == f"The server at {server.http} {reason}"
        page.errors.clear()
        allowed = make_settings({"port": 0, "allowed_origins": origin})
        async with running(allowed, FakeTranscriber()) as server:
            await press_start(page, show_lines(server.http))
            await wait_inside(page, "part('status') === 'Listening'")
            assert await page.evaluate("captions.state") == "live"
            await page.click("button + button")
            await wait_inside(page, "part('status') === ''")
            assert page.errors == []

            await press_start(page, show_lines(nowhere, server.http))
            assert await page.evaluate("code") == "connect_failed"
            reason = "is not there: its address is wrong, or it does not run."
            assert await page.evaluate(STATUS) == f"The server at {nowhere} {reason}"
