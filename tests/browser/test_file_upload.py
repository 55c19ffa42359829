"""The JavaScript client's upload of a file, from a real browser to the real service."""

import asyncio
import base64
from pathlib import Path

import pytest

from tests.browser.chromium import OpenWindow
from tests.recordings import AUDIO, TEXTS, words
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.browser

UPLOAD = """(async () => {
    const { transcribeFile } = await import("/static/tutti/index.js");
    const bytes = Uint8Array.from(atob("BASE64"), (character) => character.charCodeAt(0));
    const events = [];
    const sent = [];
    const onProgress = ({ sentBytes }) => sent.push(sentBytes);
    const file = new File([bytes], "train.flac");
    for await (const event of transcribeFile(location.origin, file, { language: "en", onProgress })) events.push(event);
    return { events, sent, size: bytes.length };
})()"""


async def test_a_browser_uploads_a_file_and_receives_its_text(open_window: OpenWindow, microphone: Path) -> None:
    """The events are those of a session, and the progress ends with the size of the file."""
    settings = small_settings()
    encoded = base64.b64encode((AUDIO / "train.flac").read_bytes()).decode()
    async with (
        Engine.start(EngineConfig(model=SMALL_MODEL)) as engine,
        open_window(microphone) as page,
    ):
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            await page.open(f"http://127.0.0.1:{listener.getsockname()[1]}")
            answer = await page.evaluate(UPLOAD.replace("BASE64", encoded))
            server.stop()
            await serving
        assert page.errors == []
    kinds = [event["type"] for event in answer["events"]]
    assert kinds == ["segment"] * (len(kinds) - 2) + ["utterance", "stopped"]
    assert words(answer["events"][-2]["text"]) == words(TEXTS["train"])
    assert answer["sent"][-1] == answer["size"] == max(answer["sent"])
