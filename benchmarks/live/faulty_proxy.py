"""A TCP proxy that forwards bytes to a server and can fail as networks do."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

READ_BYTES = 65_536
SEGMENT_BYTES = 1400
"""The most bytes of a TCP segment, as on the internet.

With the large segments of the loopback, the system would take minutes of audio although the network is cut.
"""

BUFFER_BYTES = 16_384
"""The sizes of the proxy's own buffers: what it takes from a client although the network is cut."""


class FaultyProxy:
    """Forwards connections to a server until one of its faults is called. New connections may always be opened.

    Only a cut holds new connections back as well.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._connections: set[_ForwardedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._network = asyncio.Event()
        """Set but during a cut."""
        self._network.set()
        self.url = ""

    def drop_connections(self) -> None:
        """Drop all connections as when a phone changes networks: neither side gets a close."""
        for connection in self._connections:
            connection.abort()

    def drop_after(self, n_bytes: int) -> None:
        """Drop each connection once it has forwarded this many bytes more, wherever in a message that is."""
        for connection in self._connections:
            connection.bytes_left = n_bytes

    def silence(self) -> None:
        """Forward nothing any more on the present connections, and leave them open: both sides wait."""
        for connection in self._connections:
            connection.flowing.clear()
            connection.is_silenced = True

    async def hold(self, seconds: float) -> None:
        """Hold all bytes back for some seconds, and then deliver them at once."""
        held = [connection for connection in self._connections if not connection.is_silenced]
        for connection in held:
            connection.flowing.clear()
        await asyncio.sleep(seconds)
        for connection in held:
            if not connection.is_silenced:
                connection.flowing.set()

    async def cut(self, seconds: float) -> None:
        """Cut the network for some seconds, as in a tunnel: nothing passes, no end of a connection either.

        A new connection is accepted and gets no answer. Afterwards everything that was held back is delivered.
        """
        self._network.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._network.set()

    async def delay(self, delay_s: float, seconds: float) -> None:
        """Deliver the bytes of each read late by `delay_s`, for some seconds."""
        delayed = list(self._connections)
        for connection in delayed:
            connection.delay_s = delay_s
        await asyncio.sleep(seconds)
        for connection in delayed:
            connection.delay_s = 0.0

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the connection of a client, in a task of its own."""
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop all connections and wait until their tasks have ended."""
        self._network.set()
        self.drop_connections()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._network.wait()
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            # The server is not there. The client finds the connection closed, as it would without the proxy.
            writer.close()
            return
        connection = _ForwardedConnection(self._network, (reader, server_writer), (server_reader, writer))
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


class _ForwardedConnection:
    """The connection of a client to the proxy and that of the proxy to the server."""

    def __init__(self, network: asyncio.Event, *directions: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._network = network
        self._directions = directions
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.is_silenced = False
        self.delay_s = 0.0
        self.bytes_left: int | None = None
        """How many bytes are forwarded before the connection is dropped. `None`: it is not dropped."""
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        pumps = [asyncio.create_task(self._pump(reader, writer)) for reader, writer in self._directions]
        pumps.append(asyncio.create_task(self._wait_until_over()))
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for _, writer in self._directions:
                writer.close()

    def abort(self) -> None:
        """Drop the connection: both sides see a reset."""
        for _, writer in self._directions:
            writer.transport.abort()
        self._is_over.set()

    async def _wait_until_over(self) -> None:
        await self._is_over.wait()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.flowing.wait()
                await self._network.wait()
                if self.bytes_left is not None:
                    data, self.bytes_left = data[: self.bytes_left], max(self.bytes_left - len(data), 0)
                writer.write(data)
                await writer.drain()
                if self.bytes_left == 0:
                    self.abort()
        except OSError:
            # One side has closed. That ends this direction, and then the other one.
            pass
        # The other side does not learn of the end during a cut.
        await self._network.wait()


@asynccontextmanager
async def faulty_proxy(url: str) -> AsyncIterator[FaultyProxy]:
    """Run a proxy for the server at `url` on a free loopback port until the block is left."""
    parts = urlsplit(url)
    proxy = FaultyProxy(parts.hostname or "", parts.port or 80)
    listener = socket.socket()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    listener.bind(("127.0.0.1", 0))
    async with await asyncio.start_server(proxy.accept, sock=listener, limit=BUFFER_BYTES) as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            await proxy.close()
