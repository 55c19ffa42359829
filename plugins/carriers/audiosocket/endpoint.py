"""Serves AudioSocket, over TCP. A client counts as unauthenticated until its call is known.

Each packet becomes a message of a WebSocket inside the server.
"""

import asyncio
import ipaddress
import logging
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.types import Message, Scope
from starlette.websockets import WebSocket

from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.endpoint import serve_call
from tutti_server.app.dialects.native.wire import messages
from tutti_server.app.errors import BadMessage, RequestError, SettingsError
from tutti_server.app.service.auth import Client
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.strangers import STATE_KEY, Visitor
from tutti_server.app.sharing.store import StoreAway
from tutti_server.plugins.carriers.audiosocket.announcements import Announcements
from tutti_server.plugins.carriers.audiosocket.wire import (
    HANGUP_PACKET,
    HEADER_BYTES,
    AudioSocket,
    payload_bytes,
    read_id,
)
from tutti_server.plugins.carriers.settings import CarrierSettings

BACKLOG = 1024
"""Connections that wait to be accepted; the kernel refuses more."""
ABNORMAL = 1006
"""The code that stands for a connection that has ended without a close frame (RFC 6455, section 7.4.1)."""

logger = logging.getLogger(__name__)


class AudioSocketListener:
    """The port of AudioSocket."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; the settings have the address."""
        own = settings.of(CarrierSettings)
        self._host, self._port = own.host(settings), own.audiosocket_port

    def bind(self, *, shares_port: bool = False) -> socket.socket:
        """See `Listener.bind`."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            address = (self._host, self._port)
            return socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shares_port)
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; try another --audiosocket-port or "
                "--audiosocket-host"
            ) from error

    async def serve(self, listener: socket.socket, app: Starlette) -> "AudioSocketServer":
        """See `Listener.serve`."""
        return await AudioSocketServer.start(listener, app)


class AudioSocketServer:
    """Serves the connections of one listening socket. Has the methods of `asyncio.Server` that uvicorn calls."""

    def __init__(self, app: Starlette) -> None:
        """Prepare; `start` accepts connections."""
        self._app = app
        self._service: Service = app.state.service
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, listener: socket.socket, app: Starlette) -> "AudioSocketServer":
        """Accept connections until `close`."""
        self = cls(app)
        self._server = await asyncio.start_server(self._connected, sock=listener, backlog=BACKLOG)
        return self

    def close(self) -> None:
        """Accept no more connections, and end those that are left. Sessions have been drained before."""
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all connections have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called by asyncio for each connection."""
        peer = writer.get_extra_info("peername")
        visitor = self._service.strangers.arrive(peer[0] if peer else None, lambda reason: writer.transport.abort())
        visitor.expect(self._service.settings.head_timeout_s)
        task = asyncio.get_running_loop().create_task(self._run(reader, writer, visitor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visitor: Visitor) -> None:
        try:
            await self._serve(reader, writer, visitor)
        except OSError:
            # The client has left, or was cut off.
            pass
        except Exception:
            logger.exception("a connection of AudioSocket failed")
        finally:
            visitor.leave()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visitor: Visitor) -> None:
        """Serve one connection to its end. Raises `OSError` when the client has left."""
        peer = writer.get_extra_info("peername")
        scope = _scope(self._app, peer, visitor)
        service = self._service
        try:
            first = await _read_packet(reader)
            call = read_id(first)
        except (asyncio.IncompleteReadError, BadMessage):
            service.strangers.note_refusal("malformed")
            return
        found = await _client(service, call, peer[0] if peer else "")
        if found is None:
            logger.info("[%s] a call is not taken: %s was not announced", request_id(scope), call)
            service.metrics.refused_total.labels("unauthorized").inc()
            writer.write(HANGUP_PACKET)
            return
        client, parameters = found
        visitor.wait()
        packets = _Packets(reader, writer, first)
        websocket = WebSocket(scope, packets.receive, packets.send)
        opening = Opening(parameters=parameters)
        await serve_call(websocket, lambda sink: AudioSocket(sink, opening), messages, client=client)


class _Packets:
    """One connection as the messages of a WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes) -> None:
        """Make messages of what comes after the packet `first`, which has been read."""
        self._reader = reader
        self._writer = writer
        self._due: list[Message] = [{"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": first}]

    async def receive(self) -> Message:
        """The next message."""
        if self._due:
            return self._due.pop(0)
        try:
            return {"type": "websocket.receive", "bytes": await _read_packet(self._reader)}
        except (asyncio.IncompleteReadError, OSError):
            return {"type": "websocket.disconnect", "code": ABNORMAL}

    async def send(self, message: Message) -> None:
        """Ask Asterisk to hang up where a WebSocket is closed or refused. There is nothing else to send."""
        if message["type"] in ("websocket.close", "websocket.http.response.start"):
            self._writer.write(HANGUP_PACKET)
            await self._writer.drain()


async def _client(service: Service, call: uuid.UUID, address: str) -> tuple[Client, Mapping[str, str]] | None:
    """The client of a call and the parameters of the call; `None` if it may open no session."""
    try:
        announcement = await Announcements(service.store).use(call)
        if announcement is not None:
            client = await service.access.live_client(announcement.secret)
            return (client, announcement.parameters) if client else None
    except RequestError as error:
        logger.info("the call %s is not taken: %s", call, error.message)
        return None
    except StoreAway:
        logger.info("whether the call %s was announced is not known, as Redis cannot be reached", call)
    if service.access.is_open or _is_in(address, service):
        return service.access.client_without_key(), {}
    return None


def _is_in(address: str, service: Service) -> bool:
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(number in network for network in service.settings.of(CarrierSettings).networks)


async def _read_packet(reader: asyncio.StreamReader) -> bytes:
    """The next packet, whole.

    Raises:
        IncompleteReadError: the connection has ended.
    """
    header = await reader.readexactly(HEADER_BYTES)
    return header + await reader.readexactly(payload_bytes(header))


def _scope(app: Starlette, peer: Any, visitor: Visitor) -> Scope:
    """The scope of a WebSocket for a connection without a request."""
    return {
        "type": "websocket",
        "app": app,
        "client": tuple(peer[:2]) if peer else None,
        "extensions": {"websocket.http.response": {}},
        "headers": [],
        "path": "/v1/audiosocket",
        "path_params": {},
        "query_string": b"",
        "root_path": "",
        "scheme": "ws",
        "state": {STATE_KEY: visitor},
        "subprotocols": [],
    }
