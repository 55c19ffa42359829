"""A headless Chromium whose microphone is a WAV file, controlled through the DevTools protocol."""

import asyncio
import base64
import json
import os
import shutil
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
MAX_MESSAGE_BYTES = 64 * 2**20
"""The largest message of the browser. Screenshots of a whole page are larger than the default of 1 MiB."""


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


class PageError(Exception):
    """JavaScript raised an error, or the browser refused a command."""


class Page:
    """One tab of the browser. Nothing is polled: every wait is a promise in the page."""

    def __init__(self, devtools: "DevTools", session_id: str) -> None:
        self._devtools = devtools
        self._session_id = session_id

    @property
    def errors(self) -> list[str]:
        """Uncaught exceptions and console errors so far."""
        return self._devtools.errors

    async def command(self, method: str, **params: object) -> dict[str, Any]:
        return await self._devtools.command(method, self._session_id, COMMAND_TIMEOUT_S, **params)

    async def evaluate(self, expression: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        method, tab = "Runtime.evaluate", self._session_id
        answer = await self._devtools.command(
            method, tab, timeout_s, expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def open(self, url: str) -> None:
        """Open a URL, and wait until the document and its modules have been loaded and have run."""
        loaded = self._devtools.expect_event("Page.loadEventFired", self._session_id)
        await self.command("Page.navigate", url=url)
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            await loaded

    async def wait_for(self, condition: str, timeout_s: float = 30) -> Any:
        """Wait until a JavaScript expression is truthy. It is evaluated after each change of the document."""
        expression = f"""new Promise((resolve) => {{
            const check = () => {{
                const value = ({condition});
                if (value) {{ observer.disconnect(); resolve(value); }}
            }};
            const observer = new MutationObserver(check);
            observer.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
            check();
        }})"""
        try:
            return await self.evaluate(expression, timeout_s)
        except TimeoutError as error:
            text = await self.evaluate("document.body.dataset.state + '\\n' + document.body.innerText")
            raise TimeoutError(f"{condition} is not true; the text of the page is:\n{text}\n{self.errors}") from error

    async def drawn(self) -> None:
        """Wait until the present document has been laid out and drawn."""
        await self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    async def turn_wheel(self, selector: str, by_px: float) -> None:
        """Turn the wheel of the mouse over the middle of the element; down is positive."""
        place = await self._middle(selector)
        await self.command("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=by_px, **place)

    async def click(self, selector: str) -> None:
        """Click in the middle of the element. The browser treats it as a click of the user."""
        place = await self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            await self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    async def _middle(self, selector: str) -> dict[str, float]:
        place: dict[str, float] = await self.evaluate(f"""(() => {{
            const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        }})()""")
        return place

    async def type_text(self, text: str) -> None:
        await self.command("Input.insertText", text=text)

    async def press_enter(self) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.command(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )

    async def show_as(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the window in CSS pixels, and the colour scheme."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, path: Path) -> None:
        answer = await self.command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))


class DevTools:
    """The DevTools socket of the browser. Answers and commands have the same id."""

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._next_id = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._expected: list[tuple[str, str, asyncio.Future[None]]] = []

    async def read(self) -> None:
        """Read messages until the browser closes the socket."""
        try:
            async for text in self._socket:
                message = json.loads(text)
                if "id" in message:
                    answer = self._answers.pop(message["id"])
                    # The browser answers also a command whose caller does not wait any more.
                    if not answer.done():
                        answer.set_result(message)
                else:
                    self._on_event(message["method"], message.get("sessionId", ""), message["params"])
        except ConnectionClosed:
            # A test that has failed closes the socket; pytest shows the error of the test.
            pass
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PageError("Chromium has closed the connection"))

    async def command(
        self, method: str, session_id: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **params: object
    ) -> dict[str, Any]:
        self._next_id += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._next_id] = answer
        message = {"id": self._next_id, "method": method, "params": params}
        if session_id is not None:
            message["sessionId"] = session_id
        await self._socket.send(json.dumps(message))
        async with asyncio.timeout(timeout_s):
            reply = await answer
        if "error" in reply:
            raise PageError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    def expect_event(self, method: str, session_id: str) -> asyncio.Future[None]:
        """A future for the next such event after this call."""
        received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected.append((method, session_id, received))
        return received

    def _on_event(self, method: str, session_id: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        for expected in [e for e in self._expected if e[:2] == (method, session_id)]:
            self._expected.remove(expected)
            if not expected[2].done():
                expected[2].set_result(None)


@asynccontextmanager
async def open_page(profile: Path, microphone: Path | None, flags: Sequence[str] = ()) -> AsyncIterator[Page]:
    """Open a page in a new browser, which is closed at the end of the block.

    Args:
        profile: an empty folder.
        microphone: a WAV file that is played once, from the moment when the page opens the microphone. None: the
            browser refuses the microphone.
        flags: of Chromium.
    """
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
        *flags,
    ]
    if microphone is None:
        command.append("--deny-permission-prompts")
    else:
        command += ["--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            url = await _devtools_url(process.stderr)
        async with asyncio.TaskGroup() as tasks:
            # Chromium writes warnings while it runs; a full pipe would stop it.
            tasks.create_task(_drain(process.stderr))
            async with connect(url, max_size=MAX_MESSAGE_BYTES, proxy=None) as socket:
                devtools = DevTools(socket)
                tasks.create_task(devtools.read())
                target = await devtools.command("Target.createTarget", url="about:blank")
                attached = await devtools.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
                page = Page(devtools, attached["sessionId"])
                await page.command("Page.enable")
                await page.command("Runtime.enable")
                yield page
                await devtools.command("Browser.close")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _devtools_url(stderr: asyncio.StreamReader) -> str:
    output = []
    async for line in stderr:
        text = line.decode(errors="replace").strip()
        _, found, url = text.partition("DevTools listening on ")
        if found:
            return url
        output.append(text)
    raise PageError("Chromium did not start:\n" + "\n".join(output[-20:]))


async def _drain(stderr: asyncio.StreamReader) -> None:
    while await stderr.read(65536):
        pass
