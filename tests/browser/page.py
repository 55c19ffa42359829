"""What the tests ask of a page in any browser, and the parts that are the same in all of them."""

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

START_TIMEOUT_S = 40
"""How long a start may take, in seconds: two of them fit into the time limit of a test."""
COMMAND_TIMEOUT_S = 60
MAX_MESSAGE_BYTES = 64 * 2**20
"""The largest message of a browser. Screenshots of a whole page are larger than the default of 1 MiB."""


class PageError(Exception):
    """JavaScript raised an error, or the browser refused a command."""


class BrowserPage(ABC):
    """One tab of a browser. Nothing is polled: every wait is a promise in the page."""

    @property
    @abstractmethod
    def errors(self) -> list[str]:
        """Uncaught exceptions and console errors so far."""

    @abstractmethod
    async def evaluate(self, expression: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""

    @abstractmethod
    async def open(self, url: str) -> None:
        """Open a URL, and wait until the document and its modules have been loaded and have run."""

    @abstractmethod
    async def reload(self) -> None:
        """Load the document again as the user does, and wait as `open` does."""

    @abstractmethod
    async def run_before(self, script: str) -> None:
        """Run a script in every document that is opened from now on, before the scripts of the document."""

    @abstractmethod
    async def click(self, selector: str) -> None:
        """Click in the middle of the element. The browser treats it as a click of the user."""

    @abstractmethod
    async def type_text(self, text: str) -> None:
        """Type into the element that has the focus."""

    @abstractmethod
    async def press_enter(self) -> None:
        """Press the Enter key."""

    @abstractmethod
    async def show_as(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the window in CSS pixels, and the colour scheme.

        A user who wants less motion is emulated where the browser can (Chromium): nothing slides away from a click.
        """

    @abstractmethod
    async def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG."""

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

    async def come_to_rest(self) -> None:
        """Wait for the end of all animations that end, such as that of a sheet that opens."""
        await self.evaluate("""Promise.allSettled(document.getAnimations()
            .filter(({effect}) => Number.isFinite(effect.getComputedTiming().endTime))
            .map(({finished}) => finished))""")

    async def middle(self, selector: str) -> dict[str, float]:
        """The middle of the element in CSS pixels: `x` and `y`."""
        place: dict[str, float] = await self.evaluate(f"""(() => {{
            const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        }})()""")
        return place


class OpenPage(Protocol):
    """Opens a page in a new browser, which is closed at the end of the block."""

    def __call__(
        self, profile: Path, microphone: Path | None, flags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[BrowserPage]:
        """Open the page.

        Args:
            profile: a folder that is empty or does not exist.
            microphone: a WAV file that is played once, from the moment when the page opens the microphone. None: the
                browser refuses the microphone.
            flags: further flags of the program.
        """


async def line_after(stream: asyncio.StreamReader, mark: str, program: str) -> str:
    """What stands after `mark` in the first line of the program's output that has it.

    Raises:
        PageError: the output ended before. The message has its last lines.
    """
    output = []
    async for line in stream:
        text = line.decode(errors="replace").strip()
        _, found, rest = text.partition(mark)
        if found:
            return rest
        output.append(text)
    raise PageError(f"{program} did not start:\n" + "\n".join(output[-20:]))


async def start_browser(
    name: str, command: Sequence[str | Path], mark: str, environment: Mapping[str, str] | None = None
) -> tuple[asyncio.subprocess.Process, str]:
    """Start a browser, and wait for the address that it prints after `mark`.

    A start that fails is repeated once, and reported on the standard error of the test run: browsers now and then end
    while they start, which says nothing of the page.

    Raises:
        PageError: both starts failed.
        TimeoutError: the second start took longer than `START_TIMEOUT_S`.
    """
    for is_last in (False, True):
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                return process, await line_after(process.stderr, mark, name)
        except BaseException as error:
            if process.returncode is None:
                process.kill()
            await process.wait()
            if is_last or not isinstance(error, PageError | TimeoutError):
                raise
            print(f"{name} did not start, and is started again: {error!r}", file=sys.__stderr__)
    raise AssertionError("unreachable")


async def drain(stream: asyncio.StreamReader) -> None:
    """Read the output of a program to its end. A full pipe would stop it."""
    while await stream.read(65536):
        pass
