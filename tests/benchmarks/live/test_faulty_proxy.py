"""The proxy fails as networks do: campaigns of faults rest on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.live.faulty_proxy import FaultyProxy, faulty_proxy

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def echo_through_proxy() -> AsyncIterator[tuple[FaultyProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A proxy with one connection to a server that sends everything back."""
    async with (
        asyncio.timeout(10),
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        faulty_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy,
    ):
        reader, writer = await connected(proxy)
        writer.write(b"here")
        assert await reader.readexactly(4) == b"here"
        yield proxy, reader, writer
        writer.close()


async def connected(proxy: FaultyProxy) -> Stream:
    return await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))


@pytest.mark.parametrize("fault", ["drop_connections", "drop_after"])
async def test_a_connection_is_dropped_without_notice(fault: str) -> None:
    """At once, or inside a message; whoever connects anew is served."""
    async with echo_through_proxy() as (proxy, reader, writer):
        if fault == "drop_connections":
            proxy.drop_connections()
        else:
            proxy.drop_after(6)
            writer.write(b"message")
        # Six bytes reach the server, which may echo none of them before the connection is dropped.
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(7)
        again_reader, again_writer = await connected(proxy)
        again_writer.write(b"here")
        assert await again_reader.readexactly(4) == b"here"
        again_writer.close()


async def test_bytes_are_held_back_and_arrive_later() -> None:
    """Held connections lose nothing."""
    async with echo_through_proxy() as (proxy, reader, writer):
        holding = asyncio.create_task(proxy.hold(0.05))
        await asyncio.sleep(0)
        writer.write(b"late")
        reading = asyncio.create_task(reader.readexactly(4))
        await asyncio.wait({reading, holding}, return_when=asyncio.FIRST_COMPLETED)
        assert holding.done()
        assert await reading == b"late"


async def test_a_silenced_connection_stays_open_and_carries_nothing() -> None:
    async with echo_through_proxy() as (proxy, reader, writer):
        proxy.silence()
        writer.write(b"anyone?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.05)
        assert not reader.at_eof()


async def test_a_cut_network_carries_nothing_and_delivers_it_later() -> None:
    """Bytes and a new connection wait for the end of the cut."""
    async with echo_through_proxy() as (proxy, reader, writer):
        cut = asyncio.create_task(proxy.cut(60))
        await asyncio.sleep(0)
        writer.write(b"late")
        other_reader, other_writer = await connected(proxy)
        other_writer.write(b"late")
        for each in (reader, other_reader):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(each.readexactly(1), 0.05)
        cut.cancel()
        for each in (reader, other_reader):
            assert await each.readexactly(4) == b"late"
        other_writer.close()
