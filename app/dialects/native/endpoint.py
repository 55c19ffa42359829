"""The sockets that speak the native protocol: live sessions, and the events of telephone calls."""

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from tutti_server.app.background import unless, until_disconnect
from tutti_server.app.dialects.native.room_endpoint import Publication
from tutti_server.app.dialects.native.wire import SUBPROTOCOL, Native, messages
from tutti_server.app.errors import CLOSE_DONE, CLOSE_DRAINING, CLOSE_OUR_FAULT, CLOSE_POLICY, RequestError
from tutti_server.app.live.accept import serve_session
from tutti_server.app.publish.call_subscribers import Receipt
from tutti_server.app.publish.outbox import CallId, CallMessage, Outbox
from tutti_server.app.service.auth import header_key, prefixed_key
from tutti_server.app.service.client_connections import address_of, admit
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import events

KEY_PREFIX = "tutti.key."
"""Starts the subprotocol in which a browser carries its key, beside `tutti.v1`."""
DONE = Close(CLOSE_DONE, "done")
SUBSCRIBER_CLOSES = {
    "slow_reader": Close(CLOSE_POLICY, "slow_reader"),
    "draining": Close(CLOSE_DRAINING, "draining"),
    "call_lost": Close(CLOSE_OUR_FAULT, "call_lost"),
}
"""How the server ends a subscriber whose last event is a failure."""


async def stream(websocket: WebSocket) -> None:
    """Serve a live session at `/v1/stream`. A refusal is an HTTP answer before the upgrade."""
    service: Service = websocket.app.state.service
    subprotocols: list[str] = websocket.scope.get("subprotocols", [])
    key = header_key(websocket.headers) or prefixed_key(subprotocols, KEY_PREFIX)
    client = authorized(await service.access.live_client(key))
    if subprotocols and SUBPROTOCOL not in subprotocols:
        named = [each for each in subprotocols if not each.startswith(KEY_PREFIX)]
        raise RequestError(400, f"subprotocol: expected {SUBPROTOCOL}, got {', '.join(named) or 'a key alone'}")
    publication = Publication(service, client)
    try:
        await serve_session(websocket, Native(publication), SUBPROTOCOL if subprotocols else None, client=client)
    finally:
        publication.leave()


async def subscribe_to_call(websocket: WebSocket) -> None:
    """Send the events of a telephone call at `/v1/calls/{call_sid}`: one of its own account. It may begin later."""
    service: Service = websocket.app.state.service
    client = authorized(service.access.client(header_key(websocket.headers)))
    if not service.is_known_everywhere:
        # The call may be at another gateway. The subscriber would then wait for ever, without an error.
        message = "with more than one gateway, subscribers of calls need TUTTI_REDIS_URL; or use a webhook"
        raise RequestError(501, message, code="not_supported")
    call_id = CallId(client.account, websocket.path_params["call_sid"])
    holder = service.access.holder(client) or address_of(websocket.scope)
    async with service.calls.subscribe(call_id, holder) as outbox:
        admit(websocket.scope)
        await websocket.accept()
        sending = _send_events(websocket, outbox, service.settings.send_timeout_s)
        await unless(until_disconnect(websocket.receive), sending)


async def _send_events(websocket: WebSocket, outbox: Outbox[Receipt], send_timeout_s: float) -> None:
    close = DONE
    with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        while (event := await outbox.pop()) is not None:
            # Not the failure of a call, after which `call_ended` follows: that one is written already.
            close = SUBSCRIBER_CLOSES.get(event.code, DONE) if isinstance(event, events.Failure) else DONE
            for text in event.texts if isinstance(event, CallMessage) else messages(event):
                async with asyncio.timeout(send_timeout_s):
                    await websocket.send_text(text)
        async with asyncio.timeout(send_timeout_s):
            await websocket.close(close.code, close.reason)
