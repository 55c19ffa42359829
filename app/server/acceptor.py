"""Accepts connections, with TLS or without. A client counts as unauthenticated during its TLS handshake, too.

`loop.create_server` would do as much. But it tells of no connection before the end of its handshake: neither how many
there are, nor from where, nor that it has cut one off. And where gateways share a listening socket, the first of them
that wakes up would accept all connections that wait.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from tutti_server.app.service.client_connections import ClientConnection, UnauthenticatedConnections
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.tls import Certificate

MAX_ACCEPTED_AT_ONCE = 64
"""The most connections that are accepted before other events of the loop are handled."""
PAUSE_S = 1.0
"""How long no connection is accepted after the system had no resources for one, in seconds."""
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""The numbers of errors which say that this process, or all of the system, may open no more."""
GIVE_WAY_S = 0.002
"""How long a gateway leaves a connection to those with fewer, in seconds, for each one that it has more."""
MOST_GIVEN_WAY = 10
"""The most connections more that are counted for this: the others may be busy, or hang."""
LONGEST_START_S = 5.0
"""How long a gateway waits for others that start as well, in seconds: else the first one gets all clients that wait."""
LOOK_S = 0.02
"""How often it looks for them, in seconds."""
LONGEST_END_S = 3600.0
"""How long a connection that is closed may take to send the rest, in seconds. Its protocol ends it sooner."""

logger = logging.getLogger(__name__)


class MakeProtocol(Protocol):
    """Makes the protocol of the requests on a connection."""

    def __call__(self, *, connection: ClientConnection) -> asyncio.Protocol:
        """The protocol of this connection, which `connection_made` announces."""
        ...


class Acceptor:
    """Accepts what comes to one listening socket. Has the methods of `asyncio.Server` that uvicorn calls.

    Gateways that share the socket have about as many connections each, and one that is busy or hangs keeps no client
    waiting: who has more than another one leaves it a moment to accept the next.
    """

    def __init__(
        self,
        listener: socket.socket,
        certificate: Certificate | None,
        make_protocol: MakeProtocol,
        settings: Settings,
        unauthenticated: UnauthenticatedConnections,
    ) -> None:
        """Begin to accept connections, which are counted for other gateways too. Call it on the event loop."""
        self._listener = listener
        self._fd = listener.fileno()
        self._certificate = certificate
        self._make_protocol = make_protocol
        self._timeout_s = settings.head_timeout_s
        self._n_gateways = settings.gateways
        self._unauthenticated = unauthenticated
        self._counter = unauthenticated.counter
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._spare: int | None = None
        """A descriptor that is given up to refuse a connection where there is no other one left."""
        listener.setblocking(False)
        # One is counted while this gateway accepts: a gateway with none does not, or has died.
        self._counter.change("connections", 1)
        self._begin(self._loop.time() + LONGEST_START_S)

    def close(self) -> None:
        """Accept no more connections, and cut off those whose handshake is not over."""
        self._loop.remove_reader(self._fd)
        self._counter.change("connections", -1)
        if self._pause is not None:
            self._pause.cancel()
        for connection in self._handshakes.values():
            _cut(connection)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _begin(self, latest: float) -> None:
        if self._counter.n_with("connections") >= self._n_gateways or self._loop.time() >= latest:
            self._resume()
        else:
            self._pause = self._loop.call_later(LOOK_S, self._begin, latest)

    def _resume(self) -> None:
        self._keep_spare()
        self._loop.add_reader(self._fd, self._accept)

    def _keep_spare(self) -> None:
        """Keep a descriptor to refuse with. A gateway beside others leaves to them what it cannot accept."""
        if self._spare is None and self._n_gateways <= 1:
            with suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def _pause_for(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._fd)
        self._pause = self._loop.call_later(seconds, then)

    def _accept(self) -> None:
        """Accept the connections that wait, and pause first if another gateway has fewer connections."""
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            if surplus := self._counter.surplus("connections"):
                self._pause_for(GIVE_WAY_S * min(surplus, MOST_GIVEN_WAY), self._accept_late)
                return
            if not self._accept_one():
                return

    def _accept_late(self) -> None:
        """Accept a connection that no other gateway has accepted meanwhile, if there is one."""
        self._resume()
        self._accept_one()

    def _accept_one(self) -> bool:
        """Accept a connection. Returns whether others may wait behind it."""
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno in NO_DESCRIPTORS and self._spare is not None:
                return self._refuse_one(self._spare)
            logger.error("no connection is accepted for %g s: %s", PAUSE_S, error)
            self._pause_for(PAUSE_S, self._resume)
            return False
        connection.setblocking(False)
        client = self._unauthenticated.arrive(address[0], partial(_cut, connection))
        client.expect(self._timeout_s)
        handshake = self._loop.create_task(self._shake_hands(connection, client))
        self._handshakes[handshake] = connection
        handshake.add_done_callback(self._handshakes.pop)
        return True

    def _refuse_one(self, spare: int) -> bool:
        """Close a connection that waits, as libuv does: its client learns at once that there is no room.

        Returns false if none waits.
        """
        os.close(spare)
        self._spare = None
        try:
            self._listener.accept()[0].close()
        except OSError:
            return False
        finally:
            self._keep_spare()
        return True

    async def _shake_hands(self, connection: socket.socket, client: ClientConnection) -> None:
        """Do the handshake of one connection, if it is encrypted. Afterwards its protocol looks after it."""
        tls: dict[str, Any] = {}
        if self._certificate:
            tls = {"ssl": self._certificate.context, "ssl_handshake_timeout": self._timeout_s}
            tls["ssl_shutdown_timeout"] = LONGEST_END_S
        make_protocol = partial(self._make_protocol, connection=client)
        try:
            await self._loop.connect_accepted_socket(make_protocol, connection, **tls)
        except OSError as error:
            client.leave()
            # Any other error means that the client has left, or was cut off.
            if isinstance(error, ssl.SSLError):
                self._unauthenticated.note_refusal("malformed")


def _cut(connection: socket.socket, reason: str = "") -> None:
    """End a connection in its handshake, which fails then. To cancel the handshake would be too early at its begin."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
