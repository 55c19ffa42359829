"""What the two kinds of processes do: some run an engine each, the others (gateways) serve clients.

A role is an object that the supervisor pickles into the new process; calling it is the whole work of the process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from socket import socket
from typing import Any

from tutti_server.cluster.local.control_messages import ControlMessage, EngineUp, Failed, GatewayGone, Ready
from tutti_server.cluster.local.engine_link import GatewayEnd
from tutti_server.cluster.local.engine_server import EngineServer
from tutti_server.cluster.local.gateway_engines import GatewayEngines
from tutti_server.cluster.local.process import EXIT_FAILED, ControlPipe, exit_now
from tutti_server.cluster.local.shared_audio import SharedAudioPool
from tutti_server.cluster.local.shared_counts import Counts, counts_in
from tutti_server.cluster.local.shared_memory import buffer_of
from tutti_server.engine.api import CallbackTranscriber, Transcriber
from tutti_server.engine.errors import EngineError
from tutti_server.engine.process_environment import prepare_environment


class StartError(Exception):
    """A process cannot start, for a reason that the operator can remove."""


@dataclass(frozen=True, slots=True)
class GatewaySlot:
    """What belongs to one of the gateways, whichever process is that gateway at the moment."""

    number: int
    """The gateway's number, from 0. A gateway that replaces a dead one has the same number."""
    listener: socket
    """The listening socket, which gateways may share."""
    admission_counts: Counts
    """The counts of all gateways in shared memory: a row for each gateway, with as many columns as the caller wants.

    A gateway reads all rows and writes the row of its number, which is 0 when the gateway starts. The last row has what
    counts of gateways that have died.
    """


Prepare = Callable[[], None]
"""Called first in every process, also in a gateway that waits for an engine. It is pickled."""

StartEngine = Callable[[], AbstractAsyncContextManager[CallbackTranscriber]]
"""Starts the engine. The engine runs until the context is left."""

Serve = Callable[[Transcriber, GatewaySlot, Callable[[], None]], Coroutine[Any, Any, None]]
"""Serves clients. It calls its last argument when it is ready for them, and returns when it has drained.

It raises `StartError` if it cannot start.
"""


@dataclass(frozen=True, slots=True)
class EngineRole:
    """The work of an engine process: start the engine and serve the gateways until the process is killed."""

    prepare: Prepare
    start: StartEngine
    number: int
    """The number of the engine, from 0."""
    address: str
    """The path of the socket to create."""
    pools: tuple[SharedMemory, ...]
    """The audio pool of each gateway, by the gateway's number."""

    async def __call__(self, pipe: ControlPipe) -> None:
        """Do the work of the process. If the engine cannot start, the supervisor receives the reason."""
        prepare_environment()
        self.prepare()
        async with AsyncExitStack() as stack:
            try:
                transcriber = await stack.enter_async_context(self.start())
            except EngineError as error:
                pipe.send(Failed(str(error)))
                exit_now(EXIT_FAILED)
            await self._serve(pipe, transcriber)

    async def _serve(self, pipe: ControlPipe, transcriber: CallbackTranscriber) -> None:
        pools = [SharedAudioPool(buffer_of(memory)) for memory in self.pools]
        server = EngineServer(transcriber, self.address, pools)

        def handle(message: ControlMessage) -> None:
            assert isinstance(message, GatewayGone)
            server.disconnect(message.route)

        with closing(server), pipe.receiving(handle):
            pipe.send(Ready(EngineUp(self.number, self.address, transcriber.info, transcriber.stats())))
            await server.serve()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRole:
    """The work of a gateway process: wait for an engine, then serve clients until drained."""

    prepare: Prepare
    serve: Serve
    route: bytes
    """The address under which the engine servers know the gateway."""
    number: int
    """The gateway's number, from 0."""
    listener: socket
    pool: SharedMemory
    """The gateway's audio pool."""
    admission_counts: SharedMemory
    """The admission counts of all gateways."""
    counts_shape: tuple[int, int]
    """The number of rows, and of counts in each row."""
    n_gateways: int
    n_engines: int

    async def __call__(self, pipe: ControlPipe) -> None:
        """Do the work of the process. If the gateway cannot start, the supervisor receives the reason."""
        self.prepare()
        async with asyncio.TaskGroup() as tasks:
            end = GatewayEnd(self.route, SharedAudioPool(buffer_of(self.pool)), tasks)
            engines = GatewayEngines(end, self.n_engines, gateway=self.number, n_gateways=self.n_gateways)
            has_engine = asyncio.Event()

            def handle(message: ControlMessage) -> None:
                assert not isinstance(message, GatewayGone)
                engines.handle(message)
                if isinstance(message, EngineUp):
                    has_engine.set()

            with pipe.receiving(handle):
                await has_engine.wait()
                counts = counts_in(self.admission_counts, self.counts_shape)
                slot = GatewaySlot(self.number, self.listener, counts)
                try:
                    await self.serve(engines.transcriber, slot, lambda: pipe.send(Ready()))
                except StartError as error:
                    pipe.send(Failed(str(error)))
                    exit_now(EXIT_FAILED)
            engines.close("the gateway has ended")
