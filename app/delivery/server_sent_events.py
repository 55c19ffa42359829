"""Server-sent events to one client, who may be slow or wait long for the next one."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Send

# A comment, which clients pass over. Proxies and clients take a connection on which nothing comes for a dead one.
PING = ": still at it\n\n"
PING_EVERY_S = 15.0


class EventStream:
    """The body of an answer. It begins with the first frame, so that until then another answer can be given."""

    def __init__(self, send: Send, headers: dict[str, str], send_timeout_s: float) -> None:
        self._send = send
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **headers,
        }
        self._send_timeout_s = send_timeout_s
        self.has_begun = False

    async def send(self, frame: str) -> None:
        """Send whole frames.

        Raises:
            ClientDisconnect: the client did not read for the time allowed.
        """
        if not self.has_begun:
            self.has_begun = True
            headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send_body(frame.encode(), more_body=True)

    async def end(self) -> None:
        await self._send_body(b"", more_body=False)

    async def _send_body(self, body: bytes, more_body: bool) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        except TimeoutError:
            raise ClientDisconnect from None
