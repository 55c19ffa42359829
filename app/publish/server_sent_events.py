"""Server-sent events to one client, which may read slowly or wait a long time for the next event."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Send

PING = b": still at it\n\n"
"""A comment, which clients ignore. Without it, proxies and clients take a silent connection for a dead one."""
PING_EVERY_S = 15.0
"""A ping is sent after this many seconds without an event."""


class EventStream:
    """The body of a streamed response. The response starts with the first frame; until then another one may be sent."""

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

    async def send(self, frame: bytes) -> None:
        """Send one or more whole frames, which may be shared with other streams.

        Raises:
            ClientDisconnect: the client did not read for `send_timeout_s`.
        """
        if not self.has_begun:
            self.has_begun = True
            headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send_body(frame, more_body=True)

    async def end(self) -> None:
        """Complete the response; raises like `send`."""
        await self._send_body(b"", more_body=False)

    async def _send_body(self, body: bytes, more_body: bool) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        except TimeoutError:
            raise ClientDisconnect from None
