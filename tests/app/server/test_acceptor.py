"""Gateways that share a listening socket; and connections whose TLS handshake is not over, on both event loops.

These are unauthenticated, with limits of number and time.
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import trustme
import uvloop
from websockets.asyncio.client import connect

from tests.app.conftest import Running, Serve, running
from tests.app.server.test_http_protocols import HEAD, LongAnswer, ended, raw, read_slowly
from tests.fakes import FakeTranscriber
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server import acceptor
from tutti_server.app.server.acceptor import Acceptor
from tutti_server.app.service.client_connections import ClientConnection, UnauthenticatedConnections
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import COLUMNS, N_COUNTS, AdmissionCounter

CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The first bytes of a ClientHello; hundreds more must follow."""


@pytest.fixture(scope="module")
def tls(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The settings of an encrypted server."""
    path = str(Path(tmp_path_factory.mktemp("tls")) / "both.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    yield {"tls_cert": path, "tls_key": path}


async def test_handshakes_are_bounded_by_address_and_in_all(
    serve: Serve, tls: dict[str, Any], trusting: ssl.SSLContext
) -> None:
    """The oldest makes room; one that is admitted is not counted."""
    server = await serve(**tls, api_keys="k", max_strangers=3, max_strangers_per_address=2)
    headers = {"authorization": "Bearer k"}
    async with (
        connect(f"wss://{server.address}/v1/stream", ssl=trusting, additional_headers=headers) as admitted,
        raw(server) as (first, _),
        raw(server, source="127.0.0.2") as (second, _),
        raw(server, CLIENT_HELLO, source="127.0.0.2") as (third, _),
        raw(server, source="127.0.0.2") as (fourth, _),
    ):
        assert await ended(second) == b""
        async with raw(server, source="127.0.0.3") as (fifth, _):
            assert await ended(first) == b""
            assert not any(each.at_eof() for each in (third, fourth, fifth))
            assert server.metric("tutti_strangers_open") == 3
        await admitted.ping()
    assert server.metric("tutti_strangers_refused_total", reason="crowded") == 2


class RawClient:
    """A client of which every packet is known."""

    def __init__(self, trusting: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._reader, self._writer = reader, writer

    async def shake_hands(self) -> None:
        """Do the client's part of the handshake, all but the sending of its last bytes."""
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._exchange()

    async def ask(self, request: bytes, end_of_answer: bytes) -> bytes:
        """Send a request. Returns the answer up to these bytes."""
        self._tls.write(request)
        answer = b""
        while end_of_answer not in answer:
            try:
                answer += self._tls.read()
            except ssl.SSLWantReadError:
                await self._exchange()
        return answer

    async def _exchange(self) -> None:
        self._writer.write(self._outgoing.read())
        received = await self._reader.read(65_536)
        assert received
        self._incoming.write(received)


async def test_a_slow_head_is_answered_and_counted_until_its_end(
    serve: Serve, tls: dict[str, Any], trusting: ssl.SSLContext
) -> None:
    """The client does not take part in the end of TLS, which therefore takes time."""
    server = await serve(**tls, head_timeout_s=0.3)
    async with raw(server) as (reader, writer):
        client = RawClient(trusting, reader, writer)
        await client.shake_hands()
        answer = await client.ask(b"GET / HTTP/1.1\r\n", b"within 0.3 s.\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert server.metric("tutti_strangers_open") == 1
        await ended(reader)
    assert len(server.service.unauthenticated) == 0


async def ask_at_once(server: Running, trusting: ssl.SSLContext) -> None:
    async with raw(server) as (reader, writer):
        client = RawClient(trusting, reader, writer)
        await client.shake_hands()
        assert (await client.ask(HEAD + b"\r\n", b"ok\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_handshake_does_not_hold_up_the_stop(decoders: Decoders, tls: dict[str, Any]) -> None:
    """It is cut off at once, as its time may be longer than the server waits."""
    async with (
        running(Settings(**tls, port=0, head_timeout_s=1000.0), FakeTranscriber(), decoders=decoders) as server,
        raw(server, CLIENT_HELLO) as (reader, _),
    ):
        async with raw(server, b"nonsense" * 9) as (later, _):
            await ended(later)
        # The server has accepted the first one as well.
        server.server.stop()
        assert await ended(reader) == b""
        await server.task


def test_the_loop_of_the_command_line_does_the_same(
    decoders: Decoders, tls: dict[str, Any], trusting: ssl.SSLContext
) -> None:
    """Its transports are not those of asyncio."""

    async def main() -> None:
        settings, plugins = Settings(**tls, port=0, head_timeout_s=0.3), [LongAnswer()]
        async with (
            asyncio.timeout(30),
            running(settings, FakeTranscriber(), decoders=decoders, plugins=plugins) as server,
        ):
            async with raw(server) as (silent, _), raw(server, b"nonsense" * 9) as (malformed, _):
                await ended(malformed)
                await ended(silent)
            for reason in ("slow", "malformed"):
                assert server.metric("tutti_strangers_refused_total", reason=reason) == 1
            assert len(server.service.unauthenticated) == 0
            await ask_at_once(server, trusting)
            async with httpx.AsyncClient(verify=trusting) as client:
                assert (await client.get(f"https://{server.address}/readyz")).status_code == 200
            assert await read_slowly(server, trusting) == LongAnswer.n_bytes

    uvloop.run(main())


class Gateways:
    """Gateways that accept from one listening socket, and keep their connections."""

    def __init__(self, n: int, hanging: Collection[int] = (), n_late: int = 0) -> None:
        """Make `n` gateways. Those in `hanging` are counted and accept nothing; the last `n_late` wait for `start`."""
        self.counts = np.zeros((n + 1, N_COUNTS), np.int64)
        self.counts[list(hanging), COLUMNS["connections"]] = 1
        self.connections: list[list[asyncio.BaseTransport]] = [[] for _ in range(n)]
        self._clients: list[asyncio.StreamWriter] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        # A loop watches each descriptor once.
        self._listeners = [self._listener.dup() for _ in range(n)]
        self._is_accepted = asyncio.Event()
        self._acceptors: list[Acceptor] = []
        for number in range(n - n_late):
            if number not in hanging:
                self.start(number)

    def start(self, number: int) -> None:
        """Accept with this gateway, too."""
        gateways, settings = self, Settings(max_strangers_per_address=100, gateways=len(self.connections))
        unauthenticated = UnauthenticatedConnections(
            settings, Metrics(FakeTranscriber()).unauthenticated, AdmissionCounter(self.counts, number)
        )

        class Connection(asyncio.Protocol):
            def __init__(self, connection: ClientConnection) -> None:
                self._connection = connection

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                gateways.connections[number].append(transport)
                gateways._is_accepted.set()

            def connection_lost(self, exc: Exception | None) -> None:
                self._connection.leave()

        self._acceptors.append(Acceptor(self._listeners[number], None, Connection, settings, unauthenticated))

    async def wait_for(self, n: int) -> list[int]:
        """Wait until `n` connections are accepted. Returns how many each gateway has accepted."""
        async with asyncio.timeout(20):
            while sum(map(len, self.connections)) < n:
                self._is_accepted.clear()
                await self._is_accepted.wait()
        return list(map(len, self.connections))

    async def open(self) -> None:
        """Open a connection, which may wait until it is accepted."""
        _, client = await asyncio.open_connection(*self._listener.getsockname())
        self._clients.append(client)

    async def connect(self, n: int) -> list[int]:
        """Open connections, each when the one before is accepted. Returns how many each gateway has accepted now."""
        before = list(map(len, self.connections))
        for n_accepted in range(sum(before), sum(before) + n):
            await self.open()
            await self.wait_for(n_accepted + 1)
        return [len(each) - n_before for each, n_before in zip(self.connections, before, strict=True)]

    async def close(self) -> None:
        """Accept no more, and end all connections."""
        for each in self._acceptors:
            each.close()
            await each.wait_closed()
        for client in self._clients:
            client.close()
            await client.wait_closed()
        for connection in itertools.chain.from_iterable(self.connections):
            connection.close()
        for listener in (self._listener, *self._listeners):
            listener.close()


@pytest.fixture
async def make_gateways() -> AsyncIterator[Callable[..., Gateways]]:
    """Make gateways that are closed at the end."""
    made: list[Gateways] = []

    def make(*arguments: Any) -> Gateways:
        made.append(Gateways(*arguments))
        return made[-1]

    yield make
    for gateways in made:
        await gateways.close()


async def test_gateways_share_connections_evenly(make_gateways: Callable[..., Gateways]) -> None:
    """Where the clients of one have left, it gets the next ones."""
    gateways = make_gateways(3)
    assert all(9 <= n <= 11 for n in await gateways.connect(30))
    for connection in gateways.connections[0]:
        connection.close()
    await asyncio.sleep(0)
    first, *others = await gateways.connect(8)
    assert first >= 7 and sum(others) <= 1


async def test_a_gateway_that_hangs_keeps_no_client_waiting(make_gateways: Callable[..., Gateways]) -> None:
    """It is counted as one that accepts, and has fewer connections than the others."""
    first, hanging, third = await make_gateways(3, [1]).connect(20)
    assert not hanging and min(first, third) >= 9


async def test_gateways_that_start_together_share_the_clients_that_wait(make_gateways: Callable[..., Gateways]) -> None:
    """No gateway accepts a connection before the last one is ready to."""
    gateways = make_gateways(3, [], 1)
    for _ in range(30):
        await gateways.open()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(gateways.connections)
    gateways.start(2)
    assert all(9 <= n <= 11 for n in await gateways.wait_for(30))


async def test_a_gateway_does_not_wait_for_one_that_cannot_start(
    make_gateways: Callable[..., Gateways], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while it accepts without the other."""
    monkeypatch.setattr(acceptor, "LONGEST_START_S", 0.1)
    assert await make_gateways(2, [], 1).connect(4) == [4, 0]


async def test_nobody_gives_way_to_a_gateway_that_does_not_accept(make_gateways: Callable[..., Gateways]) -> None:
    """A gateway that has died is one."""
    gateways = make_gateways(2)
    await gateways.connect(4)
    gateways.counts[1] = 0
    assert AdmissionCounter(gateways.counts, 0).surplus("connections") == 0
