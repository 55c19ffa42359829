"""Starts the engine process and the gateway processes, restarts those that die, and stops all of them in order.

Only the supervisor sees a process die. It reports the death of the engine to the gateways, which wait for the next one,
and the death of a gateway to the engine, which cancels that gateway's windows.
"""

import asyncio
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from socket import socket

from cluster.local.control_messages import EngineDown, EngineLost, EngineUp, Failed, GatewayGone, StartReport
from cluster.local.managed_process import ChildProcess, ManagedProcess
from cluster.local.messages import make_route
from cluster.local.restart_policy import RestartPolicy
from cluster.local.roles import ADMISSION_COUNT_BYTES, EngineRole, GatewayRole, Serve, StartEngine, admission_counts
from cluster.local.shared_audio import BLOCK_BYTES
from cluster.local.shared_memory import SharedMemoryTooSmall, create_shared_memory

logger = logging.getLogger(__name__)

POOL_BLOCKS = 2048
"""Blocks in the audio pool of each gateway: 17 minutes of audio."""


class SupervisorError(Exception):
    """The service cannot start or go on. The message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """What the processes do, and how long the supervisor waits for them."""

    start_engine: StartEngine
    """Starts the engine. It is called in the engine process; it is pickled, as is `serve`."""
    serve: Serve
    """Serves clients. It is called in every gateway process."""
    folder: Path
    """A private folder for sockets. The caller removes it; if the supervisor is killed, its processes remove it."""
    listeners: tuple[socket, ...]
    """The listening sockets, one for each gateway.

    The supervisor keeps them open, so that a client that connects while a gateway is restarted waits for it.
    """
    n_admission_counts: int
    """How many numbers each gateway shares with the others, such as its live sessions and its uploads."""
    stop_timeout_s: float
    """How long gateways may take to drain before they are killed, in seconds."""
    on_ready: Callable[[EngineUp], None]
    """Called once, when the engine runs and every gateway serves."""
    on_gateway_gone: Callable[[int], None]
    """Called with the process id of every gateway process that has ended."""
    first_pause_s: float = 0.5
    """The pause before the restart that follows the second crash in a row, in seconds; see `restart_pause_s`."""
    max_failed_starts: int = 5
    """When this many processes in a row die in the same place before they are ready, the supervisor gives up."""


class Supervisor:
    """Runs an engine process and its gateways. Call `run` once."""

    def __init__(self, config: SupervisorConfig) -> None:
        self.config = config
        self._engine = self._managed("engine")
        self._gateways = [self._managed(f"gateway-{number}") for number in range(len(config.listeners))]
        self._engine_up: EngineUp | None = None
        """The engine that runs now."""
        self._was_ready = False
        """`on_ready` was called."""
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        """All gateways have ended, so the engine is not needed any more."""
        self._failure: SupervisorError | None = None
        self._pools: tuple[SharedMemory, ...] = ()
        """The audio pool of each gateway."""
        self._admission_counts: SharedMemory
        """The sessions and uploads of each gateway. It exists while `run` does, as do the pools."""

    @property
    def engine_process(self) -> int | None:
        """The id of the engine process, while it runs."""
        return self._engine.process.id if self._engine.process else None

    async def run(self) -> None:
        """Run the processes until `stop` has been called and all of them have ended.

        Raises:
            SupervisorError: there is not enough shared memory, the engine cannot start, or a process dies again and
                again while it starts.
        """
        with self._shared_memory():
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_running(self._engine, self._start_engine, self._drained))
                    gateways = [
                        tasks.create_task(
                            self._keep_running(gateway, partial(self._start_gateway, number), self._stopping)
                        )
                        for number, gateway in enumerate(self._gateways)
                    ]
                    await self._stopping.wait()
                    _, late = await asyncio.wait(gateways, timeout=self.config.stop_timeout_s)
                    if late:
                        logger.error("%d gateways did not end in time", len(late))
                        _signal_all(self._gateways, signal.SIGKILL)
                        await asyncio.wait(late)
                    self._drained.set()
                    # Killed, because it has no work left and may hang.
                    self._engine.signal(signal.SIGKILL)
            finally:
                _signal_all([self._engine, *self._gateways], signal.SIGKILL)
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Let the gateways drain, then stop all processes. A second call makes the gateways end without draining."""
        self._stopping.set()
        # From now on the kernel refuses connections, instead of keeping them for gateways that end.
        for listener in self.config.listeners:
            listener.close()
        _signal_all(self._gateways, signal.SIGTERM)

    async def _keep_running(
        self, managed: ManagedProcess, start: Callable[[], ChildProcess], over: asyncio.Event
    ) -> None:
        """Start the process, and start it again whenever it dies, until `over` is set or the supervisor gives up."""
        while not over.is_set():
            process = managed.process = start()
            status = await process.ended()
            managed.process = None
            self._note_end(managed, process)
            managed.generation += 1
            if over.is_set() or self._failure:
                return
            logger.error("%s (process %d) has ended with status %d", managed.name, process.id, status)
            lifetime_s = time.monotonic() - process.started_s
            pause_s = managed.restarts.note_end(was_ready=process.is_ready, lifetime_s=lifetime_s)
            if pause_s is None:
                self._give_up(managed)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await over.wait()

    def _give_up(self, managed: ManagedProcess) -> None:
        reason = f"the {managed.name} has died {managed.restarts.n_failed_starts} times while it started"
        if managed is self._engine:
            self._send_to_gateways(EngineLost(reason))
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Stop because of an error. Gateways still send the finals that they can."""
        self._failure = self._failure or SupervisorError(reason)
        if not self._stopping.is_set():
            self.stop()

    # The engine.

    def _start_engine(self) -> ChildProcess:
        # A new path for each engine process: no gateway talks to the one before by mistake.
        address = f"ipc://{self.config.folder}/engine-{self._engine.generation}"
        role = EngineRole(self.config.start_engine, address, self._pools)
        return ChildProcess("engine", self.config.folder, role, self._handle_engine_report)

    def _handle_engine_report(self, report: StartReport) -> None:
        if not isinstance(report, Failed):
            assert report.engine
            self._engine_up = report.engine
            self._send_to_gateways(report.engine)
            self._note_ready()
        elif self._was_ready:
            logger.error("the engine cannot start: %s", report.reason)
        else:
            self._fail(report.reason)

    # Gateways.

    def _start_gateway(self, number: int) -> ChildProcess:
        gateway, config = self._gateways[number], self.config
        role = GatewayRole(
            serve=config.serve,
            route=make_route(number, gateway.generation),
            number=number,
            listener=config.listeners[number],
            pool=self._pools[number],
            admission_counts=self._admission_counts,
            counts_shape=self._counts_shape,
        )
        process = ChildProcess(gateway.name, config.folder, role, lambda _: self._note_ready())
        if self._engine_up:
            process.send(self._engine_up)
        return process

    def _send_to_gateways(self, message: EngineUp | EngineDown | EngineLost) -> None:
        for gateway in self._gateways:
            gateway.send(message)

    # Both.

    def _managed(self, name: str) -> ManagedProcess:
        return ManagedProcess(name, RestartPolicy(self.config.first_pause_s, self.config.max_failed_starts))

    @property
    def _counts_shape(self) -> tuple[int, int]:
        return len(self._gateways), self.config.n_admission_counts

    def _note_ready(self) -> None:
        is_ready = all(gateway.process and gateway.process.is_ready for gateway in self._gateways)
        if is_ready and self._engine_up and not self._was_ready:
            self._was_ready = True
            self.config.on_ready(self._engine_up)

    def _note_end(self, managed: ManagedProcess, process: ChildProcess) -> None:
        if managed is self._engine:
            self._engine_up = None
            self._send_to_gateways(EngineDown())
            return
        number = self._gateways.index(managed)
        admission_counts(self._admission_counts, self._counts_shape)[number] = 0
        self._engine.send(GatewayGone(make_route(number, managed.generation)))
        self.config.on_gateway_gone(process.id)

    @contextmanager
    def _shared_memory(self) -> Iterator[None]:
        """Create the memory that the processes share, and remove it at the end."""
        with ExitStack() as stack:
            try:
                self._admission_counts = stack.enter_context(
                    create_shared_memory(math.prod(self._counts_shape) * ADMISSION_COUNT_BYTES)
                )
                pools = [create_shared_memory(POOL_BLOCKS * BLOCK_BYTES) for _ in self._gateways]
                self._pools = tuple(stack.enter_context(pool) for pool in pools)
            except SharedMemoryTooSmall as error:
                raise SupervisorError(str(error)) from error
            yield


def _signal_all(processes: list[ManagedProcess], number: signal.Signals) -> None:
    for managed in processes:
        managed.signal(number)
