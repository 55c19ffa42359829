"""Calls over Twilio's media streams, and sockets on which others hear what is said of a call."""

import asyncio
import logging
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.delivery.call_subscribers import ActiveCall
from app.delivery.outbox import Outbox
from app.delivery.webhook import Delivery
from app.dialects.json_text import read_object, write_object
from app.dialects.native import wire as native
from app.dialects.twilio.wire import Call, Twilio
from app.errors import CLOSE_DONE, CLOSE_POLICY, LimitExceeded, SessionError
from app.live.accept import run
from app.service.http_errors import RequestError, bearer_key, unauthorized
from app.service.service import Service
from app.session import events

logger = logging.getLogger(__name__)

# Of what is said of a call, the part that a webhook is told: what will not change any more.
FOR_WEBHOOK = (events.Segment, events.Utterance, events.Notice, events.Failure, events.Stopped, events.Reply)


async def call(websocket: WebSocket) -> None:
    """A stream of a call. Its key stands in the path, or comes with its start in the parameter `token`."""
    service: Service = websocket.app.state.service
    key = websocket.path_params.get("token")
    if key is not None and not service.is_allowed(key):
        service.metrics.refused_total.labels("unauthorized").inc()
        await websocket.send_denial_response(unauthorized().response())
        return
    line = _CallLine(service, key)
    dialect = Twilio(line)
    try:
        await run(websocket, dialect, None, on_disconnect=dialect.leave)
    except LimitExceeded as error:
        await websocket.send_denial_response(RequestError(503, error.message, code=error.code).response())
    finally:
        line.end()


class _CallLine:
    """From a call to its subscribers and the webhook."""

    def __init__(self, service: Service, key: str | None) -> None:
        self._service = service
        self._key = key
        self._call: Call | None = None
        self._on: ActiveCall | None = None
        self._delivery: Delivery | None = None

    def begin(self, call: Call, token: str | None) -> None:
        if not self._service.is_allowed(token if self._key is None else self._key):
            self._service.metrics.refused_total.labels("unauthorized").inc()
            message = "a valid API key is needed: in the path, or as the parameter token"
            raise SessionError("unauthorized", message, CLOSE_POLICY)
        introduction = _message("call_started", call, tracks=list(call.tracks), parameters=call.parameters)
        self._on = self._service.calls.begin(call.sid, introduction)
        self._call = call
        if self._service.webhook is not None:
            self._delivery = self._service.webhook.open(call.sid, call.stream_sid)
            self._tell_webhook(introduction)

    def say(self, said: events.Event | events.Reply) -> None:
        if self._on is None:
            # Nobody reads what we would answer, so that the log is the only place to look for the reason.
            if isinstance(said, events.Failure):
                logger.warning("a call is not taken: %s", said.message)
            return
        self._on.publish(said)
        self._tell_webhook(said)

    def end(self) -> None:
        if self._on is None or self._call is None:
            return
        self.say(_message("call_ended", self._call))
        self._on.end()
        if self._delivery is not None:
            self._delivery.close()

    def _tell_webhook(self, said: events.Event | events.Reply) -> None:
        if self._delivery is not None and isinstance(said, FOR_WEBHOOK):
            for text in _texts(said):
                self._delivery.push(read_object(text))


async def listen(websocket: WebSocket) -> None:
    """What is said of a call, in messages of the native protocol; it may still be to come."""
    service: Service = websocket.app.state.service
    if not service.is_allowed(bearer_key(websocket.headers.get("authorization"))):
        service.metrics.refused_total.labels("unauthorized").inc()
        await websocket.send_denial_response(unauthorized().response())
        return
    if service.shared.n_gateways > 1:
        # The call may be at another one, and its subscriber would wait in silence.
        message = "calls cannot be listened to with more than one gateway; use a webhook, or TUTTI_GATEWAYS=1"
        await websocket.send_denial_response(RequestError(501, message, code="not_supported").response())
        return
    try:
        with service.calls.subscribe(websocket.path_params["call_sid"]) as outbox:
            await websocket.accept()
            await _serve(websocket, outbox, service.settings.send_timeout_s)
    except LimitExceeded as error:
        await websocket.send_denial_response(RequestError(503, error.message, code=error.code).response())


async def _serve(websocket: WebSocket, outbox: Outbox, send_timeout_s: float) -> None:
    """Until the call ends, or the subscriber leaves."""
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(_read(websocket))
        writer = tasks.create_task(_write(websocket, outbox, send_timeout_s))
        await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        reader.cancel()
        writer.cancel()


async def _read(websocket: WebSocket) -> None:
    """There is nothing to say on this socket; what is said is not kept."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _write(websocket: WebSocket, outbox: Outbox, send_timeout_s: float) -> None:
    code, reason = CLOSE_DONE, "done"
    with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        while (said := await outbox.pop()) is not None:
            if isinstance(said, events.Failure) and said.code == "slow_reader":
                code, reason = CLOSE_POLICY, said.code
            for text in _texts(said):
                async with asyncio.timeout(send_timeout_s):
                    await websocket.send_text(text)
        async with asyncio.timeout(send_timeout_s):
            await websocket.close(code, reason)


def _texts(said: events.Event | events.Reply) -> tuple[str, ...]:
    return (said.text,) if isinstance(said, events.Reply) else tuple(native.Native().write(said))


def _message(kind: str, call: Call, **fields: object) -> events.Reply:
    return events.Reply(write_object({"type": kind, "call_sid": call.sid, "stream_sid": call.stream_sid, **fields}))
