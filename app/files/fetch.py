"""HTTP to addresses that clients name: requests go to checked addresses only, also after redirects."""

import asyncio
import email.message
import ipaddress
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import IO
from urllib.parse import SplitResult, unquote, urljoin

import httpx

from tutti_server.app.files.addresses import AddressRefused, AddressRules
from tutti_server.app.jobs import JobDelayed, JobFailed
from tutti_server.app.numbers import read_integer
from tutti_server.app.retries import is_transient
from tutti_server.app.service.settings import Settings, listed

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 30.0
"""How long a server may send nothing, in seconds."""
PIECE_BYTES = 1 << 16


@cache
def _trusted() -> ssl.SSLContext:
    """Trusts the authorities of certifi. To read them holds everybody up for 30 ms, so all requests share it."""
    return httpx.create_ssl_context(trust_env=False)


@asynccontextmanager
async def sent(
    rules: AddressRules,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None = None,
    tls: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[httpx.Response]:
    """Send one request to a checked address, and give its answer, whose body is not read. Follows no redirect.

    The connection is used once: one that was opened for a name must not serve another name of the same address.

    Args:
        tls: replaced by tests that have certificates of their own.

    Raises:
        AddressRefused: the address is not allowed.
        OSError, TimeoutError: its name cannot be resolved.
        httpx.HTTPError: there is no answer.
    """
    target = await rules.target(url)
    parts = rules.check(url)
    auth = httpx.BasicAuth(unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    timeout = httpx.Timeout(IDLE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    # The environment's proxies would connect in place of us, to whatever the name means to them.
    async with httpx.AsyncClient(
        transport=tls, verify=_trusted(), trust_env=False, timeout=timeout, follow_redirects=False
    ) as client:
        for at, address in enumerate(target.addresses):
            request = client.build_request(
                method,
                _at_address(parts, address),
                headers={**headers, "host": parts.netloc.rpartition("@")[2], "accept-encoding": "identity"},
                content=content,
                # The certificate is checked against the name, though the connection goes to the address.
                extensions={"sni_hostname": target.host},
            )
            try:
                response = await client.send(request, auth=auth, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if at + 1 == len(target.addresses):
                    raise
                continue
            try:
                yield response
            finally:
                await response.aclose()
            return


def _at_address(parts: SplitResult, address: str) -> str:
    host = f"[{address}]" if ipaddress.ip_address(address.partition("%")[0]).version == 6 else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return parts._replace(netloc=netloc, fragment="").geturl()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFetcher:
    """Fetches recordings within the operator's limits."""

    rules: AddressRules
    types: tuple[str, ...]
    """The content types that are accepted; `audio/` stands for all that begin so."""
    max_bytes: int
    timeout_s: float
    """The time limit of one recording in seconds, with its redirects."""
    tls: httpx.AsyncBaseTransport | None = None

    async def fetch(self, url: str, file: IO[bytes]) -> None:
        """Fetch a recording into a file.

        Raises:
            JobFailed: it is not allowed, is not there, or is no recording.
            JobDelayed: its server cannot be reached or has failed.
            OSError: the file cannot be written.
        """
        try:
            async with asyncio.timeout(self.timeout_s), aclosing(self._pieces(url)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        except TimeoutError:
            raise JobDelayed(f"url: expected the recording within {self.timeout_s:g} s, it came more slowly") from None

    async def _pieces(self, url: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a recording as they come. Raises what `fetch` does, but for the file and the time limit."""
        try:
            async with self._answered(url) as response:
                self._check(response)
                n_bytes = 0
                async for piece in response.aiter_raw(PIECE_BYTES):
                    n_bytes += len(piece)
                    self._check_size(n_bytes)
                    yield piece
                if not n_bytes:
                    raise JobFailed("url_failed", "url: expected a recording, got nothing")
        except AddressRefused as error:
            raise JobFailed("url_refused", f"url: {error}") from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise JobFailed("url_refused", "url: expected an address that can be requested") from error
        except (httpx.HTTPError, OSError) as error:
            raise JobDelayed(f"url: its server cannot be reached ({type(error).__name__})") from error

    @asynccontextmanager
    async def _answered(self, url: str) -> AsyncIterator[httpx.Response]:
        for _ in range(MAX_REDIRECTS + 1):
            async with sent(self.rules, "GET", url, headers={"accept": "*/*"}, tls=self.tls) as response:
                if response.status_code in REDIRECTS and "location" in response.headers:
                    # Checked as the first one was. It gets no password of the first one.
                    url = _redirected(url, response.headers["location"])
                    continue
                yield response
                return
        raise JobFailed("url_failed", f"url: expected at most {MAX_REDIRECTS} redirects")

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if is_transient(status):
            raise JobDelayed(f"url: expected status 200, got {status}")
        if status != 200:
            raise JobFailed("url_failed", f"url: expected status 200, got {status}")
        head = email.message.Message()
        head["content-type"] = response.headers.get("content-type", "application/octet-stream")
        kind = head.get_content_type()
        if not any(kind == each or (each.endswith("/") and kind.startswith(each)) for each in self.types):
            raise JobFailed("url_type", f"url: expected one of the types {', '.join(self.types)}, got {kind[:80]}")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise JobFailed("url_type", "url: expected a body without content-encoding, as was asked for")
        self._check_size(read_integer(response.headers.get("content-length", "")) or 0)

    def _check_size(self, n_bytes: int) -> None:
        if n_bytes > self.max_bytes:
            raise JobFailed("too_large", f"url: expected at most {self.max_bytes // 1_000_000} MB")


def _redirected(url: str, location: str) -> str:
    """Where a redirect leads, as it may name only the end of an address. Raises `AddressRefused`."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise AddressRefused(f"expected a redirect to an address, got {location[:80]!r}") from error


def address_rules(settings: Settings, name: str, hosts: str) -> AddressRules:
    """The operator's rules for addresses of one purpose.

    Args:
        name: of the setting that lists the hosts.
        hosts: its value.
    """
    return AddressRules(
        name,
        listed(hosts.lower()),
        private_networks=settings.networks_of_clients,
    )


def fetcher(settings: Settings) -> RecordingFetcher:
    """Fetches recordings within the operator's limits."""
    return RecordingFetcher(
        rules=address_rules(settings, "url_hosts", settings.url_hosts),
        types=settings.url_types,
        max_bytes=settings.max_upload_mb * 1_000_000,
        timeout_s=settings.url_timeout_s,
    )
