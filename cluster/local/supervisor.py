"""Starts the engine processes and the gateway processes, restarts those that die, and stops all of them in order.

Only the supervisor sees a process die. It reports the death of an engine to the gateways, which use the others or wait
for the next one, and the death of a gateway to the engines, which cancel that gateway's windows.
"""

import asyncio
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from socket import AF_UNIX, socket

from tutti_server.cluster.local.control_messages import (
    ControlMessage,
    EngineDown,
    EngineLost,
    EngineUp,
    Failed,
    GatewayGone,
    StartReport,
)
from tutti_server.cluster.local.managed_process import ChildProcess, ManagedProcess
from tutti_server.cluster.local.messages import make_route
from tutti_server.cluster.local.restart_policy import RestartPolicy
from tutti_server.cluster.local.roles import EngineRole, GatewayRole, Prepare, Serve, StartEngine
from tutti_server.cluster.local.shared_audio import BLOCK_BYTES
from tutti_server.cluster.local.shared_counts import COUNT_BYTES, KeepCounts, SharedCounts
from tutti_server.cluster.local.shared_memory import SharedMemoryTooSmall, create_shared_memory
from tutti_server.engine.api import EngineStats, ModelInfo
from tutti_server.engine.engine_stats import add_up

logger = logging.getLogger(__name__)

POOL_BLOCKS = 2048
"""Blocks in the audio pool of a gateway, for each engine that it has to itself: 17 minutes of audio."""
GATEWAY_STOPPED = (0, -signal.SIGTERM)
"""The exit statuses of a gateway that has ended because the supervisor stopped it."""
ENGINE_KILLED = (-signal.SIGKILL, -signal.SIGTERM)
"""The exit statuses of an engine that was ended from outside: no window of it is to blame."""
LONGEST_NAME = "engine-99.9999"
"""The longest name of an engine's socket that must fit into the folder."""
LOST_ENGINE_PAUSE_S = 300.0
"""The pause before an engine that died again and again while it started is tried again, in seconds, if others run."""
PING_S = 2.0
"""How often each process is asked to answer, in seconds.

With `MAX_UNANSWERED` of `managed_process.py` one that hangs is killed after 20 s.
"""


class SupervisorError(Exception):
    """The service cannot start or go on. The message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """What the processes do, and how long the supervisor waits for them."""

    prepare: Prepare
    """Prepares each process, such as for its log."""
    start_engines: tuple[StartEngine, ...]
    """Starts each engine. Each is called in an engine process of its own; it is pickled, as is `serve`."""
    serve: Serve
    """Serves clients. It is called in every gateway process."""
    folder: Path
    """A private folder for sockets. The caller removes it; if the supervisor is killed, its processes remove it."""
    listeners: tuple[socket, ...]
    """The listening socket of each gateway; several may have the same.

    The supervisor keeps them open, so that a client that connects while no gateway serves waits for one.
    """
    n_admission_counts: int
    """How many numbers each gateway shares with the others, such as its live sessions and its uploads."""
    keep_counts: KeepCounts
    """Says which of them count further when a gateway has died."""
    keep_counts_s: float
    """How long those count that are kept for a while, in seconds."""
    stop_timeout_s: float
    """How long gateways may take to drain before they are killed, in seconds."""
    on_ready: Callable[[ModelInfo, EngineStats], None]
    """Called once, when every engine runs and every gateway serves, with the slots and the counters of all engines."""
    on_gateway_gone: Callable[[int], None]
    """Called with the process id of every gateway process that has ended."""
    first_pause_s: float = 0.5
    """The pause before the restart that follows the second crash in a row, in seconds; see `restart_pause_s`."""
    max_failed_starts: int = 5
    """When this many processes in a row die in the same place before they are ready, the supervisor gives up.

    Not for an engine beside others, once the service was ready: that one is tried again every `LOST_ENGINE_PAUSE_S`.
    """


class Supervisor:
    """Runs engine processes and their gateways. Call `run` once."""

    def __init__(self, config: SupervisorConfig) -> None:
        self.config = config
        n_engines = len(config.start_engines)
        self._engines = [
            self._managed(f"engine-{number}" if n_engines > 1 else "engine") for number in range(n_engines)
        ]
        self._gateways = [self._managed(f"gateway-{number}") for number in range(len(config.listeners))]
        self._engines_up: dict[int, EngineUp] = {}
        """The engines that run now, by number."""
        self._engines_lost: dict[int, EngineLost] = {}
        """The engines that died again and again while they started, and are tried only now and then, by number."""
        self._was_ready = False
        """`on_ready` was called."""
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        """All gateways have ended, so no engine is needed any more."""
        self._failure: SupervisorError | None = None
        self._pools: tuple[SharedMemory, ...] = ()
        """The audio pool of each gateway."""
        self._counts: SharedCounts
        """The sessions and uploads of each gateway. It exists while `run` does, as do the pools."""

    async def run(self) -> None:
        """Run the processes until `stop` has been called and all of them have ended.

        Raises:
            SupervisorError: there is not enough shared memory, the folder has no room for sockets, an engine or a
                gateway cannot start, or a process dies again and again while it starts.
        """
        self._check_folder()
        with self._shared_memory():
            try:
                async with asyncio.TaskGroup() as tasks:
                    for number, engine in enumerate(self._engines):
                        tasks.create_task(
                            self._keep_running(engine, partial(self._start_engine, number), self._drained)
                        )
                    gateways = [
                        tasks.create_task(
                            self._keep_running(gateway, partial(self._start_gateway, number), self._stopping)
                        )
                        for number, gateway in enumerate(self._gateways)
                    ]
                    pings = tasks.create_task(self._ping())
                    await self._stopping.wait()
                    _, late = await asyncio.wait(gateways, timeout=self.config.stop_timeout_s)
                    if late:
                        logger.error("%d gateways did not end in time", len(late))
                        _signal_all(self._gateways, signal.SIGKILL)
                        await asyncio.wait(late)
                    self._drained.set()
                    # Killed, because they have no work left and may hang.
                    _signal_all(self._engines, signal.SIGKILL)
                    pings.cancel()
            finally:
                _signal_all([*self._engines, *self._gateways], signal.SIGKILL)
        if self._failure:
            raise self._failure

    async def _ping(self) -> None:
        """Find the processes that hang, and kill them, so that others replace them."""
        while True:
            await asyncio.sleep(PING_S)
            for managed in (*self._engines, *self._gateways):
                if managed.process:
                    managed.process.ping()

    def _check_folder(self) -> None:
        """Create a socket in the folder and remove it: a system limits the length of its path to about 100 bytes."""
        path = self.config.folder / LONGEST_NAME
        try:
            with socket(AF_UNIX) as probe:
                probe.bind(str(path))
        except OSError as error:
            message = f"{self.config.folder}: expected a folder for sockets, got: {error}; set TMPDIR to a shorter path"
            raise SupervisorError(message) from error
        path.unlink()

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
            was_ready, lifetime_s = False, 0.0
            try:
                process = managed.process = start()
            except OSError as error:
                # The host has no process, memory or descriptor left for it now.
                managed.problem = str(error)
                logger.error("%s cannot be started: %s", managed.name, error)
            else:
                status = await process.ended()
                managed.process = None
                self._note_end(managed, process, status)
                managed.generation += 1
                if self._failure:
                    return
                # Engines are killed at the end, whatever they do.
                was_stopped = over.is_set() and (managed in self._engines or status in GATEWAY_STOPPED)
                if not was_stopped:
                    logger.error("%s (process %d) has ended with status %d", managed.name, process.id, status)
                if over.is_set():
                    return
                was_ready, lifetime_s = process.is_ready, time.monotonic() - process.started_s
            pause_s = managed.restarts.note_end(was_ready=was_ready, lifetime_s=lifetime_s)
            if pause_s is None:
                self._note_failed_starts(managed)
                if self._failure:
                    return
                pause_s = LOST_ENGINE_PAUSE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await over.wait()

    def _note_failed_starts(self, managed: ManagedProcess) -> None:
        """Note that a process died too often while it started. The service fails, unless it is one of several engines.

        At the start of the service all engines must start.
        """
        reason = f"the {managed.name} has died {managed.restarts.n_failed_starts} times while it started"
        if managed in self._engines:
            number = self._engines.index(managed)
            # `/readyz` shows it to everybody: the log alone has the problem, which may name files of the server.
            lost = self._engines_lost[number] = EngineLost(number, reason)
            self._send_to_gateways(lost)
        if managed.problem:
            reason = f"{reason}: {managed.problem}"
        if managed in self._gateways or not self._was_ready or len(self._engines_lost) == len(self._engines):
            self._fail(reason)
        else:
            logger.error("%s; the others go on, and it is tried again every %d s", reason, LOST_ENGINE_PAUSE_S)

    def _fail(self, reason: str) -> None:
        """Stop because of an error. Gateways still send the finals that they can."""
        self._failure = self._failure or SupervisorError(reason)
        if not self._stopping.is_set():
            self.stop()

    # Engines.

    def _start_engine(self, number: int) -> ChildProcess:
        engine, config = self._engines[number], self.config
        # A new path for each engine process: no gateway talks to the one before by mistake.
        address = f"{config.folder}/{engine.name}.{engine.generation}"
        role = EngineRole(config.prepare, config.start_engines[number], number, address, self._pools)
        return ChildProcess(engine.name, config.folder, role, partial(self._handle_engine_report, engine))

    def _handle_engine_report(self, engine: ManagedProcess, report: StartReport) -> None:
        if isinstance(report, Failed):
            self._note_bad_start(engine, report.reason)
            return
        up = report.engine
        assert up
        if any(not _is_same_model(up.info, other.info) for other in self._engines_up.values()):
            # The files of the model have changed since the others were started.
            reason = f"the {engine.name} has another model than the other engines: {up.info}"
            self._note_bad_start(engine, reason)
            assert engine.process
            engine.process.reject()
            return
        engine.problem = None
        self._engines_lost.pop(up.engine, None)
        self._engines_up[up.engine] = up
        self._send_to_gateways(up)
        self._note_ready()

    # Gateways.

    def _start_gateway(self, number: int) -> ChildProcess:
        gateway, config = self._gateways[number], self.config
        role = GatewayRole(
            prepare=config.prepare,
            serve=config.serve,
            route=make_route(number, gateway.generation),
            number=number,
            listener=config.listeners[number],
            pool=self._pools[number],
            admission_counts=self._counts.memory,
            counts_shape=self._counts.shape,
            n_gateways=len(self._gateways),
            n_engines=len(self._engines),
        )
        process = ChildProcess(gateway.name, config.folder, role, partial(self._handle_gateway_report, gateway))
        known: list[ControlMessage] = [*self._engines_up.values(), *self._engines_lost.values()]
        for message in known:
            process.send(message)
        return process

    def _handle_gateway_report(self, gateway: ManagedProcess, report: StartReport) -> None:
        if isinstance(report, Failed):
            self._note_bad_start(gateway, report.reason)
        else:
            gateway.problem = None
            self._note_ready()

    def _send_to_gateways(self, message: EngineUp | EngineDown | EngineLost) -> None:
        for gateway in self._gateways:
            gateway.send(message)

    # Both.

    def _managed(self, name: str) -> ManagedProcess:
        restarts = RestartPolicy(self.config.first_pause_s, self.config.max_failed_starts)
        return ManagedProcess(name=name, restarts=restarts)

    def _note_bad_start(self, managed: ManagedProcess, reason: str) -> None:
        """Note why a process cannot be used. At the start of the service this is its end."""
        managed.problem = reason
        if self._was_ready:
            logger.error("the %s cannot be used: %s", managed.name, reason)
        else:
            self._fail(reason)

    def _note_ready(self) -> None:
        is_ready = all(gateway.process and gateway.process.is_ready for gateway in self._gateways)
        if is_ready and len(self._engines_up) == len(self._engines) and not self._was_ready:
            self._was_ready = True
            infos = [up.info for up in self._engines_up.values()]
            stats = add_up({str(number): up.stats for number, up in self._engines_up.items()})
            self.config.on_ready(replace(infos[0], n_slots=sum(info.n_slots for info in infos)), stats)

    def _note_end(self, managed: ManagedProcess, process: ChildProcess, status: int) -> None:
        if managed in self._engines:
            number = self._engines.index(managed)
            self._engines_up.pop(number, None)
            self._send_to_gateways(EngineDown(number, was_killed=status in ENGINE_KILLED and not process.hangs))
            return
        number = self._gateways.index(managed)
        self._counts.note_end(number)
        for engine in self._engines:
            engine.send(GatewayGone(make_route(number, managed.generation)))
        self.config.on_gateway_gone(process.id)

    @contextmanager
    def _shared_memory(self) -> Iterator[None]:
        """Create the memory that the processes share, and remove it at the end."""
        with ExitStack() as stack:
            try:
                config, shape = self.config, (len(self._gateways) + 1, self.config.n_admission_counts)
                memory = stack.enter_context(create_shared_memory(math.prod(shape) * COUNT_BYTES))
                self._counts = SharedCounts(memory, shape, config.keep_counts, config.keep_counts_s)
                stack.callback(self._counts.close)
                # Together the pools hold the windows of all engines.
                n_blocks = POOL_BLOCKS * max(1, math.ceil(len(self._engines) / len(self._gateways)))
                pools = [create_shared_memory(n_blocks * BLOCK_BYTES) for _ in self._gateways]
                self._pools = tuple(stack.enter_context(pool) for pool in pools)
            except SharedMemoryTooSmall as error:
                raise SupervisorError(str(error)) from error
            except OSError as error:
                raise SupervisorError(f"expected shared memory for the audio of gateways, got: {error}") from error
            yield


def _is_same_model(one: ModelInfo, other: ModelInfo) -> bool:
    """Whether two engines decode alike. They may have different numbers of slots, as these depend on free memory."""
    return replace(one, n_slots=0) == replace(other, n_slots=0)


def _signal_all(processes: list[ManagedProcess], number: signal.Signals) -> None:
    for managed in processes:
        managed.signal(number)
