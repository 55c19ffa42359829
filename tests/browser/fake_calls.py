"""A scripted server of the page for call records, and a record that the real code makes."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.browser.fake_server import FakeServer
from tests.browser.page import BrowserPage
from tutti_server.app.files.call_record import Stretch, make_record
from tutti_server.app.files.call_rendering import as_json
from tutti_server.app.server.routes import CALLS_HEADERS, STATIC, file_at
from tutti_server.app.session.messages.events import Redaction, Word

DROP = """((files) => {
    const transfer = new DataTransfer();
    for (const [name, type, data] of files) {
        const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
        transfer.items.add(new File([bytes], name, {type}));
    }
    document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
})(%s)"""
"""Drops files on the page: their names, types, and bytes in base64."""


def said(speaker: str, start_s: float, text: str, confidence: float = 0.9, **more: Any) -> Stretch:
    """A stretch of text whose words last 0.4 s each, without pauses."""
    words = tuple(
        Word(each, round(start_s + 0.4 * n, 3), round(start_s + 0.4 * (n + 1), 3), confidence)
        for n, each in enumerate(text.split())
    )
    return Stretch(speaker=speaker, start_s=start_s, end_s=words[-1].end_s, text=text, words=words, **more)


STRETCHES = (
    said("agent", 0.4, "Good morning, this is the service."),
    # It begins before the agent has finished, and goes on.
    said("caller", 2.0, "Hello, my heating is broken & cold."),
    # It begins before its first word, as segments do.
    replace(said("agent", 9.0, "I see. Is it hoolly broken?", 0.3), start_s=8.7),
    said("caller", 12.0, "My card is [CARD_NUMBER] thanks.", redactions=(Redaction("card", 13.2, 13.6),)),
)
RECORD = as_json(make_record(STRETCHES, 16.0))
"""An interruption at 2.0 s, silence from 4.8 to 9.0 s, and something redacted."""
JOB = "job_1"


@dataclass
class FakeCalls(FakeServer):
    """A server whose only job has this result, and which makes the same record of each recording."""

    result: Response = field(default_factory=lambda: JSONResponse(RECORD))

    def app(self) -> Starlette:
        own = [
            Route("/calls", file_at(STATIC / "calls.html", CALLS_HEADERS)),
            Route("/v1/jobs/{id}/result", self._result),
        ]
        return Starlette(routes=[*own, *super().app().routes])

    async def _result(self, request: Request) -> Response:
        if not self._admits(request):
            return JSONResponse({"error": {"code": "invalid_api_key", "message": "a wrong key"}}, status_code=401)
        if request.path_params["id"] != JOB:
            return JSONResponse({"error": {"code": "not_found", "message": "there is no such job"}}, status_code=404)
        return self.result

    async def _transcribe(self, request: Request) -> Response:
        refusal = await super()._transcribe(request)
        return refusal if refusal.status_code != 200 else JSONResponse(RECORD)

    def _admits(self, request: Request) -> bool:
        return self.api_key is None or request.headers.get("authorization") == f"Bearer {self.api_key}"


async def drop(page: BrowserPage, *files: tuple[str, str, str]) -> None:
    """Drop files on the page: names, types, and bytes in base64."""
    await page.evaluate(DROP % json.dumps(files))


def as_file(record: Any, name: str = "monday.json") -> tuple[str, str, str]:
    """A record as a file that `drop` takes."""
    return name, "application/json", base64.b64encode(json.dumps(record).encode()).decode()


def texts_of(selector: str) -> str:
    """An expression: the texts of all elements with this selector."""
    return f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText.trim())"


def turn_texts(record: dict[str, Any]) -> Sequence[str]:
    """The texts of a record's turns."""
    return [turn["text"] for turn in record["turns"]]
