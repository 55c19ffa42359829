"""A headless Chromium whose microphone is a WAV file, controlled through the DevTools protocol."""

import asyncio
import base64
import os
import shutil
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.browser.command_socket import CommandSocket
from tests.browser.page import (
    COMMAND_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    START_TIMEOUT_S,
    BrowserPage,
    PageError,
    drain,
    start_browser,
)

NAVIGATION_TIMEOUT_S = 20
"""How long Chromium may take to begin with a page. Then it is asked once more."""
END_TIMEOUT_S = 20
"""How long Chromium may take to end when it is told to. Then it is killed."""
LOAD_EVENT_TIMEOUT_S = 10
"""How long the event of a loaded page is waited for before the page itself is asked."""
COMPLETE = """new Promise((resolve) => {
    const check = () => document.readyState === 'complete' && resolve();
    document.addEventListener('readystatechange', check);
    check();
})"""
"""A promise that the document has been loaded."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """The path of the program. Without one the test is skipped, or fails if TUTTI_REQUIRE_BROWSER is 1."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    reason = "Chromium is not installed: apt install chromium"
    if os.environ.get("TUTTI_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def write_wav(path: Path, samples: npt.NDArray[np.float32], sample_rate: int) -> Path:
    """Write mono samples in [-1, 1] as 16-bit PCM."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return path


class Page(BrowserPage):
    """One tab of Chromium."""

    def __init__(self, devtools: "DevTools", session_id: str) -> None:
        self._devtools = devtools
        self._session_id = session_id

    @property
    def errors(self) -> list[str]:
        return self._devtools.errors

    async def command(self, method: str, **params: object) -> dict[str, Any]:
        return await self._devtools.command(method, self._session_id, COMMAND_TIMEOUT_S, **params)

    async def evaluate(self, expression: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        method, tab = "Runtime.evaluate", self._session_id
        answer = await self._devtools.command(
            method, tab, timeout_s, expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def open(self, url: str) -> None:
        await self._load("Page.navigate", url=url)

    async def reload(self) -> None:
        await self._load("Page.reload")

    async def _load(self, method: str, **params: object) -> None:
        """Load a page.

        Once in some thousand loads Chromium begins none, or tells nothing of its end. So it is asked a second time,
        and the page for its own state. A server that does not answer does not answer the second time either.
        """
        loaded = self._devtools.expect_event("Page.loadEventFired", self._session_id)
        try:
            async with asyncio.timeout(NAVIGATION_TIMEOUT_S):
                await self.command(method, **params)
        except TimeoutError:
            await self.command(method, **params)
        try:
            async with asyncio.timeout(LOAD_EVENT_TIMEOUT_S):
                await loaded
        except TimeoutError:
            await self._require_loaded()

    async def _require_loaded(self) -> None:
        """Wait until the document is complete.

        Raises:
            PageError: it does not become so; with what it waits for.
        """
        try:
            await self.evaluate(COMPLETE)
        except TimeoutError as error:
            resources = "performance.getEntriesByType('resource').map((e) => `${e.name} ${e.responseEnd}`)"
            state = f"`${{location.href}} ${{document.readyState}}: ${{{resources}.join(', ')}}`"
            raise PageError(f"not loaded: {await self.evaluate(state)}") from error

    async def run_before(self, script: str) -> None:
        await self.command("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def open_tab(self) -> "Page":
        """Open another tab beside this one, with an empty page."""
        return await self._devtools.open_tab(is_hidden=True)

    async def click(self, selector: str) -> None:
        place = await self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            await self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    async def type_text(self, text: str) -> None:
        await self.command("Input.insertText", text=text)

    async def press_enter(self) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.command(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )

    async def show_as(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme, motion])

    async def screenshot(self, path: Path) -> None:
        answer = await self.command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))


class DevTools:
    """The DevTools of the browser: commands for it and for its tabs, and their events."""

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = CommandSocket(socket, self._on_message)
        self._expected: list[tuple[str, str, asyncio.Future[None]]] = []

    async def read(self) -> None:
        """Read messages until the browser closes the socket."""
        await self._socket.read()

    async def command(
        self, method: str, session_id: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **params: object
    ) -> dict[str, Any]:
        """Send a command for the browser, or for the tab with this session, and wait for its result."""
        envelope = {} if session_id is None else {"sessionId": session_id}
        return await self._socket.command(method, params, timeout_s, **envelope)

    async def open_tab(self, *, is_hidden: bool = False, profile: str | None = None) -> Page:
        """Open a tab with an empty page, in front of the others or behind them; without `profile` in the first one."""
        place: dict[str, Any] = {} if profile is None else {"browserContextId": profile}
        target = await self.command("Target.createTarget", url="about:blank", background=is_hidden, **place)
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        await page.command("Page.enable")
        await page.command("Runtime.enable")
        return page

    def expect_event(self, method: str, session_id: str) -> asyncio.Future[None]:
        """A future for the next such event after this call."""
        received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected.append((method, session_id, received))
        return received

    def _on_message(self, message: dict[str, Any]) -> None:
        method, session_id, params = message["method"], message.get("sessionId", ""), message["params"]
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        for expected in [e for e in self._expected if e[:2] == (method, session_id)]:
            self._expected.remove(expected)
            if not expected[2].done():
                expected[2].set_result(None)


@dataclass(frozen=True)
class Chromium:
    """A running browser."""

    process: asyncio.subprocess.Process
    devtools_url: str


@asynccontextmanager
async def start(profile: Path, microphone: Path | None, flags: Sequence[str] = ()) -> AsyncIterator[Chromium]:
    """Start Chromium, and end it with the block: see `OpenPage` for the arguments."""
    command = [
        find_chromium(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--use-fake-device-for-media-stream",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-quic",
        # What a page does not need, and what each start would pay for.
        "--disable-extensions",
        "--disable-component-extensions-with-background-pages",
        "--disable-default-apps",
        "--disable-breakpad",
        "--disable-features=Translate,OptimizationHints,MediaRouter",
        *flags,
    ]
    if microphone is None:
        command.append("--deny-permission-prompts")
    else:
        command += ["--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    process, url = await start_browser("Chromium", [*command, "about:blank"], "DevTools listening on ")
    assert process.stderr is not None
    drained = asyncio.create_task(drain(process.stderr))
    try:
        yield Chromium(process, url)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await drained


@asynccontextmanager
async def connect_to(chromium: Chromium) -> AsyncIterator[DevTools]:
    """Its DevTools, for one client."""
    async with (
        asyncio.TaskGroup() as tasks,
        connect(chromium.devtools_url, max_size=MAX_MESSAGE_BYTES, proxy=None, open_timeout=START_TIMEOUT_S) as socket,
    ):
        devtools = DevTools(socket)
        tasks.create_task(devtools.read())
        yield devtools


@asynccontextmanager
async def open_page(profile: Path, microphone: Path | None, flags: Sequence[str] = ()) -> AsyncIterator[Page]:
    """Open a page in a new Chromium: see `OpenPage`."""
    async with start(profile, microphone, flags) as chromium, connect_to(chromium) as devtools:
        yield await devtools.open_tab()


@asynccontextmanager
async def open_window(chromium: Chromium) -> AsyncIterator[Page]:
    """Open a page in a Chromium that runs, with a profile of its own: no storage and no permission of another page."""
    async with connect_to(chromium) as devtools:
        created = await devtools.command("Target.createBrowserContext", disposeOnDetach=True)
        profile = created["browserContextId"]
        yield await devtools.open_tab(profile=profile)
        await devtools.command("Target.disposeBrowserContext", browserContextId=profile)


class OpenWindow(Protocol):
    """Opens a page for a test, in a Chromium that the tests of a process share."""

    def __call__(self, microphone: Path | None) -> AbstractAsyncContextManager[Page]:
        """Open the page. The microphone is that of `OpenPage`."""
