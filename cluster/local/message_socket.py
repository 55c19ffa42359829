"""Messages between processes of one host, over Unix sockets and on the event loop of each process.

Sending is one system call and receiving another, without a task or a future for a message and without other threads.
On a connection every message follows its length; the first one that a client sends is the name by which the server
knows it.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import NoReturn

_LENGTH = struct.Struct("<I")
_RECEIVE_BYTES = 1 << 16
"""The most bytes that are received before the event loop's other callbacks have their turn."""
_BACKLOG = 128
"""Clients that may wait for the server to accept them."""


class MessageSocket:
    """One end of a connection. It is created, used and closed on one event loop.

    A connection that the other process has ended stays quiet: what is sent is lost, and nothing more is received.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Take a connected socket, and close it in the end."""
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._unsent = bytearray()
        """What the other process is too slow to receive. It is unbounded, so that no message is lost."""
        self._received = b""
        """The beginning of a message whose end has not come."""
        self._handle: Callable[[bytes], None]
        self._on_error: Callable[[Exception], None]

    @classmethod
    def connect(cls, path: str, name: bytes) -> "MessageSocket":
        """Connect to the server at this path, as the client of this name.

        If there is none any more, this end stays quiet as if it had been connected before.
        """
        connection = socket.socket(socket.AF_UNIX)
        is_open = True
        try:
            # At once, unless very many clients wait for the server to accept them.
            connection.connect(path)
        except OSError:
            is_open = False
        client = cls(connection)
        if is_open:
            client.send(name)
        else:
            client.close()
        return client

    def send(self, message: bytes) -> None:
        """Send a message."""
        if not self._is_open:
            return
        framed = _LENGTH.pack(len(message)) + message
        n_sent = 0 if self._unsent else self._send(framed)
        if n_sent < len(framed):
            if not self._unsent:
                self._loop.add_writer(self._socket, self._send_rest)
            self._unsent += framed[n_sent:]

    def start(self, handle: Callable[[bytes], None], on_error: Callable[[Exception], None]) -> None:
        """Call `handle` with every message from now on, until `close`. A second call changes what is called.

        Args:
            handle: takes a message.
            on_error: called once if `handle` raises; then nothing more is received.
        """
        self._handle, self._on_error = handle, on_error
        if self._is_open:
            self._loop.add_reader(self._socket, self._receive)

    async def receive(self, handle: Callable[[bytes], None]) -> NoReturn:
        """Call `handle` with every message until this task is cancelled, then close the connection.

        Raises:
            Exception: what `handle` has raised.
        """
        ended: asyncio.Future[NoReturn] = self._loop.create_future()
        self.start(handle, ended.set_exception)
        try:
            await ended
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection. A second call has no effect."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _send(self, data: bytes | bytearray) -> int:
        """Return how many bytes need not be sent again."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            # The other process has ended.
            self.close()
            return len(data)

    def _send_rest(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if not self._unsent and self._is_open:
            self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The other process has ended.
            self.close()
            return
        data = self._received + data
        n_bytes, begin = len(data), 0
        try:
            while self._is_open and (start := begin + _LENGTH.size) <= n_bytes:
                end = start + _LENGTH.unpack_from(data, begin)[0]
                if end > n_bytes:
                    break
                begin = end
                self._handle(data[start:end])
        except Exception as error:
            self.close()
            self._on_error(error)
        self._received = data[begin:]


class MessageServer:
    """A listening socket and the connections of its clients. It is created, used and closed on one event loop."""

    def __init__(self, path: str) -> None:
        """Create the socket at this path, so that clients can connect."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(path)
        self._listener.listen(_BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._connections: set[MessageSocket] = set()
        self._clients: dict[bytes, MessageSocket] = {}
        """The connections whose clients have sent their names, by name."""
        self._ended: asyncio.Future[NoReturn] = self._loop.create_future()

    async def receive(self, handle: Callable[[bytes, bytes], None]) -> NoReturn:
        """Call `handle` with every message and the name of its client, until this task is cancelled. Call it once.

        All connections are closed at the end.

        Raises:
            Exception: what `handle` has raised, or the error that was given to `fail`.
        """
        self._loop.add_reader(self._listener, self._accept, handle)
        try:
            await self._ended
        finally:
            self._loop.remove_reader(self._listener)
            for connection in self._connections:
                connection.close()

    def send(self, client: bytes, message: bytes) -> None:
        """Send a message to the client of this name. It is lost if the client has ended."""
        if connection := self._clients.get(client):
            connection.send(message)

    def drop(self, client: bytes) -> None:
        """Close the connection of a client, if there is one."""
        if connection := self._clients.pop(client, None):
            self._connections.discard(connection)
            connection.close()

    def fail(self, error: Exception) -> None:
        """End `receive` with this error, unless it has ended."""
        if not self._ended.done():
            self._ended.set_exception(error)

    def close(self) -> None:
        """Close the listening socket."""
        self._listener.close()

    def _accept(self, handle: Callable[[bytes, bytes], None]) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection = MessageSocket(accepted)
        self._connections.add(connection)

        def welcome(name: bytes) -> None:
            self._clients[name] = connection
            connection.start(partial(handle, name), self.fail)

        connection.start(welcome, self.fail)
