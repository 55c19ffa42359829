"""A gateway's link to an engine, and engines that start and die, on one event loop, with the real socket between."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fakes import PATIENCE_S, FakeTranscriber, until
from tutti_server.cluster.local.control_messages import EngineDown, EngineUp
from tutti_server.cluster.local.engine_link import GatewayEnd
from tutti_server.cluster.local.engine_server import EngineServer
from tutti_server.cluster.local.gateway_engines import GatewayEngines
from tutti_server.cluster.local.messages import Reply, make_route
from tutti_server.cluster.local.shared_audio import BLOCK_BYTES, SharedAudioPool
from tutti_server.engine import api
from tutti_server.engine.api import CallbackTranscriber
from tutti_server.engine.errors import EngineFailed

if find_spec("torch"):
    from tests.engine.engines import good_morning, runner, small_checkpoint  # noqa: F401  # fixtures

N_BLOCKS = 64


@dataclass
class HaltingTranscriber(FakeTranscriber):
    """Sends `halt_after` events of every window, and then hangs."""

    halt_after: int = 1

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        n_sent = 0
        async for event in super()._events(window):
            if n_sent == self.halt_after:
                await asyncio.Event().wait()
            yield event
            n_sent += 1


class RecordingServer(EngineServer):
    """Keeps the replies that it has sent."""

    replies: list[Reply]

    @property
    def n_open(self) -> int:
        """The number of windows that are not finished."""
        return len(self._windows)

    def _send(self, route: bytes, reply: Reply) -> None:
        self.replies.append(reply)
        super()._send(route, reply)


class Pair:
    """A gateway's transcriber over one link, and the engine server that it talks to, while there is one."""

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.pool = SharedAudioPool(bytearray(N_BLOCKS * BLOCK_BYTES))
        self.route = make_route(0, 0)
        self.engines = GatewayEngines(GatewayEnd(self.route, self.pool, tasks), n_engines=1)
        self.remote = self.engines.transcriber
        self.server: RecordingServer | None = None
        self._folder = folder
        self._n_engines = 0
        self._serving: asyncio.Task[None] | None = None

    def start(self, transcriber: CallbackTranscriber) -> None:
        """Start an engine."""
        address = f"{self._folder}/engine-{self._n_engines}"
        self._n_engines += 1
        self.server = RecordingServer(transcriber, address, [self.pool])
        self.server.replies = []
        self._serving = asyncio.create_task(self.server.serve())
        self.engines.handle(EngineUp(0, address, transcriber.info, transcriber.stats()))

    async def kill(self, *, was_killed: bool = True) -> None:
        """Kill the engine. It sends nothing more. Without `was_killed` the gateway learns that it has crashed."""
        if self._serving is None:
            return
        self._serving.cancel()
        await self.ended(was_killed=was_killed)

    async def ended(self, *, was_killed: bool = False) -> None:
        """Wait until the engine has died, and report it to the gateway."""
        assert self._serving and self.server
        with suppress(asyncio.CancelledError, EngineFailed):
            await self._serving
        self.server.close()
        self._serving = None
        self.engines.handle(EngineDown(0, was_killed=was_killed))

    def close(self) -> None:
        """End the gateway."""
        self.engines.close("the test is over")

    async def until_free(self) -> None:
        """Run the other tasks until no window is open and no audio is in use."""
        await until(lambda: self.pool.n_used_blocks == 0 and (self.server is None or self.server.n_open == 0))


@asynccontextmanager
async def paired() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            pair = Pair(Path(folder), tasks)
            yield pair
            await pair.kill()
            pair.close()
            await pair.until_free()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with paired() as pair:
        yield pair
