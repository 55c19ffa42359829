"""The relay passes bytes on until it loses its connections."""

import asyncio

import pytest

from benchmarks.live.faulty_proxy import relay


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


async def test_a_relay_loses_its_connections_without_a_word() -> None:
    """Both directions work before, and again for whoever connects anew."""
    async with asyncio.timeout(10), await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with relay(f"http://127.0.0.1:{port}") as between:
            address = "127.0.0.1", int(between.url.rpartition(":")[2])
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"here")
                assert await reader.readexactly(4) == b"here"
                between.cut()
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()
            assert between.n_cuts == 2
