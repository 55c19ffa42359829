"""The faulty_proxy passes bytes on until it loses its connections."""

import asyncio

import pytest

from benchmarks.live.faulty_proxy import faulty_proxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


async def test_the_proxy_drops_its_connections_without_notice() -> None:
    """Both directions work before, and again for whoever connects anew."""
    async with asyncio.timeout(10), await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with faulty_proxy(f"http://127.0.0.1:{port}") as proxy:
            address = "127.0.0.1", int(proxy.url.rpartition(":")[2])
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"here")
                assert await reader.readexactly(4) == b"here"
                proxy.drop_connections()
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()
            assert proxy.n_drops == 2
