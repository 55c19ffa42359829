"""HTTP and WebSocket connections: uvicorn's protocols, with limits of size and time for unauthenticated clients.

What such a client sends makes no line above INFO in the log; the metrics count it.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.http11 import MAX_LINE_LENGTH
from websockets.http11 import Request as UpgradeRequest
from websockets.protocol import State

from tutti_server.app.server.answer_headers import ANSWER_HEADERS
from tutti_server.app.service.client_connections import STATE_KEY, ClientConnection, UnauthenticatedConnections
from tutti_server.app.service.settings import Settings

MAX_HEAD_BYTES = 65_536
"""The longest head of a request, which is its first line and its headers.

A URL with 64 hotwords of the greatest length, percent-encoded, has about 10,000 bytes.
"""
KEEP_ALIVE_S = 75
"""A connection may wait this long for its next request.

Clients and proxies must give up first: a request that meets the server's end is lost. OpenAI's SDK waits 5 s, nginx and
AWS 60 s.
"""
HANDSHAKE_HEADERS = (
    b"host",
    b"upgrade",
    b"connection",
    b"sec-websocket-key",
    b"sec-websocket-version",
    b"sec-websocket-protocol",
    b"sec-websocket-extensions",
)
"""The headers that the WebSocket library reads."""

logger = logging.getLogger("uvicorn.error.unauthenticated")
# Uvicorn's warnings are about what clients send, its errors are about our application.
logger.setLevel(logging.ERROR)


class _Parser(h11.Connection):
    """Bounds the heads of requests, and keeps the status that refuses a request which cannot be parsed."""

    refusal_status = 400

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_head(event)
        except h11.RemoteProtocolError as error:
            self.refusal_status = error.error_status_hint
            raise
        return event


class HttpProtocol(H11Protocol):
    """A connection that serves HTTP requests until one of them asks for a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        settings: Settings,
        unauthenticated: UnauthenticatedConnections,
        connection: ClientConnection,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = logger
        self.conn: _Parser = _Parser(h11.SERVER, MAX_HEAD_BYTES)
        self._settings = settings
        self._unauthenticated = unauthenticated
        self._connection = connection
        self._timed_cycle: object = None
        """The request that has got its time limit."""
        self._reader_timer: asyncio.TimerHandle | None = None
        """Looks again whether the client reads its last answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # like uvicorn's
        """Limit the time in which the client sends the head of its first request."""
        super().connection_made(transport)
        self._connection.cut_by(self._cut)
        self._connection.expect(self._settings.head_timeout_s)
        self.app_state = {**self.app_state, STATE_KEY: self._connection}

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        self._connection.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes. The first ones after an answer begin the head of the next request."""
        if self.timeout_keep_alive_task is not None:
            self._connection.expect(self._settings.head_timeout_s)
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle what has arrived. Until its client is admitted, a new request has a time limit."""
        super().handle_events()
        if self.cycle is not self._timed_cycle:
            self._timed_cycle = self.cycle
            self._connection.expect(self._settings.stranger_timeout_s)

    def on_response_complete(self) -> None:
        """Limit the time of what the client sends next: of the rest of this request, or of the wait for another one."""
        self._connection.dismiss()
        self._connection.expect(self._settings.head_timeout_s)
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reader()
        is_kept = self.timeout_keep_alive_task is not None
        if is_kept and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._connection.rest()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which no further request has come. Called by uvicorn."""
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def _wait_for_reader(self, n_before: int | None = None) -> None:
        """Cut off a client that reads nothing of its last answer for a while. One that reads slowly gets all of it.

        With TLS it must take part in the end of the connection then.
        """
        n_unsent = self.transport.get_write_buffer_size()
        if not n_unsent:
            self._reader_timer = self.loop.call_later(self._settings.head_timeout_s, self.transport.abort)
        elif n_unsent == n_before:
            self._connection.cut("slow")
        else:
            self._connection.wait()
            self._reader_timer = self.loop.call_later(KEEP_ALIVE_S, self._wait_for_reader, n_unsent)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Give the connection to the WebSocket protocol, unless the request cannot be a handshake."""
        if event.method != b"GET":
            self._refuse(405, "A WebSocket begins with GET.")
            return
        if any(len(value) > MAX_LINE_LENGTH // 2 for name, value in event.headers if name in HANDSHAKE_HEADERS):
            self._refuse(431, f"Expected at most {MAX_LINE_LENGTH // 2} bytes in each header of the handshake.")
            return
        try:
            headers = Headers([(name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers])
        except InvalidHeader:
            # Such as one with a control character, which HTTP requests may have.
            self._refuse(400, "Expected headers without control characters.")
            return
        self.connections.discard(self)
        protocol = WebSocketProtocol(self.config, self.server_state, self.app_state, self._connection, self._settings)
        protocol.connection_made(self.transport)
        self._connection.expect(self._settings.stranger_timeout_s)
        self.transport.set_protocol(protocol)
        protocol.begin(event, headers)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed. Called by uvicorn."""
        self._refuse(self.conn.refusal_status, msg)

    def _cut(self, reason: str) -> None:
        """End an unauthenticated connection. A client that was slow to send the head of a request gets an answer."""
        is_in_head = self.conn.our_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if reason == "slow" and is_in_head:
            # With TLS the end of a connection takes a while, too, if the client does nothing for it.
            self._connection = self._unauthenticated.arrive(self.client[0] if self.client else None, self._cut)
            self._send_refusal(408, f"Expected the head of a request within {self._settings.head_timeout_s:g} s.")
        else:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        self._unauthenticated.note_refusal("malformed")
        self._send_refusal(status, message)

    def _send_refusal(self, status: int, message: str) -> None:
        if self.cycle and not self.cycle.response_complete:
            # The application cannot answer any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        headers = [
            *((name.encode(), value.encode()) for name, value in ANSWER_HEADERS.items()),
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (response, h11.Data(data=f"{message}\n".encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._wait_for_reader()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A connection that is a WebSocket. Aborts a client that does not read.

    A close frame would wait in the full send buffer for ever, and keep the buffer alive.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        connection: ClientConnection,
        settings: Settings,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._connection = connection
        self._settings = settings
        self._request: h11.Request
        self._headers: Headers

    def begin(self, request: h11.Request, headers: Headers) -> None:
        """Start the handshake. The HTTP protocol has parsed the request."""
        self._request = request
        self._headers = headers
        # The library would not accept a long line or many headers, so it gets only what it reads itself.
        head = [b"GET / HTTP/1.1"]
        head += [name + b": " + value for name, value in request.headers if name in HANDSHAKE_HEADERS]
        self.data_received(b"\r\n".join((*head, b"", b"")))

    def handle_connect(self, event: UpgradeRequest) -> None:
        """Call the application with the whole request."""
        super().handle_connect(replace(event, path=self._request.target.decode("ascii"), headers=self._headers))

    def handle_parser_exception(self) -> None:
        """End a connection that breaks the rules of WebSockets, perhaps before the handshake is over."""
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
        else:
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Pass on a message. Text that is not UTF-8 ends the connection, without uvicorn's line in the log.

        It is ignored if a close frame of either side has ended the connection already.
        """
        if self.curr_msg_data_type != "text" or _is_utf8(b"".join(self.frames)):
            super().send_receive_event_to_app()
        elif self.conn.state is State.OPEN:
            self.conn.send_close(1007)
            self.handle_parser_exception()

    async def send(self, message: Any) -> None:
        """Send what the application answers. After a refusal nothing is missing, which uvicorn does not note."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    def send_500_response(self) -> None:
        """Answer in place of an application that has failed; once, also if the server stops in the same moment."""
        if not self.conn.eof_sent:
            super().send_500_response()

    async def run_asgi(self) -> None:
        """Run the application for one WebSocket, then abort the connection if no close frame was sent.

        After a close frame the connection is unauthenticated again: its client must read it and leave in its time.
        """
        await super().run_asgi()
        if self.handshake_complete and not self.close_sent:
            self.transport.abort()
        self._connection.dismiss()
        self._connection.expect(self._settings.stranger_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._connection.leave()
        super().connection_lost(exc)


def _check_head(request: h11.Request) -> None:
    """Refuse a request whose head is too long, or whose end another server on its way may see elsewhere.

    What is after the end that one server sees is the next request to it: so requests are smuggled past proxies.
    Source: RFC 9112, 6.1.

    Raises:
        RemoteProtocolError: as h11 raises for a request that it cannot parse.
    """
    n_bytes = len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)
    if n_bytes > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("the head of the request is too long", error_status_hint=431)
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
        raise h11.RemoteProtocolError("expected Content-Length, or in HTTP/1.1 Transfer-Encoding; not both")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
