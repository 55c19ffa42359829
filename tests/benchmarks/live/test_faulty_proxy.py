"""The faulty_proxy passes bytes on until it loses its connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.live.faulty_proxy import FaultyProxy, faulty_proxy


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


async def test_bytes_are_held_back_and_arrive_later() -> None:
    """Held connections lose nothing."""
    async with asyncio.timeout(10), echo_through_proxy() as (proxy, reader, writer):
        holding = asyncio.create_task(proxy.hold(0.05))
        await asyncio.sleep(0)
        writer.write(b"late")
        reading = asyncio.create_task(reader.readexactly(4))
        await asyncio.wait({reading, holding}, return_when=asyncio.FIRST_COMPLETED)
        assert holding.done()
        assert await reading == b"late"


async def test_delayed_bytes_arrive() -> None:
    async with asyncio.timeout(10), echo_through_proxy() as (proxy, reader, writer):
        delaying = asyncio.create_task(proxy.delay(0.01, 0.05))
        await asyncio.sleep(0)
        writer.write(b"late")
        assert await reader.readexactly(4) == b"late"
        await delaying


async def test_a_connection_can_be_dropped_inside_a_message() -> None:
    """Exactly as many bytes arrive as were left."""
    async with asyncio.timeout(10), echo_through_proxy() as (proxy, reader, writer):
        proxy.drop_after(6)
        writer.write(b"message")
        # Six bytes reach the server, which may echo none of them before the connection is dropped.
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(7)
        assert proxy.n_drops >= 1


async def test_a_silenced_connection_stays_open_and_carries_nothing() -> None:
    async with asyncio.timeout(10), echo_through_proxy() as (proxy, reader, writer):
        proxy.silence()
        writer.write(b"anyone?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.05)
        assert not reader.at_eof()


async def test_a_cut_network_carries_nothing_and_delivers_it_later() -> None:
    """Bytes and a new connection wait for the end of the cut."""
    async with asyncio.timeout(10), echo_through_proxy() as (proxy, reader, writer):
        cut = asyncio.create_task(proxy.cut(60))
        await asyncio.sleep(0)
        writer.write(b"late")
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        other_writer.write(b"late")
        for each in (reader, other_reader):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(each.readexactly(1), 0.05)
        cut.cancel()
        for each in (reader, other_reader):
            assert await each.readexactly(4) == b"late"
        other_writer.close()


async def test_the_end_of_a_connection_does_not_pass_a_cut() -> None:
    """The server learns after the cut that the client has closed."""
    has_ended = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        has_ended.set()
        writer.close()

    async with (
        asyncio.timeout(10),
        await asyncio.start_server(wait_for_end, "127.0.0.1", 0) as server,
        faulty_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        assert await reader.readexactly(4) == b"here"
        cut = asyncio.create_task(proxy.cut(60))
        await asyncio.sleep(0)
        writer.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(has_ended.wait(), 0.05)
        cut.cancel()
        await has_ended.wait()


@asynccontextmanager
async def echo_through_proxy() -> AsyncIterator[tuple[FaultyProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A proxy with one connection to a server that sends everything back."""
    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        faulty_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        writer.write(b"here")
        assert await reader.readexactly(4) == b"here"
        yield proxy, reader, writer
        writer.close()
