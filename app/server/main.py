"""Builds the ASGI application of one service, and the server that runs and drains it."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from tutti_server.app.background import in_background
from tutti_server.app.dialects.deepgram import jobs_endpoint, recordings_endpoint
from tutti_server.app.errors import LimitExceeded, RequestError, SettingsError
from tutti_server.app.live.tcp_port import open_listener
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.acceptor import Acceptor
from tutti_server.app.server.guard import Guard
from tutti_server.app.server.http_protocols import KEEP_ALIVE_S, HttpProtocol, WebSocketProtocol
from tutti_server.app.server.openapi import document
from tutti_server.app.server.plugins import Listener, Plugin, installed_plugins
from tutti_server.app.server.routes import client_gone, not_found, refused, routes, unknown_path
from tutti_server.app.service.models import Models
from tutti_server.app.service.request_ids import Failures, RequestIds
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings, listed
from tutti_server.app.service.shared_state import SharedState
from tutti_server.app.service.tls import Certificate
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.engine import api

logger = logging.getLogger(__name__)

MESSAGE_SLACK = 4
"""The WebSocket protocol cuts off messages that are this many times the limit of the settings.

The service itself refuses a message over the limit with a clear error.
"""
PING_INTERVAL_S = 20.0
"""How often the server pings the client of a WebSocket, in seconds: so no load balancer takes it for idle."""
PING_TIMEOUT_S = 60.0
"""How long the server waits for a pong, in seconds.

The server does not read while a client is ahead of the engine, so pongs may wait unread.
"""
ADVICE = "--port or --host"
"""The flags that help where the address of the settings cannot be used."""
SHUTDOWN_TIMEOUT_S = 5
"""How long open HTTP requests may take after a drain, in seconds."""


def build_app(
    settings: Settings,
    transcriber: api.Transcriber,
    session_config: SessionConfig | None = None,
    shared: SharedState | None = None,
    decoders: Decoders | None = None,
    plugins: Sequence[Plugin] | None = None,
    models: Models | None = None,
) -> Starlette:
    """Build the application for an engine that is running.

    Args:
        session_config: the configuration of sessions; by default the one of the settings.
        shared: the state that all gateways share; by default there is one gateway.
        decoders: decode uploaded files, and are closed by the caller; by default the application has its own.
        plugins: the plug-ins to use; by default all that are installed.
        models: all models, where there are several; `transcriber` is the engine of the first one.
    """
    own_decoders = Decoders()
    if plugins is None:
        plugins = installed_plugins()
    service = Service(
        settings,
        transcriber,
        session_config or settings.session_config,
        shared or SharedState(),
        decoders or own_decoders,
        models,
    )

    for plugin in plugins:
        if (accounts := plugin.accounts(service)) is not None:
            service.use_accounts(accounts)
    if settings.setting_of_keys and service.accounts.directory is None:
        # Without its plug-in, the service would be open to everybody.
        raise SettingsError(f"{settings.setting_of_keys}: expected the plug-in with this setting, which is not used")
    jobs = {recordings_endpoint.KIND: jobs_endpoint.job_kind(service)}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with closing(own_decoders):
            async with in_background(service.metrics.measure_loop_lag()), AsyncExitStack() as stack:
                for plugin in plugins:
                    await stack.enter_async_context(plugin.running(service))
                await stack.enter_async_context(service.running())
                await stack.enter_async_context(service.accounts.doing_jobs(jobs))
                yield

    # Its type allows no handler for both requests and WebSockets.
    answers: dict[Any, Any] = {404: not_found, 405: not_found, ClientDisconnect: client_gone}
    answers |= {RequestError: refused, LimitExceeded: refused}
    app = Starlette(
        routes=[*routes(), *chain.from_iterable(plugin.routes(service) for plugin in plugins)],
        middleware=_middleware(settings),
        exception_handlers=answers,
        lifespan=lifespan,
    )
    app.router.default = unknown_path
    app.state.service = service
    app.state.openapi = document(plugin.openapi() for plugin in plugins)
    app.state.listeners = _listeners(settings, plugins)
    return app


def _middleware(settings: Settings) -> list[Middleware]:
    """What every request passes through, from the outside to the inside."""
    middleware = [Middleware(RequestIds), Middleware(Guard, settings=settings)]
    if settings.origins:
        # Lets pages of these origins read answers, and send a key with `fetch`.
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=sorted(settings.origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["*"],
            )
        )
    return [*middleware, Middleware(Failures)]


def _listeners(settings: Settings, plugins: Sequence[Plugin]) -> list[Listener]:
    """The ports that plug-ins serve beside the port of HTTP."""
    return list(chain.from_iterable(plugin.listeners(settings) for plugin in plugins))


def bind(settings: Settings) -> socket.socket:
    """Open the listening socket; see `open_listener`."""
    return open_listener(settings.host, settings.port, ADVICE)


def try_ports(settings: Settings) -> None:
    """Open the ports of plug-ins and close them again, so that one that is in use is reported before anything starts.

    Raises:
        SettingsError: an address is in use or not available.
    """
    with ExitStack() as stack:
        for each in _listeners(settings, installed_plugins()):
            stack.enter_context(each.bind())


async def drain(service: Service) -> None:
    """Let sessions, uploads and subscribers of calls finish, and refuse everything new.

    Readers of rooms receive the last texts of the sessions before they are sent elsewhere.
    """
    service.calls.drain(others_stop=service.others_stop)
    await service.admission.drain()
    if service.others_stop:
        await service.admission.wait_for_others()
    await asyncio.gather(service.calls.wait_until_unused(), service.rooms.drain(others_stop=service.others_stop))


class Server(uvicorn.Server):
    """Uvicorn's server with a drain: the first stop signal lets sessions finish, a second one does not wait."""

    def __init__(
        self,
        app: Starlette,
        settings: Settings,
        certificate: Certificate | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws=WebSocketProtocol,
                ws_max_size=settings.max_message_kb * 1024 * MESSAGE_SLACK,
                ws_ping_interval=PING_INTERVAL_S,
                ws_ping_timeout=PING_TIMEOUT_S,
                ws_per_message_deflate=False,
                http="h11",
                # `startup` and `shutdown` do it: uvicorn would show a traceback where the application cannot start.
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
                forwarded_allow_ips=list(listed(settings.trusted_proxies)),
            )
        )
        self._app = app
        self._app_lifespan = AsyncExitStack()
        """Ends what has started with the application."""
        self._service: Service = app.state.service
        self._certificate = certificate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self._last_signal: int | None = None
        """The signal that cut the drain short."""
        self._on_started = on_started

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the server has stopped.

        Raises:
            SettingsError: the application cannot start with these settings, or a port of a plug-in is in use.
        """
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            if self._certificate:
                await stack.enter_async_context(self._certificate.running())
            await stack.enter_async_context(self._app_lifespan)
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, accept connections, then call `on_started`. Called by uvicorn."""
        await self._app_lifespan.enter_async_context(self._app.router.lifespan_context(self._app))
        await super().startup([])
        # A third of a second, in which live sessions would stand still if the first client that needs it loaded it.
        await asyncio.to_thread(lambda: self._service.speaker_model)
        for plugged in self._app.state.listeners:
            listener = plugged.bind(shares_port=self._service.settings.gateways > 0)
            self.servers.append(cast(asyncio.Server, await plugged.serve(listener, self._app)))
        for listener in sockets or ():
            # Uvicorn only closes them.
            self.servers.append(cast(asyncio.Server, self._accept_at(listener)))
        self._on_started()

    def _accept_at(self, listener: socket.socket) -> Acceptor:
        settings, unauthenticated = self._service.settings, self._service.unauthenticated
        make_protocol = partial(
            HttpProtocol, self.config, self.server_state, self.lifespan.state, settings, unauthenticated
        )
        return Acceptor(listener, self._certificate, make_protocol, settings, unauthenticated)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to accept connections, let open requests end, then end the application. Called by uvicorn."""
        await super().shutdown(sockets)
        if not self.force_exit:
            # Before uvicorn lets the signal end the process.
            await self._app_lifespan.aclose()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and wait no longer at the second one. Called by uvicorn, at any moment."""
        if self._loop is None or (self._drain is not None and self._drain.done()):
            super().handle_exit(sig, frame)
        elif self._drain is None:
            self._loop.call_soon_threadsafe(self.stop)
        else:
            self._last_signal = sig
            self._loop.call_soon_threadsafe(self._service.admission.drain_limit.hurry)

    def stop(self) -> None:
        """Drain, then end `serve`. Must be called on the event loop."""
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        # Where only this gateway stops, its clients leave it: it would have the fewest, and refuse all that come.
        self._service.unauthenticated.leave_to_others()
        try:
            await drain(self._service)
        except Exception:
            logger.exception("the drain has failed; the server ends without it")
        if self._last_signal is not None:
            # The exit status shows that the drain was cut short.
            super().handle_exit(self._last_signal, None)
        self.should_exit = True
