"""The ASGI application of one service, and the server that runs and drains it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from app.errors import SettingsError
from app.routes import not_found, routes
from app.service.gateway_counts import Shared
from app.service.request_ids import RequestIds
from app.service.service import Service
from app.service.settings import Settings
from app.session.session import SessionConfig
from engine import api

# The service refuses larger messages itself, with a clear error; what is larger still is cut off by the protocol.
MESSAGE_SLACK = 4
# Reading stops while a client is ahead of the engine, and its pongs wait unread, so they are given time.
PING_TIMEOUT_S = 60.0
# Connections that wait to be taken in.
BACKLOG = 1024


def build_app(
    settings: Settings,
    transcriber: api.Transcriber,
    session_config: SessionConfig | None = None,
    shared: Shared | None = None,
) -> Starlette:
    """The application around an engine that is running already.

    Args:
        session_config: by default that of the settings.
        shared: what it has in common with other gateways; by default it is the only one.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(app.state.service.metrics.watch_loop())
        async with webhook.running() if (webhook := app.state.service.webhook) else nullcontext():
            yield
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    app = Starlette(
        routes=routes(),
        middleware=[Middleware(RequestIds)],
        exception_handlers={404: not_found, 405: not_found},
        lifespan=lifespan,
    )
    app.state.service = Service(settings, transcriber, session_config or settings.session_config, shared or Shared())
    return app


def bind(settings: Settings) -> socket.socket:
    """A listening socket; the port taken is its own to tell.

    Raises:
        SettingsError: the address cannot be had.
    """
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise SettingsError(f"cannot listen on {place}: {error.strerror}; try another --port or --host") from error


def bind_each(settings: Settings) -> tuple[socket.socket, ...]:
    """A listening socket of the same port for every gateway; the kernel spreads the connections over them.

    Raises:
        SettingsError: the address cannot be had, or this system has no way to share one.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError(f"gateways: expected 0, as this system cannot share a port, got {settings.gateways}")
    # Without sharing at first: one that somebody else listens on is taken.
    with bind(settings) as probe:
        address, family = probe.getsockname(), probe.family
    return tuple(
        socket.create_server(address[:2], family=family, backlog=BACKLOG, reuse_port=True)
        for _ in range(settings.gateways)
    )


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """Cuts off a client that does not read: there is no room left to tell it, and its buffers would stay for good."""

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if self.handshake_complete and not self.close_sent:
            self.transport.abort()


class Server(uvicorn.Server):
    """Uvicorn, but the first signal to stop lets the sessions finish; a second one does not."""

    def __init__(
        self,
        app: Starlette,
        settings: Settings,
        tls: ssl.SSLContext | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws=_WebSocketProtocol,
                ws_max_size=settings.max_message_kb * 1024 * MESSAGE_SLACK,
                ws_ping_timeout=PING_TIMEOUT_S,
                ws_per_message_deflate=False,
                http="h11",
                lifespan="on",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=5,
                ssl_context_factory=(lambda config, default: tls) if tls else None,
            )
        )
        self._service: Service = app.state.service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self._on_started = on_started

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain is None and self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)
        else:
            super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Drain, then end `serve`. Call it on the event loop."""
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        await self._service.drain()
        self.should_exit = True
