"""The socket that receives calls over Twilio's media streams. Subscribers and the webhook receive the events."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from app.delivery.call_subscribers import PublishedCall
from app.delivery.outbox import CallEvent, WriteEvent
from app.dialects.json_text import read_object, write_object
from app.dialects.twilio.wire import START_TIMEOUT_S, Call, Twilio, shown_key
from app.errors import CLOSE_OVERLOADED, CLOSE_POLICY, LimitExceeded, RequestError, SessionError
from app.live.accept import serve_session
from app.service.auth import Client
from app.service.http_errors import error_response, invalid_key, no_room
from app.service.request_ids import request_id
from app.service.service import Service
from app.session import events

if TYPE_CHECKING:
    from app.delivery.webhook import Delivery

logger = logging.getLogger(__name__)

WEBHOOK_EVENTS = (events.Segment, events.Utterance, events.Notice, events.Failure, events.Stopped, events.Reply)
"""The events that the webhook receives: those that no later event replaces."""

N_INTRODUCTION = 2
"""How many messages a stream sends up to `start`: `connected` comes before it."""


@dataclass(frozen=True, slots=True)
class CallEndpoint:
    """Serves the streams of calls."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream of a call. Its key is in the path, or in the parameter `token` of its `start` message."""
        service: Service = websocket.app.state.service
        key = websocket.path_params.get("token")
        first_messages: list[str] = []
        client = service.access.client(key) if key is not None or service.access.is_open else None
        if client is None and key is not None:
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        if client is None:
            await websocket.accept()
            try:
                client, first_messages = await _introduction(websocket)
            except SessionError as error:
                await _refuse_call(websocket, error)
                return
            except WebSocketDisconnect:
                return
        line = _CallLine(service, self.write_event, request_id(websocket.scope))
        dialect = Twilio(line)
        try:
            await line.serve_until_refused(
                serve_session(
                    websocket,
                    dialect,
                    None,
                    client=client,
                    on_disconnect=dialect.leave,
                    first_messages=first_messages,
                )
            )
        except SessionError as error:
            if websocket.application_state is WebSocketState.CONNECTING and isinstance(error, LimitExceeded):
                await websocket.send_denial_response(error_response(no_room(error)))
            else:
                await _refuse_call(websocket, error)
        finally:
            line.end()


async def _introduction(websocket: WebSocket) -> tuple[Client, list[str]]:
    """The messages of a stream up to `start`, which has shown a valid key. Its client is a stranger meanwhile.

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


async def _refuse_call(websocket: WebSocket, error: SessionError) -> None:
    """Close a stream that was accepted only to see its key. No client reads answers on it; the log has the reason."""
    logger.info("[%s] a call is not taken: %s", request_id(websocket.scope), error.message)
    with suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(error.close_code or CLOSE_POLICY, error.code)


class _CallLine:
    """Passes the events of one call to its subscribers and to the webhook."""

    def __init__(self, service: Service, write_event: WriteEvent, request: str) -> None:
        """Make the line of one stream; `request` is the id of its request, for the log."""
        self._service = service
        self._write_event = write_event
        self._request = request
        self._call: Call | None = None
        self._active_call: PublishedCall | None = None
        self._has_begun = asyncio.Event()
        self._delivery: Delivery | None = None

    async def serve_until_refused(self, serving: Coroutine[Any, Any, None]) -> None:
        """Serve the session of the call to its end.

        Raises:
            SessionError: the call is refused, before the session or during it. The session has ended.
        """
        session = asyncio.ensure_future(serving)
        refusal = asyncio.ensure_future(self._refusal())
        try:
            await asyncio.wait((session, refusal), return_when=asyncio.FIRST_COMPLETED)
            if session.done():
                session.result()
            else:
                raise refusal.result()
        finally:
            session.cancel()
            refusal.cancel()
            await asyncio.gather(session, refusal, return_exceptions=True)

    def begin(self, call: Call) -> None:
        self._write_event = partial(self._write_event, channel_names=call.tracks)
        introduction = _message("call_started", call, tracks=list(call.tracks), parameters=call.parameters)
        self._active_call = self._service.calls.begin(call.sid, introduction, self._write_event)
        self._has_begun.set()
        self._call = call
        logger.info("[%s] call %r has begun, stream %r", self._request, call.sid, call.stream_sid)
        if self._service.webhook is not None:
            self._delivery = self._service.webhook.open(call.sid, call.stream_sid)
            self._put_to_webhook(introduction)

    def publish(self, event: CallEvent) -> None:
        if self._active_call is None:
            # No client reads answers on this socket, so only the log can show the reason.
            if isinstance(event, events.Failure):
                logger.info("[%s] a call is not taken: %s", self._request, event.message)
            return
        self._active_call.publish(event)
        self._put_to_webhook(event)

    def end(self) -> None:
        """The stream is over. Publishes the end of the call, if it had begun."""
        if self._active_call is None or self._call is None:
            return
        self.publish(_message("call_ended", self._call))
        self._active_call.end()
        if self._delivery is not None:
            self._delivery.close()

    async def _refusal(self) -> SessionError:
        """Why the call cannot go on, as soon as that is known."""
        await self._has_begun.wait()
        assert self._active_call
        return await self._active_call.refusal()

    def _put_to_webhook(self, event: CallEvent) -> None:
        if self._delivery is not None and isinstance(event, WEBHOOK_EVENTS):
            for text in self._write_event(event):
                self._delivery.push(read_object(text))


def _message(kind: str, call: Call, **fields: object) -> events.Reply:
    return events.Reply(write_object({"type": kind, "call_sid": call.sid, "stream_sid": call.stream_sid, **fields}))
