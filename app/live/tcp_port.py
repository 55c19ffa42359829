"""A port for a protocol over plain TCP: inside the server each connection becomes a WebSocket.

A client counts as unauthenticated until `TcpClient.connection` waits for it or its session is admitted.
"""

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from starlette.applications import Starlette
from starlette.types import Message, Scope
from starlette.websockets import WebSocket

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.client_connections import STATE_KEY, ClientConnection
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service

BACKLOG = 4096
"""Connections that wait to be accepted; the kernel refuses more, and may have a lower limit."""
ABNORMAL = 1006
"""The code that stands for a connection that has ended without a close frame (RFC 6455, section 7.4.1)."""

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TcpClient:
    """One client's connection over TCP."""

    app: Starlette
    path: str
    """The path that logs and traces show."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: ClientConnection

    @property
    def service(self) -> Service:
        """The service that is asked."""
        service: Service = self.app.state.service
        return service

    @property
    def address(self) -> str:
        """The IP address of the client; empty where it is not known."""
        return self._peer[0] if self._peer else ""

    @property
    def request(self) -> str:
        """The id of the connection in the log."""
        return request_id(self.scope)

    @cached_property
    def scope(self) -> Scope:
        """The scope of a WebSocket for a connection without a request."""
        return {
            "type": "websocket",
            "app": self.app,
            "client": tuple(self._peer[:2]) if self._peer else None,
            "extensions": {"websocket.http.response": {}},
            "headers": [],
            "path": self.path,
            "path_params": {},
            "query_string": b"",
            "root_path": "",
            "scheme": "ws",
            "state": {STATE_KEY: self.connection},
            "subprotocols": [],
        }

    def websocket(
        self, first: str | bytes, read: Callable[[], Awaitable[str | bytes]], write: Callable[[str | None], None]
    ) -> WebSocket:
        """The connection as a WebSocket that is not accepted yet.

        Args:
            first: the first message of the client, which was read already.
            read: the next message of the client. Raises `IncompleteReadError` or `OSError` where it has left.
            write: puts a message of the server into `writer`; `None` where the session has ended or was refused.
        """

        def received(message: str | bytes) -> Message:
            return {"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message}

        due: list[Message] = [received(first), {"type": "websocket.connect"}]

        async def receive() -> Message:
            if due:
                return due.pop()
            try:
                return received(await read())
            except (asyncio.IncompleteReadError, OSError):
                return {"type": "websocket.disconnect", "code": ABNORMAL}

        async def send(message: Message) -> None:
            if message["type"] == "websocket.accept":
                # Nothing is written, so there is nothing to wait for: no time limit would end the wait.
                return
            if message["type"] == "websocket.send":
                write(message["text"])
            elif message["type"] in ("websocket.close", "websocket.http.response.start"):
                write(None)
            await self.writer.drain()

        return WebSocket(self.scope, receive, send)

    @property
    def _peer(self) -> Any:
        return self.writer.get_extra_info("peername")


def open_listener(host: str, port: int, advice: str, *, shares_port: bool = False) -> socket.socket:
    """Open a listening socket. If the port is 0, the socket knows the free port it has.

    Raises:
        SettingsError: the address is in use or not available; `advice` names the flags that help.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shares_port)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; try another {advice}") from error


class TcpPort(ABC):
    """Serves one port over TCP. See `tutti_server.app.server.plugins.Listener`."""

    name: ClassVar[str]
    """The name of the protocol, as its setting begins: `NAME_port`."""
    path: ClassVar[str]
    """See `TcpClient.path`."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    @abstractmethod
    async def serve_client(self, client: TcpClient) -> None:
        """Serve one connection to its end. Raises `OSError` or `IncompleteReadError` when the client has left."""

    def bind(self, *, shares_port: bool = False) -> socket.socket:
        """See `Listener.bind`."""
        return open_listener(self._host, self._port, f"--{self.name}-port", shares_port=shares_port)

    async def serve(self, listener: socket.socket, app: Starlette) -> "_Server":
        """See `Listener.serve`."""
        server = _Server(self, app)
        server.accepting = await asyncio.start_server(server.connected, sock=listener, backlog=BACKLOG)
        return server


class _Server:
    """Serves the connections of one listening socket. Has the methods of `asyncio.Server` that uvicorn calls."""

    def __init__(self, port: TcpPort, app: Starlette) -> None:
        self.accepting: asyncio.Server
        """Calls `connected` until `close`."""
        self._port = port
        self._app = app
        self._service: Service = app.state.service
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Accept no more connections, and end those that are left. Sessions have been drained before."""
        self.accepting.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called by asyncio for each connection."""
        peer = writer.get_extra_info("peername")
        connection = self._service.unauthenticated.arrive(
            peer[0] if peer else None, lambda reason: writer.transport.abort()
        )
        connection.expect(self._service.settings.head_timeout_s)
        client = TcpClient(app=self._app, path=self._port.path, reader=reader, writer=writer, connection=connection)
        task = asyncio.get_running_loop().create_task(self._run(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, client: TcpClient) -> None:
        try:
            await self._port.serve_client(client)
        except (OSError, asyncio.IncompleteReadError):
            # The client has left, or was cut off.
            pass
        except Exception:
            logger.exception("a connection of %s failed", self._port.name)
        finally:
            client.connection.leave()
            client.writer.close()
            if client.writer.transport.get_write_buffer_size():
                # The connection is closed once all is sent, which never is where the client does not read.
                loop = asyncio.get_running_loop()
                loop.call_later(self._service.settings.send_timeout_s, client.writer.transport.abort)
