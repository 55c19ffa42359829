"""Live sessions for clients of WhisperLive, which dial the root of the server and can name no path."""

import asyncio
from contextlib import suppress

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.dialects.whisperlive.wire import MAX_TEXT_CHARS, WhisperLive
from app.errors import CLOSE_OVERLOADED, RETRY_AFTER_S, LimitExceeded, SessionError
from app.live.accept import run
from app.service.http_errors import bearer_key
from app.service.service import Service

# Browsers offer it together with the key, which is never echoed.
KEY_SUBPROTOCOL = "bearer"
# At the end of a file the client waits until no new text comes, and has no word for "that was all": without this its
# last utterance would never be completed. It is longer than the pauses between the messages of a slow network.
FLUSH_AFTER_S = 2.0
# For a client that is told to wait: to send its options, and to leave by itself.
LEAVE_TIMEOUT_S = 5.0


async def whisperlive(websocket: WebSocket) -> None:
    """A session for a client that shows a valid key: in a header, as `?token=`, or as a subprotocol behind `bearer`."""
    service: Service = websocket.app.state.service
    if not service.is_allowed(_key(websocket)):
        service.metrics.refused_total.labels("unauthorized").inc()
        message = "a valid API key is needed: Authorization: Bearer KEY, or ?token=KEY\n"
        await websocket.send_denial_response(PlainTextResponse(message, 401))
        return
    dialect = WhisperLive()
    subprotocol = KEY_SUBPROTOCOL if KEY_SUBPROTOCOL in websocket.scope.get("subprotocols", ()) else None
    try:
        await run(websocket, dialect, subprotocol, flush_after_s=FLUSH_AFTER_S)
    except LimitExceeded:
        await _ask_to_wait(websocket, dialect, subprotocol)


async def _ask_to_wait(websocket: WebSocket, dialect: WhisperLive, subprotocol: str | None) -> None:
    """There is no room, which this protocol says after the client's options: they hold the name to be told it under."""
    await websocket.accept(subprotocol)
    with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT_S):
            options = (await websocket.receive()).get("text") or ""
            with suppress(SessionError):
                dialect.read(options[:MAX_TEXT_CHARS])
            await websocket.send_text(dialect.wait(RETRY_AFTER_S / 60))
            # Closed at once, the client would forget that it was told to wait, and wait for ever for the server.
            while (await websocket.receive())["type"] != "websocket.disconnect":
                pass
    with suppress(RuntimeError):
        await websocket.close(CLOSE_OVERLOADED, "overloaded")


def _key(websocket: WebSocket) -> str | None:
    if (key := bearer_key(websocket.headers.get("authorization"))) is not None:
        return key
    if (token := websocket.query_params.get("token")) is not None:
        return token
    offered: list[str] = websocket.scope.get("subprotocols", [])
    if KEY_SUBPROTOCOL in offered:
        return next((each for each in offered if each != KEY_SUBPROTOCOL), None)
    return None
