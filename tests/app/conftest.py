"""A real server on a loopback port, around a fake engine that understands the made-up speech of `tests/fakes.py`."""

import asyncio
import functools
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import pytest
import trustme
import uvicorn.server
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response

from tests.fakes import FakeTranscriber, LevelDetector
from tests.redis_server import RedisServer, redis_server
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.server.plugins import Plugin, make_settings
from tutti_server.app.service.models import FurtherModel, Models
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import SharedState
from tutti_server.app.service.tls import load_tls
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.voices import speaker_model
from tutti_server.app.voices.speaker_network import NumpyNetwork

UVICORN_PAUSE_S = 0.002
"""The pause between two looks of uvicorn at whether it must stop, or has stopped: 0.1 s elsewhere.

A server that ends pays two of them, and the tests end hundreds of servers.
"""


class BriefPauses:
    """`asyncio` for uvicorn's server, with shorter pauses."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(min(delay_s, UVICORN_PAUSE_S))


@pytest.fixture(scope="session", autouse=True)
def brief_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", BriefPauses())
        yield


@pytest.fixture(scope="session", autouse=True)
def one_speaker_network() -> Iterator[None]:
    """All servers share a network, which keeps no state: each would read its weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speaker_model, "NumpyNetwork", functools.cache(NumpyNetwork))
        yield


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running server."""

    address: str
    """Host and port."""
    service: Service
    server: Server
    transcriber: FakeTranscriber
    task: asyncio.Task[None]
    """Ends when the server has stopped."""

    @property
    def http(self) -> str:
        """The address of HTTP requests."""
        return f"http://{self.address}"

    @property
    def stream(self) -> str:
        """The address of live sessions in the native protocol."""
        return f"ws://{self.address}/v1/stream"

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """Get a path over a connection of its own."""
        async with httpx.AsyncClient(base_url=self.http, timeout=30) as client:
            return await client.get(path, **options)

    async def post(self, path: str, **options: Any) -> httpx.Response:
        """Post to a path over a connection of its own."""
        async with httpx.AsyncClient(base_url=self.http, timeout=60) as client:
            return await client.post(path, **options)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 if it does not exist."""
        value = self.service.metrics.registry.get_sample_value(name, labels)
        return value if value is not None else 0.0


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Signs the certificates of encrypted servers."""
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Trusts their certificates."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis of the test's own, which it may kill."""
    with redis_server() as server:
        yield server


async def refusal(address: str, **options: Any) -> Response:
    """The answer to a WebSocket that is refused; `options` are those of `connect`."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, **options)
    return refused.value.response


async def receive(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def receive_all(socket: ClientConnection) -> list[dict[str, Any]]:
    """All messages until the server closes."""
    messages: list[dict[str, Any]] = []
    with suppress(ConnectionClosed):
        while True:
            messages.append(await receive(socket))
    return messages


async def until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of this type."""
    while (message := await receive(socket))["type"] != kind:
        pass
    return message


class NoMemory:
    """Has no room for a further model that needs any."""

    def bytes_left(self) -> int:
        return 0

    def bytes_taken(self) -> int:
        return 0


class Serve(Protocol):
    """The fixture `serve`."""

    async def __call__(
        self,
        transcriber: FakeTranscriber | None = None,
        shared: SharedState | None = None,
        plugins: Sequence[Plugin] | None = None,
        further: Sequence[FurtherModel] = (),
        **values: Any,
    ) -> Running:
        """Start a server with these settings."""
        ...


@asynccontextmanager
async def running(
    settings: Settings,
    transcriber: FakeTranscriber,
    shared: SharedState | None = None,
    decoders: Decoders | None = None,
    plugins: Sequence[Plugin] | None = None,
    further: Sequence[FurtherModel] = (),
) -> AsyncIterator[Running]:
    """Run a server while the context is open, then drain it. It must end all windows."""
    config = SessionConfig(limits=settings.limits, make_detector=LevelDetector, redact=settings.redacted_kinds)
    models = Models(transcriber, further, idle_s=settings.model_idle_s, memory=NoMemory())
    app = build_app(settings, transcriber, config, shared, decoders, plugins, models)
    server = Server(app, settings, load_tls(settings))
    with bind(settings) as listener:
        task = asyncio.create_task(server.serve([listener]))
        yield Running(
            address=f"127.0.0.1:{listener.getsockname()[1]}",
            service=app.state.service,
            server=server,
            transcriber=transcriber,
            task=task,
        )
        server.stop()
        async with asyncio.timeout(20):
            await task
    assert transcriber.n_open == 0, "windows were left open"


@pytest.fixture
async def serve(decoders: Decoders) -> AsyncIterator[Serve]:
    """Start servers. They are drained when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(
            transcriber: FakeTranscriber | None = None,
            shared: SharedState | None = None,
            plugins: Sequence[Plugin] | None = None,
            further: Sequence[FurtherModel] = (),
            **values: Any,
        ) -> Running:
            settings = make_settings({"port": 0, "drain_timeout_s": 10.0, **values})
            return await stack.enter_async_context(
                running(settings, transcriber or FakeTranscriber(), shared, decoders, plugins, further)
            )

        yield start


@pytest.fixture
async def server(serve: Serve) -> Running:
    """A server with no settings of the test's own."""
    return await serve()
