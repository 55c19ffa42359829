"""A TCP proxy that forwards bytes to a server and can drop its connections without notice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

READ_BYTES = 65_536


class FaultyProxy:
    """Forwards connections to a server until `drop_connections` is called."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.n_drops = 0

    def drop_connections(self) -> None:
        """Drop all connections as when a phone changes networks: neither side gets a close. New ones may be opened."""
        self.n_drops += 1
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the connection of a client, in a task of its own."""
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
            writers.append(server_writer)
            self._writers.update(writers)
            pumps = [
                asyncio.create_task(_pump(reader, server_writer)),
                asyncio.create_task(_pump(server_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
        except OSError:
            # The server is not there. The client finds the connection closed, as it would without the proxy.
            pass
        finally:
            self._writers.difference_update(writers)
            for each in writers:
                each.close()


@asynccontextmanager
async def faulty_proxy(url: str) -> AsyncIterator[FaultyProxy]:
    """Run a proxy for the server at `url` on a free loopback port until the block is left."""
    parts = urlsplit(url)
    proxy = FaultyProxy(parts.hostname or "", parts.port or 80)
    async with await asyncio.start_server(proxy.accept, "127.0.0.1", 0) as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            proxy.drop_connections()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        # One side has closed. That ends this direction, and then the other one.
        pass
