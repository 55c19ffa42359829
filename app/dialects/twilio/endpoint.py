"""The socket that receives calls over Twilio's media streams. Subscribers and the webhook receive the events."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket

from app.delivery.call_subscribers import ActiveCall
from app.dialects.json_text import read_object, write_object
from app.dialects.twilio.wire import Call, Twilio
from app.errors import CLOSE_POLICY, LimitExceeded, SessionError
from app.live.accept import serve_session
from app.service.http_errors import error_response, invalid_key, no_room
from app.service.service import Service
from app.session import events

if TYPE_CHECKING:
    from app.delivery.webhook import Delivery

logger = logging.getLogger(__name__)

WEBHOOK_EVENTS = (events.Segment, events.Utterance, events.Notice, events.Failure, events.Stopped, events.Reply)
"""The events that the webhook receives: those that no later event replaces."""

WriteEvent = Callable[[events.Event | events.Reply], Iterable[str]]
"""Writes an event as JSON texts, in the protocol that the receivers of a call's events understand."""


@dataclass(frozen=True, slots=True)
class CallEndpoint:
    """Serves the streams of calls."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream of a call. Its key is in the path, or in the parameter `token` of its `start` message."""
        service: Service = websocket.app.state.service
        key = websocket.path_params.get("token")
        if key is not None and not service.access.admits(key):
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        line = _CallLine(service, key, self.write_event)
        dialect = Twilio(line)
        try:
            await serve_session(websocket, dialect, None, on_disconnect=dialect.leave)
        except LimitExceeded as error:
            await websocket.send_denial_response(error_response(no_room(error)))
        finally:
            line.end()


class _CallLine:
    """Passes the events of one call to its subscribers and to the webhook."""

    def __init__(self, service: Service, key: str | None, write_event: WriteEvent) -> None:
        self._service = service
        self._key = key
        self._write_event = write_event
        self._call: Call | None = None
        self._active_call: ActiveCall | None = None
        self._delivery: Delivery | None = None

    def begin(self, call: Call, token: str | None) -> None:
        if not self._service.access.admits(token if self._key is None else self._key):
            message = "a valid API key is needed: in the path, or as the parameter token"
            raise SessionError("unauthorized", message, CLOSE_POLICY)
        introduction = _message("call_started", call, tracks=list(call.tracks), parameters=call.parameters)
        self._active_call = self._service.calls.begin(call.sid, introduction)
        self._call = call
        if self._service.webhook is not None:
            self._delivery = self._service.webhook.open(call.sid, call.stream_sid)
            self._put_to_webhook(introduction)

    def publish(self, event: events.Event | events.Reply) -> None:
        if self._active_call is None:
            # No client reads answers on this socket, so only the log can show the reason.
            if isinstance(event, events.Failure):
                logger.warning("a call is not taken: %s", event.message)
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

    def _put_to_webhook(self, event: events.Event | events.Reply) -> None:
        if self._delivery is not None and isinstance(event, WEBHOOK_EVENTS):
            for text in self._write_event(event):
                self._delivery.push(read_object(text))


def _message(kind: str, call: Call, **fields: object) -> events.Reply:
    return events.Reply(write_object({"type": kind, "call_sid": call.sid, "stream_sid": call.stream_sid, **fields}))
