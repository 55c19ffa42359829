"""Refuses requests of foreign web pages, and gives every answer the headers that browsers should see.

A page that a browser has loaded from elsewhere can open WebSockets to this server and post to it. With API keys that
does no harm, as no page has the key of another. Without keys the server serves its own page and the origins that the
operator lists. At a loopback address it also wants to be addressed by a name of this machine: else a page could make
its own name point to 127.0.0.1 (DNS rebinding). Programs that are no browser send no origin, and are served.
"""

import ipaddress
import logging
from collections.abc import Iterator
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.server.answer_headers import ANSWER_HEADERS
from tutti_server.app.service.client_connections import STATE_KEY
from tutti_server.app.service.http_errors import error_response
from tutti_server.app.service.request_ids import RESPONSE_STARTS
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import ANY, Settings

logger = logging.getLogger(__name__)

CLIENT_PATH = "/static/tutti/"
"""Paths that begin with this are files of the JavaScript client, which pages of any origin load."""
PUBLIC_PATHS = ("/captions/", CLIENT_PATH)
"""Paths that begin with one of these are for pages of any origin: rooms, and the client."""
ORIGIN_HEADER = "x-tutti-origin"
"""Answers for files of the client say `refused` in this header to a page that may use nothing else of the server.

A page needs it to tell a server that refuses it from one that is not there: browsers say of both the same.
"""
CLIENT_HEADERS = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": ORIGIN_HEADER,
    "vary": "origin",
}
"""The headers of answers for files of the client, beside those of every answer."""
MAX_LOGGED = 32
"""This many refused origins and hosts get a line in the log, each once, as unauthenticated clients could fill it."""
DEFAULT_PORTS = (None, 80, 443)
"""Ports that an address need not name."""


class Guard:
    """ASGI middleware that lets a request in, or answers 403."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._needs_key = settings.needs_key
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        request_headers = Headers(scope=scope)
        answer_headers = ANSWER_HEADERS | self._client_headers(scope, request_headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] in RESPONSE_STARTS:
                headers = MutableHeaders(scope=message)
                for name, value in answer_headers.items():
                    headers.setdefault(name, value)
            await send(message)

        service: Service = scope["app"].state.service
        if (connection := scope["state"].get(STATE_KEY)) is not None and scope.get("client"):
            connection.come_from(scope["client"][0])
        error = next(self._objections(request_headers, is_public=_is_public(scope)), None)
        if error is None:
            await self._app(scope, receive, send_with_headers)
            return
        service.unauthenticated.note_refusal("foreign")
        self._log_once(error.message)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send_with_headers).send_denial_response(error_response(error))
        else:
            await error_response(error)(scope, receive, send_with_headers)

    def _client_headers(self, scope: Scope, headers: Headers) -> dict[str, str]:
        """The further headers of an answer: none but for files of the client."""
        if scope["type"] != "http" or not scope["path"].startswith(CLIENT_PATH):
            return {}
        is_refused = any(self._objections(headers, is_public=False))
        return CLIENT_HEADERS | ({ORIGIN_HEADER: "refused"} if is_refused else {})

    def _log_once(self, message: str) -> None:
        """Write why a page was refused, which its own browser does not say, unless the log has this line already."""
        if message in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(message)
        rest = "; further ones are counted only" if len(self._logged) == MAX_LOGGED else ""
        logger.warning("a web page was refused: %s%s", message, rest)

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
    """Whether a request only reads what pages of any origin may read."""
    is_reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_reading and scope["path"].startswith(PUBLIC_PATHS)


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
