"""A scripted server with one room: pages with a `<tutti-captions>`, and events for readers as docs/protocol.md says."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.browser.chromium import Page
from tests.browser.fake_server import FakeServer, Message
from tutti_server.app.server.answer_headers import PAGE_POLICY
from tutti_server.app.server.routes import STATIC

ELEMENT_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Captions</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<script type="module" src="/static/tutti/element/index.js"></script>
<main><h1>A page</h1><tutti-captions id="captions"><p>Press start.</p></tutti-captions></main></html>
"""


@dataclass
class FakeRoom(FakeServer):
    """A server whose room is `choir`. Readers get `history` first, and then what `publish` is given."""

    is_open: bool = True
    """Whether the room exists."""
    is_live: bool = True
    title: str = "Sunday"
    history: list[Message] = field(default_factory=list)
    last_ids: list[str | None] = field(default_factory=list)
    """The id of the last event that each reader has, as its request says."""
    is_forgetful: bool = False
    """Whether the server does not know these ids."""
    _readers: set[asyncio.Queue[Message | None]] = field(default_factory=set)

    def publish(self, *messages: Message) -> None:
        """Send messages to the readers. What is final joins the history."""
        for message in messages:
            if message["type"] in ("segment", "utterance", "translation"):
                self.history.append(message)
            for reader in self._readers:
                reader.put_nowait(message)

    def drop_readers(self) -> None:
        """End the connections of all readers."""
        for reader in self._readers:
            reader.put_nowait(None)

    def app(self) -> Starlette:
        own = [
            Route("/element", self._element),
            Route("/captions/choir/events", self._events),
            Route("/captions/choir", self._room),
        ]
        return Starlette(routes=[*own, *super().app().routes])

    async def _element(self, request: Request) -> Response:
        return HTMLResponse(ELEMENT_PAGE, headers={"Content-Security-Policy": PAGE_POLICY})

    async def _room(self, request: Request) -> Response:
        status = 200 if self.is_open else 404
        return FileResponse(STATIC / "room.html", status, headers={"Content-Security-Policy": PAGE_POLICY})

    async def _events(self, request: Request) -> Response:
        if not self.is_open:
            return Response(status_code=404)
        if request.method == "HEAD":
            # Without an end, the next request of this connection would wait for it.
            return Response(media_type="text/event-stream")
        last_id = request.headers.get("last-event-id") or request.query_params.get("after")
        self.last_ids.append(last_id)
        seen = 0 if last_id is None or self.is_forgetful else int(last_id)
        return StreamingResponse(self._stream_events(seen), media_type="text/event-stream")

    async def _stream_events(self, seen: int) -> AsyncIterator[str]:
        """The history after the events that the reader has, and then what is published."""
        reader: asyncio.Queue[Message | None] = asyncio.Queue()
        self._readers.add(reader)
        try:
            room = {"type": "room", "name": "choir", "title": self.title, "live": self.is_live, "resumed": seen > 0}
            begin = [f"data: {json.dumps(message)}\n\n" for message in [room, *self.history[seen:]]]
            # Browsers wait for three seconds before they connect again, unless they are asked for less.
            yield "retry: 50\n\n" + "".join(begin)
            while (next_message := await reader.get()) is not None:
                yield f"id: {len(self.history)}\ndata: {json.dumps(next_message)}\n\n"
        finally:
            self._readers.remove(reader)


INSIDE = "document.querySelector('tutti-captions').shadowRoot"


async def wait_inside(page: Page, condition: str, timeout_s: float = 30) -> None:
    """Wait until a JavaScript expression is truthy. It is evaluated after each change inside the element.

    `part(name)` is the text of a part, and `root` the shadow root.
    """
    await page.evaluate(
        f"""new Promise((resolve) => {{
            const root = {INSIDE};
            const part = (name) => root.querySelector('.' + name).textContent;
            const check = () => {{
                if ({condition}) {{ observer.disconnect(); resolve(); }}
            }};
            const observer = new MutationObserver(check);
            observer.observe(root, {{subtree: true, childList: true, characterData: true, attributes: true}});
            check();
        }})""",
        timeout_s,
    )


async def lines(page: Page) -> list[str]:
    """The final lines that the element shows."""
    shown: list[str] = await page.evaluate(f"""[...{INSIDE}.querySelectorAll('.finals .line')]
        .filter((line) => !line.hidden).map((line) => line.innerText.trim().replaceAll(/\\n+/g, '\\n'))""")
    return shown
