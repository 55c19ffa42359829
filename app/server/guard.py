"""Refuses requests of foreign web pages, and gives every answer the headers that browsers should see.

A page that a browser has loaded from elsewhere can open WebSockets to this server and post to it. With API keys that
does no harm, as no page has the key of another. Without keys the server serves its own page and the origins that the
operator lists. At a loopback address it also wants to be addressed by a name of this machine: else a page could make
its own name point to 127.0.0.1 (DNS rebinding). Programs that are no browser send no origin, and are served.
"""

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.server.answer_headers import ANSWER_HEADERS
from tutti_server.app.service.http_errors import error_response
from tutti_server.app.service.request_ids import RESPONSE_STARTS
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import ANY, Settings
from tutti_server.app.service.strangers import STATE_KEY

PUBLIC_PATH = "/captions/"
"""Paths that begin with this are rooms, for readers everywhere."""
DEFAULT_PORTS = (None, 80, 443)
"""Ports that an address need not name."""


class Guard:
    """ASGI middleware that lets a request in, or answers 403."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._needs_key = bool(settings.keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] in RESPONSE_STARTS:
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        service: Service = scope["app"].state.service
        if (visitor := scope["state"].get(STATE_KEY)) is not None and scope.get("client"):
            visitor.come_from(scope["client"][0])
        error = next(self._objections(Headers(scope=scope), is_public=_is_public(scope)), None)
        if error is None:
            await self._app(scope, receive, send_with_headers)
            return
        service.strangers.note_refusal("foreign")
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send_with_headers).send_denial_response(error_response(error))
        else:
            await error_response(error)(scope, receive, send_with_headers)

    def _objections(self, headers: Headers, is_public: bool) -> Iterator[RequestError]:
        """Why a request with these headers is refused; pages of any origin may read what is public."""
        host = headers.get("host", "")
        if host and not self._may_be_named(host):
            expected = "a name of this machine, or one of TUTTI_ALLOWED_HOSTS"
            yield RequestError(403, f"host: expected {expected}, got {shorten(host)}", code="host_not_allowed")
        for origin in () if is_public else headers.getlist("origin"):
            if not self._may_come_from(origin, host):
                expected = "the server's own, or one of TUTTI_ALLOWED_ORIGINS"
                message = f"origin: expected {expected}, got {shorten(origin)}"
                yield RequestError(403, message, code="origin_not_allowed")

    def _may_be_named(self, host: str) -> bool:
        listed = self._settings.host_names
        if not listed and (self._needs_key or not self._settings.is_loopback):
            return True
        name, _ = _name_and_port(host)
        return ANY in listed or name in listed or _is_address(name) or _is_local(name)

    def _may_come_from(self, origin: str, host: str) -> bool:
        listed = self._settings.origins
        if not listed and self._needs_key:
            return True
        return ANY in listed or origin.lower() in listed or _is_own(origin, host)


def _is_public(scope: Scope) -> bool:
    """Whether a request only reads a room, which its speaker has published."""
    is_reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_reading and scope["path"].startswith(PUBLIC_PATH)


def _is_own(origin: str, host: str) -> bool:
    """Whether the page of this origin came from the host that the request names. Names of this machine are the same."""
    _, separator, address = origin.partition("://")
    (name, port), (own_name, own_port) = _name_and_port(address), _name_and_port(host)
    is_same_port = port == own_port or (port in DEFAULT_PORTS and own_port in DEFAULT_PORTS)
    is_same_name = name == own_name or (_is_local(name) and _is_local(own_name))
    return bool(separator and name) and is_same_name and is_same_port


def _name_and_port(host: str) -> tuple[str, int | None]:
    """The parts of `NAME:PORT`; an empty name if it cannot be parsed."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "", parts.port) if parts.netloc == host and "@" not in host else ("", None)
    except ValueError:
        return "", None


def _is_address(name: str) -> bool:
    """Whether it is an IP address, which no page can make point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_local(name: str) -> bool:
    """Whether it is a loopback address, or a name that stands for it."""
    if _is_address(name):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")
