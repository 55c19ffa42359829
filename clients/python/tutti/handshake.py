"""Opens the WebSocket to a server, and turns every way in which this can fail into an error of this package."""

from __future__ import annotations

import email.utils
import re
import ssl as tls
import time
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import websockets.asyncio.client
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from tutti.errors import BadOption, BadURL, Overloaded, Refused, TimedOut, Unauthorized, Unreachable

SUBPROTOCOL = "tutti.v1"
STREAM_PATH = "/v1/stream"
"""The path of the endpoint, for URLs that have none."""

PING_INTERVAL_S = 20.0
"""How often the client sends a ping, in seconds."""
PING_TIMEOUT_S = 20.0
"""The connection is lost when a ping is not answered within this time, in seconds."""
MAX_EVENTS_WAITING = 1024
"""How many messages may wait to be read before the client stops reading the socket.

A server whose events are not read ends the session with the error `slow_reader`.
"""

_NO_API_KEY = re.compile(r"[^ -~]|^ | $|^$")
"""What no header can carry of an API key, which is printable ASCII without spaces around it."""
_WEBSOCKET_SCHEMES: Mapping[str, str] = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}


async def open_websocket(
    url: str,
    *,
    api_key: str | None,
    ssl: tls.SSLContext | None,
    proxy: str | Literal[True] | None,
    open_timeout_s: float,
) -> ClientConnection:
    """Open a WebSocket that speaks `tutti.v1`.

    Raises:
        BadOption: an option cannot work with this URL.
        TimedOut: the server did not answer within `open_timeout_s`.
        Unreachable: there is no connection, or no server of tutti at the other end.
        Refused: the server answered with an HTTP status.
    """
    stream_url = resolve_url(url)
    check_encrypted(stream_url, ssl)
    try:
        socket = await _Connect(
            stream_url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=key_headers(api_key),
            # No compression: audio hardly gets smaller, and events are small.
            compression=None,
            proxy=proxy,
            open_timeout=open_timeout_s,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_queue=MAX_EVENTS_WAITING,
            ssl=(ssl or True) if stream_url.startswith("wss:") else None,
        )
    except InvalidStatus as refused:
        response = refused.response
        body = bytes(response.body or b"").decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        raise refusal(stream_url, response.status_code, headers, body) from refused
    except InvalidURI as error:
        raise BadURL(url, str(error)) from error
    except TimeoutError as error:
        raise TimedOut("open_timeout_s", open_timeout_s, f"connection to {stream_url}") from error
    except InvalidHandshake as error:
        raise Unreachable(stream_url, f"no WebSocket there ({error})") from error
    except (ImportError, InvalidProxy) as error:
        # A SOCKS proxy, which needs a package that is not installed, or one of an unknown kind.
        raise BadOption("proxy", f"a proxy that can be used ({error})", proxy) from error
    except (OSError, WebSocketException) as error:
        raise Unreachable(stream_url, str(error) or type(error).__name__) from error
    if socket.subprotocol != SUBPROTOCOL:
        socket.transport.abort()
        raise Unreachable(stream_url, f"the server there does not speak {SUBPROTOCOL}")
    return socket


class _Connect(websockets.asyncio.client.connect):
    """Follows no redirects: websockets 15.0 would send the API key to the other host too."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def check_encrypted(url: str, ssl: tls.SSLContext | None) -> None:
    """Check that there are no certificates to trust where nothing is encrypted.

    Raises:
        BadOption: there are.
    """
    if ssl is not None and not url.startswith(("wss:", "https:")):
        raise BadOption("ssl", f"None, as {url} is not encrypted", ssl)


def key_headers(api_key: str | None) -> dict[str, str]:
    """The headers that show the server an API key; none without a key.

    Raises:
        BadOption: no header can carry the key. The error has the character that is wrong, and nothing else of it.
    """
    if api_key is None:
        return {}
    if wrong := _NO_API_KEY.search(api_key):
        raise BadOption("api_key", "printable ASCII characters without white space around them", wrong[0])
    return {"Authorization": f"Bearer {api_key}"}


def resolve_url(url: str) -> str:
    """The WebSocket URL of a server that is given as ws://, wss://, http:// or https://.

    Without a path, it is the path of the streaming endpoint.

    Raises:
        BadURL: the URL has another scheme, no host or one that cannot be, or a fragment.
    """
    try:
        parts = urlsplit(url)
        # Reading the port checks that it is a number, and encoding the host that it can be looked up.
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise BadURL(url, str(error)) from error
    scheme = _WEBSOCKET_SCHEMES.get(parts.scheme)
    if scheme is None:
        raise BadURL(url, f"scheme {parts.scheme!r}" if "://" in url else "no scheme")
    if not parts.hostname:
        raise BadURL(url, "no host")
    if parts.fragment:
        raise BadURL(url, "a fragment has no meaning here")
    path = STREAM_PATH if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def refusal(url: str, status: int, headers: Mapping[str, str], body: str) -> Refused:
    """The error for an HTTP status. The names in `headers` are in lower case."""
    if status == 401:
        return Unauthorized(url, status, headers, body)
    if status in (429, 503):
        return Overloaded(url, status, headers, body, _parse_retry_after(headers.get("retry-after")))
    return Refused(url, status, headers, body)


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number of seconds or a date (RFC 9110, 10.2.3). None if the value is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
