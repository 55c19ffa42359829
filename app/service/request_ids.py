"""An id on every HTTP answer, by which a client and the log mean the same request; an answer where a route fails."""

import logging
from collections.abc import MutableMapping
from secrets import token_hex
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import RequestError
from app.service.http_errors import error_response

logger = logging.getLogger(__name__)

HEADER = "x-request-id"
_STATE = "request_id"
_STARTS = ("http.response.start", "websocket.http.response.start")


def request_id(scope: MutableMapping[str, Any]) -> str:
    """The id of the request that this scope belongs to; made when it is first asked for."""
    state = scope.setdefault("state", {})
    made: str = state.setdefault(_STATE, f"req_{token_hex(12)}")
    return made


class RequestIds:
    """ASGI middleware. OpenAI's clients show the header's value as `_request_id` and in their errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        # The server gives the state of its lifespan to all requests alike.
        scope["state"] = dict(scope.get("state", {}))
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] in _STARTS:
                has_started = True
                MutableHeaders(scope=message).setdefault(HEADER, request_id(scope))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            if scope["type"] != "http" or has_started:
                raise
            logger.exception("[%s] %s %s failed", request_id(scope), scope["method"], scope["path"])
            error = RequestError(500, f"our fault; the log knows it as {request_id(scope)}", code="internal_error")
            await error_response(error)(scope, receive, send_with_id)
