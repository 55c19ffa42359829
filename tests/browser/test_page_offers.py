"""What the page offers before anything is said: the sample, and the code of a program that does the same."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.app.conftest import running
from tests.app.dialects.openai.test_files_endpoint import TALK, wav
from tests.browser.axe import violations
from tests.browser.chromium import OpenWindow, Page
from tests.browser.fake_server import MODEL, FakeServer, Step, final, serve
from tests.browser.test_page_features import open_with
from tests.fakes import FakeTranscriber
from tutti_server.app.server.plugins import make_settings

pytestmark = pytest.mark.browser

CODE = "document.querySelector('#code').textContent"
PAGE = "<!doctype html><title>A page</title><button>Start</button>"
HOTWORDS = ["Ada's", "@HDMI"]


class CodeServer(FakeServer):
    """A fake server that serves the code of the page as a page of its own, too."""

    code = ""

    def app(self) -> Starlette:
        own = [Route("/own", self._own), Route("/own.js", self._script)]
        return Starlette(routes=[*own, *super().app().routes])

    async def _own(self, request: Request) -> Response:
        return HTMLResponse(f'{PAGE}<script type="module" src="own.js"></script>')

    async def _script(self, request: Request) -> Response:
        return Response(self.code, media_type="text/javascript")


@pytest.fixture
async def code_server() -> AsyncIterator[CodeServer]:
    async with serve(CodeServer()) as server:
        yield server


@pytest.mark.nightly
async def test_the_sample_is_played_and_becomes_text(
    page_server: FakeServer, microphone: Path, open_window: OpenWindow
) -> None:
    """It is sent as a microphone's sound is, needs no microphone, and ends the session when it ends."""
    page_server.script = [Step(1.0, final(" Printing."))]
    page_server.sample = microphone
    async with open_window(None) as page:
        await open_with(page, page_server, {})
        await page.evaluate("navigator.mediaDevices.getUserMedia = undefined")
        assert await violations(page) == []
        await page.click("#play-sample")
        await page.wait_for("document.querySelector('#status').textContent === 'Listening'")
        await page.wait_for("document.querySelector('#finals').innerText.includes('Printing.')")
        await page.wait_for("document.body.dataset.state === 'done'")
        assert page_server.starts[0]["language"] == "en"
        assert page_server.loud_s == pytest.approx(10, abs=1)
        assert await page.evaluate("document.activeElement.id") == "toggle"
        assert page.errors == []


async def code_of(page: Page, language: str) -> str:
    await page.click(f"label:has([value={language}])")
    code: str = await page.evaluate(CODE)
    return code


async def run(*command: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.nightly
async def test_the_code_does_what_the_page_does(code_server: CodeServer, page: Page, tmp_path: Path) -> None:
    """Each text runs as it stands, with the options of the page, and shows no key."""
    (tmp_path / "talk.mp3").write_bytes(wav(TALK))
    code_server.script = [Step(0.1, final(" Hello."))]
    settings = {"language": "", "candidates": ["en", "de"], "hotwords": ", ".join(HOTWORDS), "lock": True}
    await open_with(page, code_server, settings)
    await page.click("#show-code")
    assert await violations(page) == []
    codes = {language: await code_of(page, language) for language in ("python", "javascript", "curl")}
    assert 'language="lock"' in codes["python"] and "language=lock" in codes["curl"]
    wait_for_click = "await new Promise((done) => document.addEventListener('click', done));"
    code_server.code = (
        codes["javascript"]
        .replace("console.log", "document.body.textContent = ")
        .replace("// Call this from a click.", f"document.body.dataset.isLoaded = true; {wait_for_click}")
    )
    await page.open(f"{code_server.url}/own")
    await page.wait_for("document.body.dataset.isLoaded")
    await page.click("button")
    await page.wait_for("document.body.textContent.trim() === 'Hello.'")
    (start,) = code_server.starts
    wanted = {"language": "lock", "languages": ["en", "de"], "hotwords": HOTWORDS}
    assert {name: start[name] for name in wanted} == wanted

    async with running(make_settings({"port": 0}), FakeTranscriber()) as real:
        python, curl = (codes[name].replace(code_server.url, real.http) for name in ("python", "curl"))
        printed = await run(sys.executable, "-c", python, folder=tmp_path)
        answer = await run("sh", "-c", curl.replace("curl", "curl --silent --show-error", 1), folder=tmp_path)
        options = [window.options for window in real.transcriber.windows]
    transcript = json.loads(answer)
    assert "warnings" not in transcript and transcript["text"]
    assert [line.split(" ", 1)[1] for line in printed.splitlines()] == [
        segment["text"].strip() for segment in transcript["segments"]
    ]
    assert {(each.languages, each.hotwords) for each in options} == {(("en", "de"), tuple(HOTWORDS))}

    await open_with(page, code_server, settings)
    await page.evaluate("document.querySelector('#key').value = 'secret'")
    await page.evaluate("document.querySelector('#key-form').requestSubmit()")
    await page.wait_for("document.body.dataset.state === 'live'")
    await page.evaluate("document.querySelector('#show-code-too').click()")
    for language in codes:
        with_key = await code_of(page, language)
        assert "YOUR_API_KEY" in with_key and "secret" not in with_key


async def test_the_code_says_what_a_recording_is_without(code_server: CodeServer, open_window: OpenWindow) -> None:
    """Speakers of a recording are asked for; translations are for live sessions. The sample can be decoded.

    Cancel while the sample is fetched ends the run without a message.
    """
    settings = {"language": "en", "speakers": True, "translate": ["de"]}
    code_server.model = MODEL | {"translations": ["de"], "speakers": True}
    async with open_window(None) as page:
        await open_with(page, code_server, settings)
        await page.click("#show-code")
        assert "response_format=diarized_json" in await code_of(page, "curl")
        note = "document.querySelector('#code-note').textContent"
        assert await page.evaluate(note) == "A recording, in any format. Without translations: live sessions have them."
        code = await code_of(page, "python")
        assert "max_speakers=10" in code and "{event.speaker}: {event.text.strip()}" in code
        decoded = """fetch('/page/sample.flac').then((answer) => answer.arrayBuffer())
            .then((bytes) => new OfflineAudioContext(1, 1, 48000).decodeAudioData(bytes))"""
        assert await page.evaluate(f"{decoded}.then(({{duration}}) => duration)") == pytest.approx(21, abs=0.5)
        await page.evaluate("for (const id of ['play-sample', 'toggle']) document.getElementById(id).click()")
        await page.wait_for("document.body.dataset.state !== 'asking'")
        assert await page.evaluate("document.body.dataset.state") == "idle"
        assert await page.evaluate("document.querySelector('#message').hidden")
        assert page.errors == []
