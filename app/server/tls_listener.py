"""Accepts encrypted connections. A client whose TLS handshake is not over is a stranger like any other.

`loop.create_server` could do the handshakes as well. But it tells of no connection before the end of its handshake:
neither how many there are, nor from where, nor that it has cut one off.
"""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Protocol

from tutti_server.app.service.settings import Settings
from tutti_server.app.service.strangers import Strangers, Visitor
from tutti_server.app.service.tls import Certificate

MAX_ACCEPTED_AT_ONCE = 64
"""The most connections that are accepted before other events of the loop are handled."""
PAUSE_S = 1.0
"""How long no connection is accepted after the system had no resources for one, in seconds."""
LONGEST_END_S = 3600.0
"""How long a connection that is closed may take to send the rest, in seconds. Its protocol ends it sooner."""

logger = logging.getLogger(__name__)


class MakeProtocol(Protocol):
    """Makes the protocol of the requests on a connection."""

    def __call__(self, *, visitor: Visitor) -> asyncio.Protocol:
        """The protocol of a connection that this visitor has opened, and that `connection_made` announces."""
        ...


class TlsListener:
    """One listening socket. Has the methods of `asyncio.Server` that uvicorn calls."""

    def __init__(
        self,
        listener: socket.socket,
        certificate: Certificate,
        make_protocol: MakeProtocol,
        settings: Settings,
        strangers: Strangers,
    ) -> None:
        """Begin to accept connections. Must be called on the event loop."""
        self._listener = listener
        self._fd = listener.fileno()
        self._certificate = certificate
        self._make_protocol = make_protocol
        self._timeout_s = settings.head_timeout_s
        self._strangers = strangers
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more connections, and cut off those whose handshake is not over."""
        self._loop.remove_reader(self._fd)
        if self._pause is not None:
            self._pause.cancel()
        for connection in self._handshakes.values():
            _cut(connection)

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._fd, self._accept)

    def _accept(self) -> None:
        """Accept the connections that wait."""
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("no connection is accepted for %g s: %s", PAUSE_S, error)
                self._loop.remove_reader(self._fd)
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            visitor = self._strangers.arrive(address[0], partial(_cut, connection))
            visitor.expect(self._timeout_s)
            handshake = self._loop.create_task(self._shake_hands(connection, visitor))
            self._handshakes[handshake] = connection
            handshake.add_done_callback(self._handshakes.pop)

    async def _shake_hands(self, connection: socket.socket, visitor: Visitor) -> None:
        """Do the handshake of one connection. Afterwards its protocol looks after it."""
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make_protocol, visitor=visitor),
                connection,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=LONGEST_END_S,
            )
        except OSError as error:
            visitor.leave()
            # Any other error means that the client has left, or was cut off.
            if isinstance(error, ssl.SSLError):
                self._strangers.note_refusal("malformed")


def _cut(connection: socket.socket, reason: str = "") -> None:
    """End a connection in its handshake, which fails then. To cancel the handshake would be too early at its begin."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
