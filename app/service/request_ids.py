"""Gives every HTTP response an id, which is also in the log, and a response to requests whose route fails."""

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from secrets import token_hex
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tutti_server.app.errors import RequestError
from tutti_server.app.service.http_errors import error_response

logger = logging.getLogger(__name__)

HEADER = "x-request-id"
_STATE_KEY = "request_id"
CURRENT: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being served here; empty outside of requests."""
RESPONSE_STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
"""The ASGI messages that begin an answer."""


def request_id(scope: MutableMapping[str, Any]) -> str:
    """The id of the request with this scope. The first call makes it."""
    state = scope.setdefault("state", {})
    id_: str = state.setdefault(_STATE_KEY, f"req_{token_hex(12)}")
    return id_


class RequestIds:
    """ASGI middleware that adds the header `x-request-id`, which OpenAI's clients show as `_request_id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        # All requests share the state of the server's lifespan, so each one gets its own copy.
        scope["state"] = dict(scope.get("state", {}))
        CURRENT.set(request_id(scope))

        async def send_with_id(message: Message) -> None:
            if message["type"] in RESPONSE_STARTS:
                MutableHeaders(scope=message).setdefault(HEADER, request_id(scope))
                if message["type"] == "websocket.http.response.start":
                    # Without the path, which may hold a key.
                    logger.info("[%s] a WebSocket is refused: %d", request_id(scope), message["status"])
            await send(message)

        await self._app(scope, receive, send_with_id)


class Failures:
    """ASGI middleware that answers requests whose route fails. The answer passes through all others, as any does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:
            if scope["type"] != "http" or has_started:
                raise
            # Of a path, `%r` makes one line, whatever is in it.
            logger.exception("[%s] %s %r failed", request_id(scope), scope["method"], scope["path"])
            error = RequestError(500, f"our fault; the log knows it as {request_id(scope)}", code="internal_error")
            await error_response(error)(scope, receive, send)
