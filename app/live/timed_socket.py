"""A WebSocket on which every wait has a limit of wall-clock time."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from tutti_server.app.errors import IdleTimeout
from tutti_server.app.service.client_connections import cut_slow
from tutti_server.app.session.core.effects import Close

CLOSE_CODE_MISSING = 1005
"""The code that stands for a close frame without a code (RFC 6455, section 7.4.1)."""


class TimedSocket:
    """One accepted WebSocket. Each method waits for a limited time only."""

    def __init__(
        self, websocket: WebSocket, send_timeout_s: float, flush_after_s: float | None, first_messages: Sequence[str]
    ) -> None:
        """Wrap a WebSocket.

        Args:
            websocket: accepted before the first use.
            send_timeout_s: the seconds after which a client that does not read a message is disconnected.
            flush_after_s: the seconds without a message after which audio becomes final text, for wire formats without
                a flush message; `None` never flushes by itself.
        """
        self.send_timeout_s = send_timeout_s
        self.client_code: int | None = None
        """The code with which the client has closed; `None` if it has not."""
        self._websocket = websocket
        self._flush_after_s = flush_after_s
        self._first_messages = deque(first_messages)

    async def receive(self, idle_timeout_s: float | None, on_flush_due: Callable[[], None] | None) -> str | bytes:
        """Return the client's next message.

        Args:
            idle_timeout_s: how long to wait for it; `None` waits without limit.
            on_flush_due: called once when the client has sent nothing for `flush_after_s`; `None`: never.

        Raises:
            IdleTimeout: the client sent no message in time.
            WebSocketDisconnect: the client has left.
        """
        if self._first_messages:
            return self._first_messages.popleft()
        try:
            async with asyncio.timeout(idle_timeout_s):
                message = await self._receive_or_flush(on_flush_due)
        except TimeoutError:
            raise IdleTimeout(f"no message for {idle_timeout_s:g} s") from None
        if message["type"] == "websocket.disconnect":
            self.client_code = message.get("code", CLOSE_CODE_MISSING)
            raise WebSocketDisconnect(self.client_code)
        content: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
        return content

    async def send(self, message: str) -> None:
        """Send one text message.

        Raises:
            TimeoutError: the client did not read for `send_timeout_s`.
            WebSocketDisconnect, RuntimeError: the client has left; Starlette raises either of them.
        """
        async with asyncio.timeout(self.send_timeout_s):
            await self._websocket.send_text(message)

    def cut(self) -> bool:
        """End the connection of a client that does not read, at once. False under another server than ours."""
        return cut_slow(self._websocket.scope)

    async def close(self, close: Close) -> None:
        """Close the WebSocket. A client that has left, or does not read, is not an error here."""
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(self.send_timeout_s):
                await self._websocket.close(close.code, close.reason)

    async def _receive_or_flush(self, on_flush_due: Callable[[], None] | None) -> Message:
        if on_flush_due is not None and self._flush_after_s is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_after_s):
                    return await self._websocket.receive()
            on_flush_due()
        return await self._websocket.receive()
