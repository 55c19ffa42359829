"""A stretch of network of one's own: passes bytes on to a server, and can lose its connections without a word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

READ_BYTES = 65_536


class Relay:
    """An address that leads to a server, until `cut`."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.n_cuts = 0

    def cut(self) -> None:
        """Lose all connections, as when a phone changes networks: neither side is told. New ones may be opened."""
        self.n_cuts += 1
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has connected."""
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
            # The server is not there: the client finds the connection closed, as it would without the relay.
            pass
        finally:
            self._writers.difference_update(writers)
            for each in writers:
                each.close()


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """In front of the server at `url`, on a loopback port, until the block is left."""
    parts = urlsplit(url)
    between = Relay(parts.hostname or "", parts.port or 80)
    async with await asyncio.start_server(between.take, "127.0.0.1", 0) as server:
        between.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield between
        finally:
            between.cut()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        # Either side has gone, which ends this direction and with it the other.
        pass
