"""A headless Firefox whose microphone is a WAV file, controlled through WebDriver BiDi.

Firefox runs the audio of a page only where there is a sound card, so it gets one that is silent.
"""

import asyncio
import base64
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
from tests.browser.sound import has_pulseaudio, sound_card

NAMES = ("firefox-esr", "firefox")
PREFERENCES: Mapping[str, bool | int] = {
    "app.update.enabled": False,
    "browser.newtabpage.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    # Pages have light colours, whatever the desktop has. No command of version 140 sets a preference later.
    "layout.css.prefers-color-scheme.content-override": 1,
    "media.autoplay.default": 0,
    # A device that plays a tone, in the place of the machine's.
    "media.navigator.streams.fake": True,
}
GRANTED: Mapping[str, bool | int] = {"media.navigator.permission.disabled": True}
REFUSED: Mapping[str, bool | int] = {"permissions.default.microphone": 2}
NETWORK_ERRORS = ("The connection to ", "Firefox can’t establish a connection to the server at ")
"""How messages about a lost or refused WebSocket begin. They tell about the network, not about errors of the page."""
ENTER = "\ue007"
"""The Enter key. Source: WebDriver, "normalised key values"."""

MICROPHONE = """
    const Context = AudioContext;
    if (navigator.mediaDevices !== undefined) {
      navigator.mediaDevices.getUserMedia = async () => {
        const context = new Context();
        const wav = Uint8Array.from(atob("%(wav)s"), (character) => character.charCodeAt(0));
        const buffer = await context.decodeAudioData(wav.buffer);
        const source = new AudioBufferSourceNode(context, {buffer});
        const destination = context.createMediaStreamDestination();
        source.connect(destination);
        await context.resume();
        source.start();
        return destination.stream;
      };
    }
"""
"""Runs before each page: the recording takes the place of the tone."""


def find_firefox() -> str:
    """The path of the program. Without one the test is skipped, or fails if TUTTI_REQUIRE_FIREFOX is 1."""
    paths = [path for name in NAMES if (path := shutil.which(name)) is not None]
    if paths and has_pulseaudio():
        return paths[0]
    reason = "Firefox with a sound server is not installed: apt install firefox-esr pulseaudio"
    if os.environ.get("TUTTI_REQUIRE_FIREFOX") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class FirefoxPage(BrowserPage):
    """One tab of Firefox."""

    def __init__(self, bidi: "Bidi", context: str) -> None:
        self._bidi = bidi
        self._context = context

    @property
    def errors(self) -> list[str]:
        return self._bidi.errors

    async def evaluate(self, expression: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        return await self._bidi.evaluate(self._context, expression, timeout_s)

    async def open(self, url: str) -> None:
        await self._command("browsingContext.navigate", url=url, wait="complete")

    async def reload(self) -> None:
        await self._command("browsingContext.reload", wait="complete")

    async def run_before(self, script: str) -> None:
        function = f"() => {{ {script} }}"
        await self._bidi.command("script.addPreloadScript", functionDeclaration=function, contexts=[self._context])

    async def click(self, selector: str) -> None:
        place = await self._pixel(selector)
        press, release = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        await self._act("pointer", {"type": "pointerMove", **place}, press, release)

    async def type_text(self, text: str) -> None:
        await self._act("key", *({"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")))

    async def press_enter(self) -> None:
        await self.type_text(ENTER)

    async def show_as(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        if dark:
            raise PageError("expected light colours in Firefox, got dark ones; Chromium shows both")
        viewport = {"width": width, "height": height}
        await self._command("browsingContext.setViewport", viewport=viewport, devicePixelRatio=scale)

    async def screenshot(self, path: Path) -> None:
        answer = await self._command("browsingContext.captureScreenshot")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))

    async def _command(self, method: str, **params: object) -> dict[str, Any]:
        return await self._bidi.command(method, context=self._context, **params)

    async def _act(self, device: str, *actions: dict[str, Any]) -> None:
        source = {"type": device, "id": device, "actions": list(actions)}
        await self._command("input.performActions", actions=[source])

    async def _pixel(self, selector: str) -> dict[str, int]:
        return {axis: round(value) for axis, value in (await self.middle(selector)).items()}


class Bidi:
    """WebDriver BiDi of the browser: commands, and the errors that pages report."""

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = CommandSocket(socket, self._on_event)

    async def read(self) -> None:
        """Read messages until the browser closes the socket."""
        await self._socket.read()

    async def command(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and wait for its result."""
        return await self._socket.command(method, params)

    async def evaluate(self, context: str, expression: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        """The value of a JavaScript expression in a tab or a window; a promise is awaited."""
        params = {"expression": expression, "target": {"context": context}, "awaitPromise": True}
        answer = await self._socket.command("script.evaluate", params, timeout_s)
        if answer["type"] == "exception":
            raise PageError(answer["exceptionDetails"]["text"])
        return plain(answer["result"])

    def _on_event(self, message: dict[str, Any]) -> None:
        if message["method"] != "log.entryAdded" or message["params"]["level"] != "error":
            return
        text = message["params"]["text"]
        if not text.startswith(NETWORK_ERRORS):
            self.errors.append(text)


def plain(value: dict[str, Any]) -> Any:
    """The Python value of a JavaScript value in BiDi's form. What is no data, such as an element, becomes None."""
    match value["type"]:
        case "string" | "boolean":
            return value["value"]
        case "number":
            # Infinity, NaN and -0 come as text.
            number = value["value"]
            return float(number) if isinstance(number, str) else number
        case "array":
            return [plain(each) for each in value["value"]]
        case "object":
            return {key: plain(each) for key, each in value["value"]}
    return None


@asynccontextmanager
async def open_page(profile: Path, microphone: Path | None, flags: Sequence[str] = ()) -> AsyncIterator[FirefoxPage]:
    """Open a page in a new Firefox: see `OpenPage`."""
    program = find_firefox()
    _write_preferences(profile, GRANTED if microphone is not None else REFUSED)
    command = [
        *(program, "--headless", "--no-remote", "--profile", str(profile)),
        *("--remote-debugging-port=0", *flags),
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with sound_card(Path(folder)) as sound:
            process, url = await start_browser(
                "Firefox", [*command, "about:blank"], "WebDriver BiDi listening on ", {**os.environ, **sound}
            )
            try:
                async with _page_of(process, url) as page:
                    if microphone is not None:
                        wav = base64.b64encode(await asyncio.to_thread(microphone.read_bytes)).decode()
                        await page.run_before(MICROPHONE % {"wav": wav})
                    yield page
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


@asynccontextmanager
async def _page_of(process: asyncio.subprocess.Process, url: str) -> AsyncIterator[FirefoxPage]:
    assert process.stderr is not None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(drain(process.stderr))
        async with connect(
            f"{url}/session", max_size=MAX_MESSAGE_BYTES, proxy=None, open_timeout=START_TIMEOUT_S
        ) as socket:
            bidi = Bidi(socket)
            tasks.create_task(bidi.read())
            await bidi.command("session.new", capabilities={})
            await bidi.command("session.subscribe", events=["log.entryAdded"])
            (tab,) = (await bidi.command("browsingContext.getTree"))["contexts"]
            yield FirefoxPage(bidi, tab["context"])
            await bidi.command("browser.close")


def _write_preferences(profile: Path, permission: Mapping[str, bool | int]) -> None:
    profile.mkdir(parents=True, exist_ok=True)
    preferences = {**PREFERENCES, **permission}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()]
    (profile / "user.js").write_text("".join(lines))
