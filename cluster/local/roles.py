"""What the two kinds of processes of a cell do: one has the engine, the others have the clients."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from socket import socket
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from cluster.local.engine_server import EngineHost
from cluster.local.process import (
    FAILED,
    ControlMessage,
    EngineDown,
    EngineLost,
    Failed,
    GatewayGone,
    Link,
    Ready,
    end_process,
)
from cluster.local.remote_transcriber import EngineUp, RemoteTranscriber
from cluster.local.shared_audio import SharedAudioPool, content
from engine.api import Transcriber
from engine.errors import EngineError
from engine.process_environment import limit_openmp_spinning

logger = logging.getLogger(__name__)

StartEngine = Callable[[], AbstractAsyncContextManager[Transcriber]]


@dataclass(frozen=True, slots=True)
class GatewaySlot:
    """What a gateway is given by its cell."""

    number: int
    """From 0; a gateway that takes the place of one that died has the same."""
    listener: socket
    """Its own, of those that share the port."""
    taken: NDArray[np.int64]
    """`(n_gateways, TAKEN_KINDS)`, shared: what each gateway has of anything that is counted together. It may read all
    of it, and write the row of its number, which is 0 when it begins."""


Serve = Callable[[Transcriber, GatewaySlot, Callable[[], None]], Coroutine[Any, Any, None]]
"""What a gateway does once there is an engine. Calls its last argument when it serves, and ends when it is drained."""

TAKEN_KINDS = 2


@dataclass(frozen=True, slots=True)
class EngineRole:
    start: StartEngine
    address: str
    arenas: tuple[SharedMemory, ...]

    async def __call__(self, link: Link) -> None:
        limit_openmp_spinning()
        try:
            async with self.start() as transcriber:
                await self._serve(link, transcriber)
        except EngineError as error:
            link.tell(Failed(str(error)))
            end_process(FAILED)

    async def _serve(self, link: Link, transcriber: Transcriber) -> None:
        host = EngineHost(transcriber, self.address, [SharedAudioPool(content(memory)) for memory in self.arenas])

        def take(told: ControlMessage) -> None:
            assert isinstance(told, GatewayGone)
            host.disconnect(told.route)

        with closing(host), link.listening(take):
            link.tell(Ready(EngineUp(self.address, transcriber.info, transcriber.stats())))
            await host.serve()


@dataclass(frozen=True, slots=True)
class GatewayRole:
    serve: Serve
    route: bytes
    number: int
    n_gateways: int
    listener: socket
    arena: SharedMemory
    taken: SharedMemory

    async def __call__(self, link: Link) -> None:
        async with asyncio.TaskGroup() as tasks:
            transcriber = RemoteTranscriber(self.route, SharedAudioPool(content(self.arena)), tasks)
            there_is_one = asyncio.Event()

            def take(told: ControlMessage) -> None:
                match told:
                    case EngineUp():
                        transcriber.connect(told)
                        there_is_one.set()
                    case EngineDown():
                        logger.warning("the engine has died; waiting for another")
                        transcriber.disconnect()
                    case EngineLost():
                        transcriber.close(told.reason)
                    case GatewayGone():
                        raise AssertionError("meant for engines")
                    case _:
                        assert_never(told)

            with link.listening(take):
                await there_is_one.wait()
                await self.serve(transcriber, self._seat(), lambda: link.tell(Ready()))
            transcriber.close("the gateway has ended")

    def _seat(self) -> GatewaySlot:
        taken = np.frombuffer(content(self.taken), np.int64, self.n_gateways * TAKEN_KINDS).reshape(-1, TAKEN_KINDS)
        return GatewaySlot(self.number, self.listener, taken)
