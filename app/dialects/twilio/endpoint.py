"""The socket that receives calls over Twilio's media streams. Subscribers and the webhook receive the events."""

import asyncio
from dataclasses import dataclass

from starlette.websockets import WebSocket, WebSocketDisconnect

from tutti_server.app.dialects.call_streams.endpoint import refuse_call, serve_call
from tutti_server.app.dialects.call_streams.wire import START_TIMEOUT_S
from tutti_server.app.dialects.twilio.wire import Twilio, shown_key
from tutti_server.app.errors import CLOSE_OVERLOADED, CLOSE_POLICY, RequestError, SessionError
from tutti_server.app.publish.outbox import WriteEvent
from tutti_server.app.service.auth import Client
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service

N_INTRODUCTION = 2
"""How many messages a stream sends up to `start`: `connected` comes before it."""


@dataclass(frozen=True, slots=True)
class TwilioEndpoint:
    """Serves the streams of calls."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream of a call. Its key is in the path, or in the parameter `token` of its `start` message."""
        service: Service = websocket.app.state.service
        key = websocket.path_params.get("token")
        first_messages: list[str] = []
        client = service.access.client(key) if key is not None or service.access.is_open else None
        if key is not None:
            authorized(client)
        if client is None:
            await websocket.accept()
            try:
                client, first_messages = await _introduction(websocket)
            except SessionError as error:
                await refuse_call(websocket, error)
                return
            except WebSocketDisconnect:
                return
        await serve_call(websocket, Twilio, self.write_event, client=client, first_messages=first_messages)


async def _introduction(websocket: WebSocket) -> tuple[Client, list[str]]:
    """The messages of a stream up to `start`, which has shown a valid key. Until then its client is unauthenticated.

    Returns:
        The client, and the messages.

    Raises:
        SessionError: other messages came, none came in time, or the key is not valid.
        WebSocketDisconnect: the client has left.
    """
    service: Service = websocket.app.state.service
    messages: list[str] = []
    key = None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while key is None and len(messages) < N_INTRODUCTION:
                message = await websocket.receive()
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect
                messages.append(message.get("text") or "")
                key = shown_key(messages[-1])
    except TimeoutError:
        raise SessionError("idle", f"no start message for {START_TIMEOUT_S:g} s", CLOSE_POLICY) from None
    try:
        client = service.access.client(key)
    except RequestError as error:
        close_code = CLOSE_POLICY if error.status == 403 else CLOSE_OVERLOADED
        raise SessionError(error.code or "unauthorized", error.message, close_code) from error
    if client is None:
        expected = "a valid API key is needed: in the path, or as the parameter token"
        raise SessionError("unauthorized", expected, CLOSE_POLICY)
    return client, messages
