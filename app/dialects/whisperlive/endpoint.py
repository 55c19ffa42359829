"""Live sessions for clients of WhisperLive. They connect to the root of the server and cannot name a path."""

import asyncio
from contextlib import suppress

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tutti_server.app.background import until_disconnect
from tutti_server.app.dialects.whisperlive.wire import MAX_TEXT_CHARS, WhisperLive
from tutti_server.app.errors import (
    CLOSE_OVERLOADED,
    RETRY_AFTER_S,
    KeyLimitExceeded,
    LimitExceeded,
    RequestError,
    SessionError,
)
from tutti_server.app.live.accept import serve_session
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.service import Service

KEY_SUBPROTOCOL = "bearer"
"""Browsers offer this subprotocol and their key as a second one. The server never echoes the key."""
FLUSH_AFTER_S = 2.0
"""Seconds without a message after which the open utterance is flushed.

At the end of a file the client waits for new text and sends nothing that says the file has ended. Without the flush its
last utterance would never be completed. The time is longer than the pauses between messages on a slow network.
"""
LEAVE_TIMEOUT_S = 5.0
"""How long a client that must wait has to send its options and to disconnect, in seconds."""


async def whisperlive(websocket: WebSocket) -> None:
    """Serve a session. The key is in the header, in the query as `?token=`, or in a subprotocol after `bearer`."""
    service: Service = websocket.app.state.service
    subprotocols: list[str] = websocket.scope.get("subprotocols", [])
    try:
        client = service.access.client(_key(websocket, subprotocols))
    except RequestError as error:
        await websocket.send_denial_response(PlainTextResponse(f"{error.message}\n", error.status))
        return
    if client is None:
        message = "a valid API key is needed: Authorization: Bearer KEY, or ?token=KEY\n"
        await websocket.send_denial_response(PlainTextResponse(message, 401))
        return
    dialect = WhisperLive(service.models.is_served if service.models.are_several else None)
    accepted = KEY_SUBPROTOCOL if KEY_SUBPROTOCOL in subprotocols else None
    try:
        await serve_session(websocket, dialect, accepted, client=client, flush_after_s=FLUSH_AFTER_S)
    except LimitExceeded as error:
        retry_after_s = error.retry_after_s if isinstance(error, KeyLimitExceeded) else RETRY_AFTER_S
        await _ask_to_wait(websocket, dialect, accepted, retry_after_s)


async def _ask_to_wait(websocket: WebSocket, dialect: WhisperLive, subprotocol: str | None, retry_after_s: int) -> None:
    """Tell the client that there is no room for it. The message needs the `uid`, which the client's options hold."""
    await websocket.accept(subprotocol)
    with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT_S):
            options = (await websocket.receive()).get("text") or ""
            with suppress(SessionError):
                dialect.read(options[:MAX_TEXT_CHARS])
            await websocket.send_text(dialect.wait(retry_after_s / 60))
            # If the server closed at once, the client would forget the message and wait for the server for ever.
            await until_disconnect(websocket.receive)
    with suppress(RuntimeError):
        await websocket.close(CLOSE_OVERLOADED, "overloaded")


def _key(websocket: WebSocket, subprotocols: list[str]) -> str | None:
    if (key := header_key(websocket.headers)) is not None:
        return key
    if (token := websocket.query_params.get("token")) is not None:
        return token
    if KEY_SUBPROTOCOL in subprotocols:
        return next((each for each in subprotocols if each != KEY_SUBPROTOCOL), None)
    return None
