"""A real server on a loopback port, around a fake engine that understands the made-up speech of `tests/fakes.py`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from app.main import Server, bind, build_app
from app.service.gateway_counts import Shared
from app.service.service import Service
from app.service.settings import Settings
from app.service.tls import load_tls
from app.session.session import SessionConfig
from tests.fakes import FakeTranscriber, LevelDetector


@dataclass(frozen=True)
class Running:
    """A server that is up."""

    address: str
    """Host and port."""
    service: Service
    server: Server
    transcriber: FakeTranscriber
    task: asyncio.Task[None]

    @property
    def http(self) -> str:
        return f"http://{self.address}"

    @property
    def stream(self) -> str:
        return f"ws://{self.address}/v1/stream"

    def metric(self, name: str, **labels: str) -> float:
        value = self.service.metrics.registry.get_sample_value(name, labels)
        return value if value is not None else 0.0


class Serve(Protocol):
    """The fixture `serve`."""

    async def __call__(
        self, transcriber: FakeTranscriber | None = None, shared: Shared | None = None, **values: Any
    ) -> Running:
        """Start a server with these settings."""
        ...


@asynccontextmanager
async def running(
    settings: Settings, transcriber: FakeTranscriber, shared: Shared | None = None
) -> AsyncIterator[Running]:
    config = SessionConfig(limits=settings.limits, make_detector=LevelDetector)
    app = build_app(settings, transcriber, config, shared)
    server = Server(app, settings, load_tls(settings))
    with bind(settings) as listener:
        task = asyncio.create_task(server.serve([listener]))
        yield Running(f"127.0.0.1:{listener.getsockname()[1]}", app.state.service, server, transcriber, task)
        server.stop()
        async with asyncio.timeout(20):
            await task
    assert transcriber.n_open == 0, "windows were left open"


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server with these settings; it is drained when the test ends, and must have let go of every window."""
    async with AsyncExitStack() as stack:

        async def start(
            transcriber: FakeTranscriber | None = None, shared: Shared | None = None, **values: Any
        ) -> Running:
            settings = Settings(**{"port": 0, "drain_timeout_s": 10.0, **values})
            return await stack.enter_async_context(running(settings, transcriber or FakeTranscriber(), shared))

        yield start
