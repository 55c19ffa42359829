"""Recordings on their way from a real browser through the real service, with the scripted engine."""

import base64

import numpy as np
import pytest

from tests.app.conftest import running
from tests.app.dialects.openai.test_files_endpoint import TALK, wav
from tests.browser.chromium import OpenWindow
from tests.browser.fake_calls import drop, texts_of
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.server.plugins import make_settings

pytestmark = pytest.mark.browser

UPLOAD = """(async () => {
    const { transcribeFile } = await import("/static/tutti/index.js");
    const bytes = Uint8Array.from(atob("BASE64"), (character) => character.charCodeAt(0));
    const events = [];
    const sent = [];
    const onProgress = ({ sentBytes }) => sent.push(sentBytes);
    const file = new File([bytes], "talk.wav");
    for await (const event of transcribeFile(location.origin, file, { language: "en", onProgress })) events.push(event);
    return { events, sent, size: bytes.length };
})()"""
CALL = np.stack(
    (
        np.concatenate((speech([1, 2, 3]), silence(3.0))),
        np.concatenate((silence(2.0), speech([5, 6]), silence(1.0 + len(speech([1])) / 16_000))),
    ),
    axis=1,
)
"""A side on each channel."""


async def test_recordings_become_text_and_the_record_of_a_call(open_window: OpenWindow) -> None:
    """The client's upload: its events are those of a session, and its progress ends with the size of the file.

    The page for call records: both sides, by name.
    """
    async with running(make_settings({"port": 0}), FakeTranscriber()) as server, open_window(None) as page:
        await page.open(f"{server.http}/calls")
        answer = await page.evaluate(UPLOAD.replace("BASE64", base64.b64encode(wav(TALK)).decode()))
        call = base64.b64encode(wav(CALL.reshape(-1), n_channels=2)).decode()
        await drop(page, ("call.wav", "audio/wav", call))
        await page.wait_for("document.activeElement.id === 'channel-names'")
        await page.evaluate("document.activeElement.select()")
        await page.type_text("agent, customer")
        await page.press_enter()
        await page.wait_for("document.body.dataset.state === 'open'")
        names = await page.evaluate(texts_of(".turn .name"))
        texts = await page.evaluate("[...document.querySelectorAll('.said')].map((each) => each.textContent)")
        assert page.errors == []
    assert [event["type"] for event in answer["events"]] == ["segment", "utterance"] * 2 + ["stopped"]
    heard = [event["text"].strip() for event in answer["events"] if event["type"] == "utterance"]
    assert heard == [said([1, 2, 3, 4]), said([5, 6, 7])]
    assert answer["sent"][-1] == answer["size"] == max(answer["sent"])
    assert (names, texts) == (["agent", "customer"], [said([1, 2, 3]), said([5, 6])])
