"""The six lines of the documentation in a page of another origin, with the real server: allowed, refused, not there."""

import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
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

        def show(address: str, script_address: str = "") -> str:
            script, rest = LINES[0].split("\n", 1)
            page = script.replace(SERVER_IN_LINES, script_address or address) + rest.replace(SERVER_IN_LINES, address)
            (tmp_path / "index.html").write_text(f"<!doctype html><title>A page</title>{page}")
            return f"http://127.0.0.1:{server.server_address[1]}/"

        yield show
        server.shutdown()
        thread.join()


@asynccontextmanager
async def opened(open_window: OpenWindow, microphone: Path, url: str) -> AsyncIterator[Page]:
    """The page, after a click on Start."""
    async with open_window(microphone) as page:
        await page.open(url)
        await page.wait_for("customElements.get('tutti-captions') !== undefined")
        await page.evaluate(
            "globalThis.code = new Promise((done) => document.addEventListener('tutti-error', "
            "(event) => done(event.detail.error.code))); 0"
        )
        await page.click("button")
        yield page


async def failed(page: Page) -> tuple[str, str]:
    """The code of the error, and what the element says."""
    code = await page.evaluate("code")
    return code, await page.evaluate(f"{INSIDE}.querySelector('.status').innerText")


async def test_a_page_that_is_allowed_listens(open_window: OpenWindow, microphone: Path, show_lines: ShowLines) -> None:
    """It says so once it does."""
    origin = show_lines("").rstrip("/")
    settings = make_settings({"port": 0, "allowed_origins": origin})
    async with (
        running(settings, FakeTranscriber()) as server,
        opened(open_window, microphone, show_lines(server.http)) as page,
    ):
        await wait_inside(page, "part('status') === 'Listening'")
        assert await page.evaluate("captions.state") == "live"
        await page.click("button + button")
        await wait_inside(page, "part('status') === ''")
        assert page.errors == []


async def test_a_page_that_is_refused_says_who_can_allow_it(
    open_window: OpenWindow, microphone: Path, show_lines: ShowLines
) -> None:
    async with running(make_settings({"port": 0}), FakeTranscriber()) as server:
        url = show_lines(server.http)
        async with opened(open_window, microphone, url) as page:
            assert await failed(page) == (
                "origin_not_allowed",
                f"The server at {server.http} refuses this page: "
                f"its operator can add {url.rstrip('/')} to TUTTI_ALLOWED_ORIGINS.",
            )


async def test_a_page_without_a_key_says_what_is_known(
    open_window: OpenWindow, microphone: Path, show_lines: ShowLines
) -> None:
    """Where the origin is listed, it can read that a key is needed, and else it cannot."""
    origin = show_lines("").rstrip("/")
    for values, code, text in (
        ({"allowed_origins": origin}, "unauthorized", "needs an API key."),
        ({}, "connect_failed", "opens no session: it may be full, or it needs an API key."),
    ):
        settings = make_settings({"port": 0, "api_keys": "k", **values})
        async with (
            running(settings, FakeTranscriber()) as server,
            opened(open_window, microphone, show_lines(server.http)) as page,
        ):
            assert await failed(page) == (code, f"The server at {server.http} {text}")


async def test_a_server_that_is_not_there_is_told_apart(
    open_window: OpenWindow, microphone: Path, show_lines: ShowLines
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        running(make_settings({"port": 0}), FakeTranscriber()) as server,
        opened(open_window, microphone, show_lines(address, server.http)) as page,
    ):
        reason = "is not there: its address is wrong, or it does not run"
        assert await failed(page) == ("connect_failed", f"The server at {address} {reason}.")
