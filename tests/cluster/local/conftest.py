"""A gateway's transcriber and engines that come and go, on one event loop, with the real socket between them."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.local.engine_server import EngineHost
from cluster.local.messages import Reply, route
from cluster.local.remote_transcriber import EngineUp, RemoteTranscriber
from cluster.local.shared_audio import BLOCK_BYTES, SharedAudioPool
from engine import api
from engine.api import Transcriber
from engine.errors import EngineFailed
from tests.fakes import FakeTranscriber

N_BLOCKS = 64
PATIENCE_S = 20.0


@dataclass
class HaltingTranscriber(FakeTranscriber):
    """Says so many events of every window, and no more."""

    halt_after: int = 1

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        n_said = 0
        async for event in super()._events(window):
            if n_said == self.halt_after:
                await asyncio.Event().wait()
            yield event
            n_said += 1


class DyingTranscriber(FakeTranscriber):
    """Dies of whatever it is given."""

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        raise EngineFailed("out of order")
        yield


class CountingHost(EngineHost):
    """Remembers what it sent."""

    replies: list[Reply]

    def _send(self, route: bytes, reply: Reply) -> None:
        self.replies.append(reply)
        super()._send(route, reply)


class Pair:
    def __init__(self, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.arena = SharedAudioPool(bytearray(N_BLOCKS * BLOCK_BYTES))
        self.route = route(0, 0)
        self.remote = RemoteTranscriber(self.route, self.arena, tasks)
        self.host: CountingHost | None = None
        self._folder = folder
        self._n_engines = 0
        self._serving: asyncio.Task[None] | None = None

    def start(self, transcriber: Transcriber) -> None:
        """An engine comes up."""
        address = f"ipc://{self._folder}/engine-{self._n_engines}"
        self._n_engines += 1
        self.host = CountingHost(transcriber, address, [self.arena])
        self.host.replies = []
        self._serving = asyncio.create_task(self.host.serve())
        self.remote.connect(EngineUp(address, transcriber.info, transcriber.stats()))

    async def kill(self) -> None:
        """It dies, without a last word."""
        if self._serving is None:
            return
        self._serving.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the engine has died, and tell the gateway."""
        assert self._serving and self.host
        with suppress(asyncio.CancelledError):
            try:
                await self._serving
            except* EngineFailed:
                pass
        self.host.close()
        self._serving = None
        self.remote.disconnect()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let all others go on until something holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def until_free(self) -> None:
        """No window is left anywhere, and no audio."""
        await self.until(lambda: self.arena.n_taken == 0 and (self.host is None or self.host.n_open == 0))


@asynccontextmanager
async def paired() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            pair = Pair(Path(folder), tasks)
            yield pair
            await pair.kill()
            pair.remote.close("the test is over")
            await pair.until_free()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with paired() as pair:
        yield pair
