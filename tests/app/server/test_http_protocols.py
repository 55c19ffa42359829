"""What unauthenticated clients may do on a real server: how long, how many, how much; and what the log shows."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.app.conftest import Running, Serve
from tutti_server.app.server import http_protocols, main
from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.auth import Access
from tutti_server.app.service.service import Service

HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
UPGRADE = (
    b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n%b\r\n"
)
UPLOAD = b"POST /v1/listen HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n"


@asynccontextmanager
async def raw(
    server: Running, first: bytes = b"", source: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection from this address that has sent these bytes."""
    host, port = server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0), ssl=tls)
    writer.write(first)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes, with or without a reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send the same bytes again and again."""
    while True:
        writer.write(data)
        await asyncio.sleep(0.02)


@asynccontextmanager
async def started(address: str, **options: Any) -> AsyncIterator[ClientConnection]:
    """A session in the native protocol that has begun."""
    async with connect(address, **options) as socket:
        await socket.send('{"type": "start"}')
        await socket.recv()
        yield socket


LATE = {
    "silent": (b"", b"", b""),
    "half a head": (HEAD, b"", b"HTTP/1.1 408 "),
    "half a line": (HEAD[:9], b"", b"HTTP/1.1 408 "),
    "half a second head": (HEAD + b"\r\n" + HEAD, b"", b"HTTP/1.1 200 "),
    "dripped header": (HEAD + b"x: ", b"x", b""),
    "dripped body": (HEAD + b"content-length: 100000\r\n\r\n", b"x", b""),
    "body for no endpoint": (b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n", b"x", b""),
}
"""Connections that never bring a whole request: what is sent first, then byte by byte, and how the answer begins.

A client that still sends when it is closed may lose the answer.
"""


async def test_a_connection_without_a_whole_request_is_closed(serve: Serve) -> None:
    """Bytes that come one by one give it no more time."""
    server = await serve(head_timeout_s=0.3, api_keys="k")

    async def answer(first: bytes, dripped: bytes) -> bytes:
        async with raw(server, first) as (reader, writer), asyncio.TaskGroup() as tasks:
            dripping = tasks.create_task(drip(writer, dripped))
            content = await ended(reader)
            dripping.cancel()
        return content

    answers = await asyncio.gather(*(answer(first, dripped) for first, dripped, _ in LATE.values()))
    for name, content, (_, _, expected) in zip(LATE, answers, LATE.values(), strict=True):
        assert content.startswith(expected), name
    assert server.metric("tutti_strangers_refused_total", reason="slow") == len(LATE)
    assert len(server.service.unauthenticated) == 0


async def test_a_connection_waits_longer_for_its_next_request(serve: Serve) -> None:
    """Longer than for the head of a request that has begun, as clients and proxies keep connections."""
    server = await serve(head_timeout_s=0.1)
    async with raw(server, HEAD + b"\r\n") as (reader, writer):
        assert await status(reader) == 200
        async with raw(server) as (silent, _):
            assert await ended(silent) == b""
        await reader.readuntil(b"ok\n")
        writer.write(HEAD + b"\r\n")
        assert await status(reader) == 200
        writer.write(HEAD)
        assert b"ok\nHTTP/1.1 408 " in await ended(reader)


async def test_a_connection_without_a_further_request_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no refusal: the client was served."""
    monkeypatch.setattr(main, "KEEP_ALIVE_S", 0.05)
    server = await serve()
    async with raw(server, HEAD + b"\r\n") as (reader, _):
        assert (await ended(reader)).endswith(b"ok\n")
    assert server.metric("tutti_strangers_refused_total", reason="slow") == 0


class LongAnswer(Plugin):
    """Serves an answer that is longer than what the system keeps for a client."""

    name = "long"
    n_bytes = 16_000_000

    def routes(self, service: Service) -> Sequence[BaseRoute]:
        return [Route("/long", lambda request: Response(bytes(self.n_bytes)))]


LAST = b"GET /long HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
"""Asks for the answer with which the connection ends."""


async def read_slowly(server: Running, tls: ssl.SSLContext | None = None) -> int:
    """Ask for the long answer. Returns how much of it has come at the end."""
    async with raw(server, LAST, tls=tls) as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        n_received = 0
        while content := await reader.read(1 << 16):
            n_received += len(content)
            await asyncio.sleep(0.002)  # The client that the test is about is this slow.
    return n_received


async def test_a_client_that_reads_slowly_gets_its_last_answer(serve: Serve) -> None:
    """As behind proxies, which pass answers on at their clients' pace."""
    server = await serve(plugins=[LongAnswer()], head_timeout_s=0.1)
    assert await read_slowly(server) == LongAnswer.n_bytes


@pytest.mark.parametrize("request_", [LAST, LAST.replace(b"connection: close\r\n", b"")])
async def test_a_client_that_does_not_read_its_last_answer_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    """Whether it asked for the end of the connection, or no further request has come."""
    for module in (http_protocols, main):
        monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.05)
    server = await serve(plugins=[LongAnswer()], head_timeout_s=0.2)
    async with raw(server, request_) as (reader, _):
        assert await status(reader) == 200
        async with raw(server) as (silent, _):
            assert await ended(silent) == b""
        assert len(server.service.unauthenticated) == 0
        assert len(await ended(reader)) < LongAnswer.n_bytes


async def test_a_request_without_a_key_has_little_time(serve: Serve) -> None:
    """Its body is read before the key is looked at, so it must not come for ever."""
    server = await serve(stranger_timeout_s=0.3, api_keys="k")
    request = UPLOAD.replace(b"/v1/listen", b"/v1/realtime/client_secrets")
    async with raw(server, request) as (reader, _):
        assert await ended(reader) == b""
    assert len(server.service.unauthenticated) == 0


async def test_a_dripping_upload_gives_its_place_back(serve: Serve) -> None:
    """It is never idle, but slower than the least rate."""
    server = await serve(idle_timeout_s=0.5, head_timeout_s=0.3, max_uploads=1)
    async with raw(server, UPLOAD) as (reader, writer), asyncio.TaskGroup() as tasks:
        dripping = tasks.create_task(drip(writer, b"x"))
        assert await status(reader) == 408
        dripping.cancel()
        assert b"at least 2 kB/s" in await ended(reader)
    await server.service.admission.all_finished.wait()


async def test_the_oldest_unauthenticated_connection_makes_room(serve: Serve) -> None:
    """In all, and for each address; one that is admitted is not counted."""
    server = await serve(max_strangers=3, max_strangers_per_address=2)
    async with (
        started(server.stream),
        raw(server) as (first, _),
        raw(server, source="127.0.0.2") as (second, _),
        raw(server, source="127.0.0.2") as (third, _),
        raw(server, source="127.0.0.2") as (fourth, _),
    ):
        assert await ended(second) == b""
        async with raw(server, source="127.0.0.3", first=HEAD + b"\r\n") as (fifth, _):
            assert await status(fifth) == 200
            assert await ended(first) == b""
            assert not third.at_eof() and not fourth.at_eof()
    assert server.metric("tutti_strangers_refused_total", reason="crowded") == 2


async def test_idle_clients_make_room_first(serve: Serve) -> None:
    """Connections that wait for another request are ended before others, and do not count as refused."""
    server = await serve(max_strangers=2)
    async with raw(server, HEAD + b"\r\n") as (idle, _):
        await idle.readuntil(b"ok\n")
        async with raw(server) as (silent, _), raw(server, HEAD + b"\r\n") as (newest, _):
            await newest.readuntil(b"ok\n")
            assert await ended(idle) == b""
            assert not silent.at_eof()
    assert server.metric("tutti_strangers_refused_total", reason="crowded") == 0


async def test_clients_of_a_proxy_are_counted_by_their_own_address(serve: Serve) -> None:
    """It names them; the connections are all its own."""
    server = await serve(max_strangers_per_address=1, api_keys="k")
    head = UPGRADE % (b"/v1/twilio", b"x-forwarded-for: %b\r\n")
    async with (
        raw(server, head % b"10.0.0.1") as (first, _),
        raw(server, head % b"10.0.0.2") as (second, _),
    ):
        assert [await status(first), await status(second)] == [101, 101]
        async with raw(server, head % b"10.0.0.1") as (third, _):
            assert await status(third) == 101
            await ended(first)
            assert not second.at_eof()


UPGRADES = (
    (b"/v1/stream?" + b"x" * 9000, b"", 101),
    (b"/v1/stream", b"x-trace: " + b"x" * 9000 + b"\r\n", 101),
    (b"/v1/stream", b"x: x\r\n" * 300, 101),
    (b"/v1/stream?" + b"x" * 70_000, b"", 431),
    (b"/v1/stream", b"x-trace: " + b"x" * 70_000 + b"\r\n", 431),
    (b"/v1/stream", b"x: x\r\n" * 20_000, 431),
    (b"/v1/stream", b"sec-websocket-protocol: " + b"x" * 9000 + b"\r\n", 431),
    (b"/v1/stream", b"sec-websocket-version: 12\r\n", 400),
)
"""Paths, more headers, and the status of the answer."""


async def test_an_upgrade_is_always_answered(server: Running) -> None:
    """Long paths and headers are served up to a limit, above it they are refused at once."""
    for path, headers, expected in UPGRADES:
        async with raw(server, UPGRADE % (path, headers)) as (reader, _):
            assert await status(reader) == expected, (path[:20], headers[:20])


SMUGGLERS = (
    b"POST /v1/listen HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v1/listen HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    UPGRADE % (b"/v1/stream", b"content-length: 5\r\ntransfer-encoding: chunked\r\n") + b"0\r\n\r\n",
)
"""Requests that end at another byte for a proxy that goes by the other header."""


@pytest.mark.parametrize("smuggler", SMUGGLERS)
async def test_a_request_whose_end_is_not_certain_is_refused(server: Running, smuggler: bytes) -> None:
    """The connection is closed after it: what comes next may be a part of it, and is not answered."""
    async with raw(server, smuggler + HEAD + b"\r\n") as (reader, _):
        answer = await ended(reader)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert server.metric("tutti_strangers_refused_total", reason="malformed") == 1


async def test_a_server_stops_while_a_handshake_fails(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that has no memory left, whose engine has died for that."""
    stopped = asyncio.get_running_loop().create_future()

    def stop(connection: Any) -> None:
        try:
            connection.shutdown()
        except AssertionError as error:
            stopped.set_exception(error)
        else:
            stopped.set_result(None)

    async def fail(access: Access, credential: str | None) -> None:
        (connection,) = server.server.server_state.connections
        # Right after the answer, before the connection has ended.
        asyncio.get_running_loop().call_soon(stop, connection)
        raise MemoryError

    monkeypatch.setattr(Access, "live_client", fail)
    async with raw(server, UPGRADE % (b"/v1/stream", b"")) as (reader, _):
        assert await status(reader) == 500
        await stopped


NO_ERRORS = (
    (b"nonsense\r\n\r\n", 400),
    (HEAD + b"content-length: -1\r\n\r\n", 400),
    (HEAD.replace(b"GET", b"PUT") + b"transfer-encoding: chunked\r\n\r\nnonsense\r\n", 400),
    (UPGRADE.replace(b"GET", b"POST", 1) % (b"/v1/stream", b""), 405),
    (UPGRADE.replace(b"AAAAAAAA==", b"A==") % (b"/v1/stream", b""), 400),
    (UPGRADE % (b"/v1/stream", b"x: \x01\r\n"), 400),
    (UPGRADE.replace(b"key: AAA", b"key: \x01AA") % (b"/v1/stream", b""), 400),
    (UPGRADE % (b"/v1/stream", b""), 401),
    (UPGRADE % (b"/v1/listen", b""), 401),
    (UPGRADE % (b"/v1/twilio/almost-the-key", b""), 401),
    (UPGRADE % (b"/nowhere", b""), 404),
    (UPGRADE % (b"/v1/stream", b"") + b"\xff" * 50, 401),
    (UPGRADE % (b"/v1/twilio", b"") + b"\xff" * 50, 101),
    (UPGRADE % (b"/v1/twilio", b"") + b"\x81\x82\0\0\0\0\xff\xff", 101),
)
"""What unauthenticated clients send, and the status of the answer."""


async def test_what_they_send_is_no_error_of_the_server(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """It is answered, and makes at most one line of information in the log, which does not show the key."""
    caplog.set_level(logging.INFO)
    server = await serve(api_keys="k")
    for sent, expected in NO_ERRORS:
        caplog.clear()
        async with raw(server, sent) as (reader, writer):
            assert await status(reader) == expected, sent
            writer.write_eof()
            await ended(reader)
        assert [each for each in caplog.records if each.levelno > logging.INFO] == []
        lines = [each.message for each in caplog.records if each.name.startswith("tutti_server.app")]
        assert len(lines) == (expected in (401, 404)), sent
        assert "almost-the-key" not in "".join(lines)


async def test_text_that_is_not_utf8_ends_the_connection_only(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """With the code that RFC 6455 names, and without an error in the log."""
    async with connect(f"ws://{server.address}/v1/stream") as socket:
        with pytest.raises(ConnectionClosed):
            await socket.send(b"\xff", text=True)
            while True:
                await socket.recv()
        assert socket.close_code == 1007
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


BAD_TEXT, CLIENT_CLOSE = b"\x81\x81\0\0\0\0\xff", b"\x88\x80\0\0\0\0"


@pytest.mark.parametrize("is_server_first", [True, False])
async def test_text_that_is_not_utf8_is_ignored_beside_a_close_frame(
    server: Running, caplog: pytest.LogCaptureFixture, is_server_first: bool
) -> None:
    """The client may have sent it before it has received the close frame of the server, or together with its own."""
    async with raw(server, UPGRADE % (b"/v1/stream", b"")) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if is_server_first:
            writer.write(b"\x82\x80\0\0\0\0" + b"\x81\x8f\0\0\0\0" + b'{"type":"stop"}')
            await reader.readuntil(b"\x88")
        writer.write(BAD_TEXT + CLIENT_CLOSE)
        await ended(reader)
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


async def test_uploads_that_break_off_are_no_error_of_the_server(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """At any place of the body, with a reset or a close, of a known length or in chunks."""
    caplog.set_level(logging.INFO)
    server = await serve(max_uploads=100)
    part = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nno audio at all'
    form = b"content-type: multipart/form-data; boundary=x\r\n"
    broken = [
        b"POST %b HTTP/1.1\r\nhost: localhost\r\n%b%bcontent-length: 90\r\n\r\n%b" % (path, form, expect, body)
        for path in (b"/v1/listen", b"/v1/audio/transcriptions", b"/v1/realtime/client_secrets", b"/v1/auth/grant")
        for expect in (b"", b"expect: 100-continue\r\n")
        for body in (b"", part[:30], part, (part + b"\r\n--x--")[:90].ljust(90))
    ]
    broken += [sent.replace(b"content-length: 90", b"transfer-encoding: chunked") for sent in broken]

    async def break_off(sent: bytes, resets: bool) -> None:
        async with raw(server, sent) as (_, writer):
            await writer.drain()
            if not resets:
                writer.close()

    await asyncio.gather(*(break_off(sent, resets) for sent in broken for resets in (False, True)))
    await server.service.admission.all_finished.wait()
    assert [each.getMessage() for each in caplog.records if each.levelno > logging.INFO] == []


async def test_a_closed_session_whose_client_stays_is_unauthenticated(serve: Serve) -> None:
    """It has its time to answer the close frame, then the connection is cut."""
    server = await serve(stranger_timeout_s=0.3)
    async with raw(server, UPGRADE % (b"/v1/stream", b"")) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x82\x80\0\0\0\0" + b"\x81\x8f\0\0\0\0" + b'{"type":"stop"}')
        await reader.readuntil(b"\x88")
        assert server.metric("tutti_strangers_open") == 1
        await ended(reader)
    assert server.metric("tutti_strangers_refused_total", reason="slow") == 1
