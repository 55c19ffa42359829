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
        self.url = ""
        self.n_cuts = 0

    def cut(self) -> None:
        """Lose all connections, as when a phone changes networks: neither side is told. New ones may be opened."""
        self.n_cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
            writers.append(server_writer)
            self._writers.update(writers)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, server_writer))
                tasks.create_task(_pump(server_reader, writer))
        except* OSError:
            # Either side has gone; the other is told below.
            pass
        finally:
            self._writers.difference_update(writers)
            for each in writers:
                each.transport.abort()


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """In front of the server at `url`, on a loopback port, until the block is left."""
    parts = urlsplit(url)
    between = Relay(parts.hostname or "", parts.port or 80)
    server = await asyncio.start_server(between._pass_on, "127.0.0.1", 0)
    between.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield between
    finally:
        server.close()
        between.cut()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
