"""Accepts TCP connections of AudioSocket. A client whose call is not known yet is a stranger like any other."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from app.errors import SettingsError
from app.service.carrier_settings import audiosocket_host
from app.service.settings import Settings
from app.service.strangers import Strangers, Visitor

BACKLOG = 1024
"""Connections that wait to be accepted; the kernel refuses more."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Visitor], Awaitable[None]]
"""Serves one connection to its end."""

logger = logging.getLogger(__name__)


def bind_audiosocket(settings: Settings, *, shares_port: bool = False) -> socket.socket | None:
    """Open the listening socket; `None` without a port for it.

    Args:
        settings: have the address.
        shares_port: whether other gateways listen on the same port. The kernel spreads connections over them.

    Raises:
        SettingsError: the address is in use or not available.
    """
    if not settings.audiosocket_port:
        return None
    host, port = audiosocket_host(settings), settings.audiosocket_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shares_port)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; try another --audiosocket-port or --audiosocket-host"
        ) from error


class AudioSocketListener:
    """One listening socket. Has the methods of `asyncio.Server` that uvicorn calls."""

    def __init__(self, serve: Serve, settings: Settings, strangers: Strangers) -> None:
        """Prepare; `start` accepts connections."""
        self._serve = serve
        self._timeout_s = settings.head_timeout_s
        self._strangers = strangers
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(
        cls, listener: socket.socket, serve: Serve, settings: Settings, strangers: Strangers
    ) -> "AudioSocketListener":
        """Accept connections until `close`."""
        self = cls(serve, settings, strangers)
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
            await self._serve(reader, writer, visitor)
        except OSError:
            # The client has left, or was cut off.
            pass
        except Exception:
            logger.exception("a connection of AudioSocket failed")
        finally:
            visitor.leave()
            writer.close()
