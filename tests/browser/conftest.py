"""Fixtures for the tests of the page: a scripted server, and audio for the microphone."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from tests.browser import chromium, firefox
from tests.browser.chromium import OpenWindow, Page, write_wav
from tests.browser.fake_server import FakeServer, serve
from tests.browser.page import BrowserPage

TONE_RATE = 44_100

OpenBrowser = Callable[[Path | None], AbstractAsyncContextManager[BrowserPage]]
"""Opens a page with this microphone in one of the browsers."""


@pytest.fixture(scope="session")
def open_window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWindow]:
    """Start one Chromium for each microphone, which is an option of the program, in place of one for each test.

    They live in an event loop beside those of the tests, which end with each test. One that ended is started again.
    """
    running: dict[Path | None, chromium.Chromium] = {}
    with start_blocking_portal() as portal, ExitStack() as ends:

        def open_window(microphone: Path | None) -> AbstractAsyncContextManager[Page]:
            if microphone not in running or running[microphone].process.returncode is not None:
                started = chromium.start(tmp_path_factory.mktemp("chromium") / "profile", microphone)
                running[microphone] = ends.enter_context(portal.wrap_async_context_manager(started))
            return chromium.open_window(running[microphone])

        yield open_window


@pytest.fixture(params=["chromium", pytest.param("firefox", marks=pytest.mark.nightly)])
def open_browser(request: pytest.FixtureRequest, open_window: OpenWindow, tmp_path: Path) -> OpenBrowser:
    """Each browser in turn: a window of the Chromium that all tests share, or a Firefox."""
    if request.param == "firefox":
        return lambda microphone: firefox.open_page(tmp_path / "profile", microphone)
    return open_window


@pytest.fixture(scope="session")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of a tone."""
    seconds = np.arange(10 * TONE_RATE) / TONE_RATE
    return write_wav(
        tmp_path_factory.mktemp("tone") / "tone.wav",
        (0.5 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32),
        TONE_RATE,
    )


@pytest.fixture
async def page(open_window: OpenWindow, microphone: Path) -> AsyncIterator[Page]:
    """A window of Chromium whose microphone plays the tone, for tests whose pages have no errors."""
    async with open_window(microphone) as page:
        yield page
        assert page.errors == []


@pytest.fixture
async def page_server() -> AsyncIterator[FakeServer]:
    """The fake server. A test may set its fields before the page connects."""
    async with serve(FakeServer()) as server:
        yield server
