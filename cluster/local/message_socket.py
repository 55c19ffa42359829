"""A ZeroMQ socket on the event loop, without the futures and tasks that `zmq.asyncio` makes for each message."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import zmq

MESSAGES_PER_TURN = 64
"""The most messages that are handled before the event loop's other callbacks have their turn."""


class MessageSocket:
    """Sends at once, and gives received messages to a function. Used on one event loop."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        """Take a socket, which is neither bound nor connected yet, and close it in the end."""
        self._socket = socket
        self._socket.linger = 0
        # Unbounded: sending never waits, and no message is dropped. The open windows of a gateway bound what waits.
        self._socket.set_hwm(0)
        self._loop = asyncio.get_running_loop()
        self._receiving: asyncio.Future[NoReturn] | None = None
        """Ends with the error that ends `receive`; `None` before it was called."""
        self._handle: Callable[[list[bytes]], None]
        self._has_turn = False
        """Whether `_drain` runs, or will run soon whether or not the descriptor becomes readable."""

    def bind(self, address: str) -> None:
        """Create the socket at this address."""
        self._socket.bind(address)

    def connect(self, address: str) -> None:
        """Connect to the socket at this address, as soon as it exists."""
        self._socket.connect(address)

    def send(self, *parts: bytes) -> None:
        """Send a message of these parts. It is lost if the other process dies, or if this socket is closed."""
        if self._socket.closed:
            return
        self._socket.send_multipart(parts, zmq.NOBLOCK)
        # Sending may take note of messages that have come, and the descriptor does not become readable for these.
        if not self._has_turn and self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            self._drain_soon()

    async def receive(self, handle: Callable[[list[bytes]], None]) -> NoReturn:
        """Call `handle` with the parts of every message, until this task is cancelled. Call it once.

        Raises:
            Exception: what `handle` has raised, or the error that was given to `fail`.
        """
        self._receiving, self._handle = self._loop.create_future(), handle
        descriptor = self._socket.getsockopt(zmq.FD)
        self._loop.add_reader(descriptor, self._drain)
        # For messages that have come before.
        self._drain_soon()
        try:
            await self._receiving
        finally:
            self._loop.remove_reader(descriptor)

    def fail(self, error: Exception) -> None:
        """End `receive` with this error, unless it has ended."""
        if self._receiving and not self._receiving.done():
            self._receiving.set_exception(error)

    def close(self) -> None:
        """Close the socket. `receive` must have been cancelled or have ended."""
        self._socket.close()

    def _drain_soon(self) -> None:
        self._has_turn = True
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Handle the messages that have come.

        ZeroMQ's descriptor becomes readable only when something has changed since the socket was last used. So all
        messages must be received, here or in another turn.
        """
        self._has_turn = True
        try:
            for _ in range(MESSAGES_PER_TURN):
                if self._socket.closed or self._receiving is None or self._receiving.done():
                    return
                self._handle(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            self._has_turn = False
        except Exception as error:
            self.fail(error)
        else:
            self._drain_soon()
