"""Accepts TCP connections of AudioSocket. A client whose call is not known yet is a stranger like any other."""

import asyncio
import logging
import socket

from starlette.applications import Starlette

from app.dialects.native.wire import messages
from app.errors import SettingsError
from app.service.service import Service
from app.service.settings import Settings
from app.service.strangers import Visitor
from plugins.carriers.audiosocket.endpoint import AudioSocketEndpoint
from plugins.carriers.settings import CarrierSettings

BACKLOG = 1024
"""Connections that wait to be accepted; the kernel refuses more."""

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
        service: Service = app.state.service
        self._app = app
        self._timeout_s = service.settings.head_timeout_s
        self._strangers = service.strangers
        self._endpoint = AudioSocketEndpoint(write_event=messages)
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
        visitor = self._strangers.arrive(peer[0] if peer else None, lambda reason: writer.transport.abort())
        visitor.expect(self._timeout_s)
        task = asyncio.get_running_loop().create_task(self._run(reader, writer, visitor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visitor: Visitor) -> None:
        try:
            await self._endpoint.serve(self._app, reader, writer, visitor)
        except OSError:
            # The client has left, or was cut off.
            pass
        except Exception:
            logger.exception("a connection of AudioSocket failed")
        finally:
            visitor.leave()
            writer.close()
