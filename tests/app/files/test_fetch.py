"""Recordings from addresses: what is fetched, what is refused, and where the connection goes."""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Any, cast

import httpx
import pytest
import trustme

from tutti_server.app.files.addresses import AddressRules
from tutti_server.app.files.fetch import RecordingFetcher
from tutti_server.app.jobs import JobDelayed, JobFailed

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
OK = "200 OK"


class Web:
    """A server whose answers are written out, with the requests that it got."""

    def __init__(self, answer: Callable[[str], bytes], tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self.requests: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Web"]:
        serving = set[asyncio.Task[None]]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(current := cast("asyncio.Task[None]", asyncio.current_task()))
            try:
                await self._serve(reader, writer)
            finally:
                serving.discard(current)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
        # A client that breaks off a handshake has gone before its server knows.
        while serving:
            await asyncio.wait(serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._tls:
                await writer.start_tls(self._tls)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            writer.write(self._answer(head.split()[1]))
            await writer.drain()
        except (ssl.SSLError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ssl.SSLError, ConnectionError):
                await writer.wait_closed()


def answer(content: bytes = b"audio", status: str = OK, type_: str = "audio/wav", **headers: str) -> bytes:
    lines = {"content-type": type_, "content-length": str(len(content)), "connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content


def fetcher(resolve: Callable[[str], Sequence[str]] = lambda host: ["127.0.0.1"], **values: Any) -> RecordingFetcher:
    async def resolve_now(host: str, port: int) -> Sequence[str]:
        return resolve(host)

    hosts = ("*.example.org", "db.internal", "name.invalid")
    rules = AddressRules("url_hosts", hosts, private_networks=LOOPBACK, resolve=resolve_now)
    defaults: dict[str, Any] = {"types": ("audio/", "application/ogg"), "max_bytes": 1_000_000, "timeout_s": 20.0}
    return RecordingFetcher(rules=rules, **defaults | values)


async def fetched(web: Web, path: str = "/a.wav", **values: Any) -> bytes:
    file = BytesIO()
    async with web.running():
        await fetcher(**values).fetch(f"http://a.example.org:{web.port}{path}", file)
    return file.getvalue()


async def test_a_recording_is_fetched_under_its_name() -> None:
    web = Web(lambda path: answer())
    assert await fetched(web, "/a.wav?b=c#d") == b"audio"
    assert web.requests[0].startswith("GET /a.wav?b=c HTTP/1.1\r\n")
    assert f"host: a.example.org:{web.port}\r\n" in web.requests[0].lower()


async def test_redirects_are_followed_and_checked() -> None:
    """Each one, by the same rules; there are not many."""
    web = Web(lambda path: answer() if path == "/b" else answer(status="302 Found", location="/b"))
    assert await fetched(web) == b"audio"
    for place in (
        "http://evil.net/",
        "http://private.example.org/",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "http://[a/",
    ):
        away = Web(lambda path, place=place: answer(status="302 Found", location=place))  # type: ignore[misc]
        with pytest.raises(JobFailed) as refused:
            await fetched(away, resolve=lambda host: ["10.0.0.1" if "private" in host else "127.0.0.1"])
        assert refused.value.code == "url_refused" and len(away.requests) == 1
    loop = Web(lambda path: answer(status="302 Found", location="/a.wav"))
    with pytest.raises(JobFailed, match="at most 5 redirects"):
        await fetched(loop)
    assert len(loop.requests) == 6


@pytest.mark.parametrize("error", [None, socket.EAI_NONAME, socket.EAI_NODATA])
async def test_names_of_the_operators_network_are_not_told_from_others(error: int | None) -> None:
    """One that has a private address fails as one that does not exist: with the same code and message."""

    def resolve(host: str) -> Sequence[str]:
        if error is not None:
            raise socket.gaierror(error, "the resolver's own words")
        return ["10.0.0.1"]

    with pytest.raises(JobFailed) as refused:
        await fetcher(resolve).fetch("https://db.internal/", BytesIO())
    message = "url: expected a host with public addresses only, got 'db.internal'"
    assert (refused.value.code, refused.value.message) == ("url_refused", message)


async def test_a_name_that_cannot_be_resolved_now_is_tried_again() -> None:
    def resolve(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    with pytest.raises(JobDelayed):
        await fetcher(resolve).fetch("https://a.example.org/", BytesIO())


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """It is resolved once for each connection, and the connection goes to the address that was checked."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    web = Web(lambda path: answer(status="302 Found", location="/b"))
    async with web.running():
        with pytest.raises(JobFailed, match="public addresses only"):
            # `.invalid` has no address: only what `resolve` said can have been connected to.
            await fetcher(lambda host: next(answers)).fetch(f"http://name.invalid:{web.port}/", BytesIO())
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    ("content", "error", "code"),
    [
        (answer(status="404 Not Found"), JobFailed, "url_failed"),
        (answer(b""), JobFailed, "url_failed"),
        (answer(type_="text/html"), JobFailed, "url_type"),
        (answer(content_encoding="gzip"), JobFailed, "url_type"),
        (answer(b"x" * 11), JobFailed, "too_large"),
        (answer(b"x" * 99).replace(b"content-length: 99\r\n", b""), JobFailed, "too_large"),
        (answer(status="503 Away"), JobDelayed, ""),
        (answer(status="429 Slow"), JobDelayed, ""),
        (b"SSH-2.0-OpenSSH\r\n", JobDelayed, ""),
        (answer(b"x").replace(b"content-length: 1", b"content-length: 5"), JobDelayed, ""),
    ],
)
async def test_what_is_no_recording_is_refused(content: bytes, error: type[Exception], code: str) -> None:
    with pytest.raises(error) as refused:
        await fetched(Web(lambda path: content), max_bytes=10)
    assert getattr(refused.value, "code", "") == code


async def test_a_disk_without_room_is_not_the_fault_of_the_other_server() -> None:
    class Full(BytesIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, "no room")

    async with Web(lambda path: answer()).running() as web:
        with pytest.raises(OSError, match="no room"):
            await fetcher().fetch(f"http://a.example.org:{web.port}/", Full())


async def test_a_slow_server_is_given_up() -> None:
    stays, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stays.wait()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(JobDelayed, match=r"within 0\.1 s"):
            await fetcher(timeout_s=0.1).fetch(f"http://a.example.org:{port}/", BytesIO())
        stays.set()
        await closed.wait()


async def test_a_server_that_is_away_is_asked_again_later() -> None:
    async with Web(lambda path: b"").running() as web:
        pass
    with pytest.raises(JobDelayed, match="cannot be reached"):
        await fetcher().fetch(f"http://a.example.org:{web.port}/", BytesIO())


async def test_the_certificate_must_have_the_name() -> None:
    """Although the connection goes to an address."""
    authority = trustme.CA()
    own, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("a.example.org").configure_cert(own)
    authority.configure_trust(trusting)
    async with Web(lambda path: answer(), own).running() as web:
        file = BytesIO()
        async with httpx.AsyncHTTPTransport(verify=trusting) as tls:
            await fetcher(tls=tls).fetch(f"https://a.example.org:{web.port}/", file)
        assert file.getvalue() == b"audio"
        async with httpx.AsyncHTTPTransport(verify=trusting) as tls:
            with pytest.raises(JobDelayed, match="cannot be reached"):
                await fetcher(tls=tls).fetch(f"https://b.example.org:{web.port}/", BytesIO())
        with pytest.raises(JobDelayed, match="cannot be reached"):
            await fetcher().fetch(f"https://a.example.org:{web.port}/", BytesIO())
    assert len(web.requests) == 1
