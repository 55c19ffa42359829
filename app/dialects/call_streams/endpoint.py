"""Serves the stream of a telephone call on a WebSocket. Subscribers and the webhook receive its events."""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from tutti_server.app.dialects.call_streams.call_stream import CallStream, Opening
from tutti_server.app.dialects.call_streams.wire import Call, CallSink
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.errors import CLOSE_POLICY, LimitExceeded, SessionError
from tutti_server.app.live.accept import serve_session
from tutti_server.app.live.reader import Publication
from tutti_server.app.publish.call_subscribers import PublishedCall
from tutti_server.app.publish.outbox import CallEvent, CallId, CallMessage, WriteEvent
from tutti_server.app.service.auth import Client, header_key
from tutti_server.app.service.http_errors import authorized, error_response, no_room
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.app.session.messages import events

if TYPE_CHECKING:
    from tutti_server.app.publish.webhook import Delivery

logger = logging.getLogger(__name__)

WEBHOOK_EVENTS = (events.Segment, events.Utterance, events.Notice, events.Failure, events.Stopped, events.Reply)
"""The events that the webhook receives: those that no later event replaces."""


@dataclass(frozen=True, slots=True)
class CallEndpoint:
    """Serves the streams of one telephone system on a WebSocket."""

    stream: type[CallStream]
    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream of a call."""
        service: Service = websocket.app.state.service
        header = self.stream.KEY_HEADER
        key = stream_key(websocket) or (websocket.headers.get(header) if header else None)
        client = authorized(service.access.client(key))
        offered = websocket.scope.get("subprotocols", ())
        opening = Opening(
            parameters=dict(websocket.query_params),
            request=request_id(websocket.scope),
            subprotocol=self.stream.SUBPROTOCOL if self.stream.SUBPROTOCOL in offered else None,
            write_event=self.write_event,
        )
        await serve_call(
            websocket,
            lambda sink: self.stream(sink, opening),
            self.write_event,
            client=client,
            subprotocol=opening.subprotocol,
        )


async def serve_call(
    websocket: WebSocket,
    make_dialect: Callable[[CallSink], CallStream],
    write_event: WriteEvent,
    *,
    client: Client,
    subprotocol: str | None = None,
    first_messages: Sequence[str] = (),
) -> None:
    """Serve one stream until it ends, and publish its events.

    Args:
        websocket: not accepted yet, unless messages were received.
        make_dialect: makes the dialect of the stream, which publishes to this sink.
    """
    sink = CallPublisher(websocket.app.state.service, client, write_event, request_id(websocket.scope))
    dialect = make_dialect(sink)
    try:
        await serve_session(
            websocket,
            dialect,
            subprotocol,
            client=client,
            publication=Publication(dialect.leave, sink.refusal),
            first_messages=first_messages,
        )
    except SessionError as error:
        if websocket.application_state is WebSocketState.CONNECTING and isinstance(error, LimitExceeded):
            await websocket.send_denial_response(error_response(no_room(error)))
        else:
            await refuse_call(websocket, error)
    finally:
        sink.end()


async def refuse_call(websocket: WebSocket, error: SessionError) -> None:
    """Close a stream that was accepted. Not every telephone system shows the reason to people, so the log has it."""
    logger.info("[%s] a call is not taken: %s", request_id(websocket.scope), error.message)
    with suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(error.close_code or CLOSE_POLICY, error.code)


def stream_key(websocket: WebSocket) -> str | None:
    """The key of a stream: in its path, as a bearer token, or as the password of basic authorization."""
    in_path: str | None = websocket.path_params.get("token")
    return in_path or header_key(websocket.headers) or basic_password(websocket.headers)


def basic_password(headers: Mapping[str, str]) -> str | None:
    """The password of basic authorization; `None` without it, or if it cannot be read. Any user will do."""
    encoded = header_key(headers, ("basic",))
    if encoded is None:
        return None
    try:
        _, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    return password


class CallPublisher:
    """Passes the events of one call to its subscribers and to the webhook."""

    def __init__(self, service: Service, client: Client, write_event: WriteEvent, request: str) -> None:
        self._service = service
        self._account = client.account
        self._key_name = client.key.name if client.key else None
        self._write_event = write_event
        self._request = request
        self._call: Call | None = None
        self._active_call: PublishedCall | None = None
        self.refusal: asyncio.Future[SessionError] = asyncio.get_running_loop().create_future()
        """Why the stream is to end, as soon as that is known."""
        self._delivery: Delivery | None = None

    def begin(self, call: Call) -> None:
        """See `CallSink`."""
        self._write_event = partial(self._write_event, channel_names=call.tracks)
        event = _message("call_started", call, tracks=list(call.tracks), parameters=dict(call.parameters))
        introduction = CallMessage.of(event, self._write_event)
        call_id = CallId(self._account, call.sid)
        self._active_call = self._service.calls.begin(call_id, introduction, self._refuse)
        self._call = call
        logger.info("[%s] call %r has begun, stream %r", self._request, call.sid, call.stream_sid)
        if self._service.webhook is not None:
            self._delivery = self._service.webhook.open(call.sid, call.stream_sid, self._key_name)
            self._put_to_webhook(introduction)

    def publish(self, event: CallEvent) -> None:
        """See `CallSink`."""
        if isinstance(event, events.Failure):
            # Not every client shows the reason to people, so the log does.
            taken = "has an error" if self._active_call else "is not taken"
            logger.info("[%s] a call %s: %s", self._request, taken, event.message)
        if self._active_call is None:
            return
        message = CallMessage.of(event, self._write_event)
        self._active_call.publish(message)
        if isinstance(event, WEBHOOK_EVENTS):
            self._put_to_webhook(message)

    def end(self) -> None:
        """Publish the end of the call, if it had begun: the stream is over."""
        if self._active_call is None or self._call is None:
            return
        self.publish(_message("call_ended", self._call))
        self._active_call.end()
        if self._delivery is not None:
            self._delivery.close()

    def _refuse(self, error: SessionError) -> None:
        if not self.refusal.done():
            self.refusal.set_result(error)

    def _put_to_webhook(self, message: CallMessage) -> None:
        if self._delivery is not None:
            for text in message.texts:
                self._delivery.push(read_object(text))


def _message(kind: str, call: Call, **fields: object) -> events.Reply:
    return events.Reply(write_object({"type": kind, "call_sid": call.sid, "stream_sid": call.stream_sid, **fields}))
