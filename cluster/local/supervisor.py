"""Starts the processes of a cell, starts again what dies, and ends them in order."""

import asyncio
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from secrets import token_hex
from socket import socket

import numpy as np

from cluster.local.messages import route
from cluster.local.process import ControlMessage, EngineDown, EngineLost, Failed, GatewayGone, Ready, Work, run_child
from cluster.local.remote_transcriber import EngineUp
from cluster.local.roles import TAKEN_KINDS, EngineRole, GatewayRole, Serve, StartEngine
from cluster.local.shared_audio import BLOCK_BYTES, content

logger = logging.getLogger(__name__)

ARENA_BLOCKS = 2048
"""Of each gateway: 17 minutes of audio."""
MAX_PAUSE_S = 30.0
STEADY_S = 60.0
"""After so long a life a death counts as the first."""

_SHARED_MEMORY = Path("/dev/shm")
_SPAWN = multiprocessing.get_context("spawn")


class SupervisorError(Exception):
    """The cell cannot go on; says why."""


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    start_engine: StartEngine
    """Called in the engine's process; pickled, as is `serve`."""
    serve: Serve
    """Called in every gateway."""
    folder: Path
    """Private, for sockets; the caller's to remove. Where the supervisor is killed, its processes remove it."""
    listeners: tuple[socket, ...]
    """One for each gateway."""
    stop_timeout_s: float
    """How long gateways may take to drain before they are killed."""
    on_ready: Callable[[EngineUp], None]
    """ControlMessage once, when there is an engine and every gateway serves."""
    on_gateway_gone: Callable[[int], None]
    """ControlMessage the id of every gateway's process that has ended."""
    first_pause_s: float = 0.5
    """Before the start after the second death in a row; see `pause_s`."""
    max_failed_starts: int = 5
    """Of one place in a row; then the cell gives up."""


class _Process:
    """A child process and the line to it. What it says is taken on the event loop."""

    def __init__(self, name: str, folder: Path, work: Work, take: Callable[[Ready | Failed], None]) -> None:
        self.started_s = time.monotonic()
        self.is_ready = False
        self._take = take
        self._line, theirs = _SPAWN.Pipe()
        # A daemon, so that one is killed even where the supervisor ends by a mistake of ours.
        self._process = _SPAWN.Process(target=run_child, args=(theirs, folder, work), name=name, daemon=True)
        self._process.start()
        theirs.close()
        asyncio.get_running_loop().add_reader(self._line.fileno(), self._read)

    @property
    def id(self) -> int:
        assert self._process.pid
        return self._process.pid

    async def ended(self) -> int:
        """Its exit status, once it has ended; below 0 it is the signal that killed it."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._read()
        loop.remove_reader(self._line.fileno())
        self._line.close()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def tell(self, message: ControlMessage) -> None:
        # One that has just died is told nothing any more.
        with suppress(OSError):
            self._line.send(message)

    def signal(self, number: signal.Signals) -> None:
        if self._process.is_alive():
            (self._process.kill if number == signal.SIGKILL else self._process.terminate)()

    def _read(self) -> None:
        try:
            while self._line.poll():
                message = self._line.recv()
                self.is_ready |= isinstance(message, Ready)
                self._take(message)
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._line.fileno())


@dataclass(slots=True)
class _Post:
    """A place that is always to be held by a process."""

    name: str
    life: int = 0
    """How many have held it before the present one."""
    process: _Process | None = None
    n_failed_starts: int = 0
    n_deaths: int = 0
    """In a row, without a steady life between them."""


@dataclass(slots=True)
class Supervisor:
    """An engine and its gateways. Use `run` once."""

    config: SupervisorConfig
    _engine: _Post = field(default_factory=lambda: _Post("engine"))
    _gateways: list[_Post] = field(init=False)
    _up: EngineUp | None = None
    """The engine that there is now."""
    _was_ready: bool = False
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _drained: asyncio.Event = field(default_factory=asyncio.Event)
    """No gateway is left, and so no need of an engine."""
    _failure: SupervisorError | None = None
    _arenas: tuple[SharedMemory, ...] = field(init=False)
    _taken: SharedMemory = field(init=False)

    def __post_init__(self) -> None:
        self._gateways = [_Post(f"gateway-{number}") for number in range(len(self.config.listeners))]

    @property
    def engine_process(self) -> int | None:
        """Its id, while it runs."""
        return self._engine.process.id if self._engine.process else None

    async def run(self) -> None:
        """Until `stop` has been called and all processes have ended.

        Raises:
            SupervisorError: there is no room for audio, the engine cannot be started, or a process ends again and again while
                it starts.
        """
        with self._shared():
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep(self._engine, self._start_engine, self._drained))
                    keepers = [
                        tasks.create_task(self._keep(post, partial(self._start_gateway, number), self._stopping))
                        for number, post in enumerate(self._gateways)
                    ]
                    await self._stopping.wait()
                    _, late = await asyncio.wait(keepers, timeout=self.config.stop_timeout_s)
                    if late:
                        logger.error("%d gateways did not end in time", len(late))
                        self._signal(self._gateways, signal.SIGKILL)
                        await asyncio.wait(late)
                    self._drained.set()
                    # It has nothing to say any more, and may be stuck.
                    self._signal([self._engine], signal.SIGKILL)
            finally:
                self._signal([self._engine, *self._gateways], signal.SIGKILL)
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Have the gateways drain, and end. The second call does not wait."""
        self._stopping.set()
        # Whoever dials now is to be refused, not to wait for a gateway that has ended.
        for listener in self.config.listeners:
            listener.close()
        self._signal(self._gateways, signal.SIGTERM)

    async def _keep(self, post: _Post, start: Callable[[], _Process], over: asyncio.Event) -> None:
        """See to it that the post is held, until that is over."""
        while not over.is_set():
            post.process = start()
            status = await post.process.ended()
            process, post.process = post.process, None
            self._note_end(post, process)
            post.life += 1
            if over.is_set() or self._failure:
                return
            logger.error("%s (process %d) has ended with status %d", post.name, process.id, status)
            post.n_failed_starts = 0 if process.is_ready else post.n_failed_starts + 1
            if post.n_failed_starts >= self.config.max_failed_starts:
                reason = f"the {post.name} has died {post.n_failed_starts} times while it started"
                if post is self._engine:
                    self._tell_gateways(EngineLost(reason))
                self._fail(reason)
                return
            is_steady = time.monotonic() - process.started_s >= STEADY_S
            post.n_deaths = 1 if is_steady else post.n_deaths + 1
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s(post.n_deaths, self.config.first_pause_s)):
                    await over.wait()

    def _fail(self, reason: str) -> None:
        """Give up: what can still be made final is, and all ends."""
        self._failure = self._failure or SupervisorError(reason)
        if not self._stopping.is_set():
            self.stop()

    # The engine.

    def _start_engine(self) -> _Process:
        # A new path each time: nobody talks to the one before by mistake.
        address = f"ipc://{self.config.folder}/engine-{self._engine.life}"
        role = EngineRole(self.config.start_engine, address, self._arenas)
        return _Process("engine", self.config.folder, role, self._engine_says)

    def _engine_says(self, message: Ready | Failed) -> None:
        if isinstance(message, Ready):
            self._up = message.engine
            assert self._up
            self._tell_gateways(self._up)
            self._note_ready()
        elif self._was_ready:
            logger.error("the engine cannot start: %s", message.reason)
        else:
            self._fail(message.reason)

    # Gateways.

    def _start_gateway(self, number: int) -> _Process:
        post, config = self._gateways[number], self.config
        role = GatewayRole(
            config.serve,
            route(number, post.life),
            number,
            len(self._gateways),
            config.listeners[number],
            self._arenas[number],
            self._taken,
        )
        process = _Process(post.name, config.folder, role, lambda _: self._note_ready())
        if self._up:
            process.tell(self._up)
        return process

    def _tell_gateways(self, message: ControlMessage) -> None:
        for post in self._gateways:
            if post.process:
                post.process.tell(message)

    # Both.

    def _note_ready(self) -> None:
        if not self._was_ready and self._up and all(post.process and post.process.is_ready for post in self._gateways):
            self._was_ready = True
            self.config.on_ready(self._up)

    def _note_end(self, post: _Post, process: _Process) -> None:
        if post is self._engine:
            self._up = None
            self._tell_gateways(EngineDown())
            return
        number = self._gateways.index(post)
        np.frombuffer(content(self._taken), np.int64, TAKEN_KINDS, number * TAKEN_KINDS * 8)[:] = 0
        if self._engine.process:
            self._engine.process.tell(GatewayGone(route(number, post.life)))
        self.config.on_gateway_gone(process.id)

    def _signal(self, posts: list[_Post], number: signal.Signals) -> None:
        for post in posts:
            if post.process:
                post.process.signal(number)

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """The memory that processes share. It goes with the cell."""
        check_room(len(self._gateways) * ARENA_BLOCKS * BLOCK_BYTES)
        with ExitStack() as stack:
            self._taken = stack.enter_context(_memory(len(self._gateways) * TAKEN_KINDS * 8))
            self._arenas = tuple(stack.enter_context(_memory(ARENA_BLOCKS * BLOCK_BYTES)) for _ in self._gateways)
            yield


def pause_s(n_deaths: int, first_s: float) -> float:
    """Before the next start, after so many deaths in a row: none after the first, then one that doubles."""
    return 0.0 if n_deaths == 1 else min(first_s * 2.0 ** min(n_deaths - 2, 16), MAX_PAUSE_S)


def check_room(n_bytes: int) -> None:
    """Raise `SupervisorError` where shared memory has less room. It is taken as it is needed: too late to say so then."""
    if _SHARED_MEMORY.exists():
        file_system = os.statvfs(_SHARED_MEMORY)
        n_free = file_system.f_bavail * file_system.f_frsize
        if n_free < n_bytes:
            expected = f"expected {n_bytes >> 20} MB free for the audio of all gateways, got {n_free >> 20}"
            raise SupervisorError(
                f"{_SHARED_MEMORY}: {expected}; enlarge it (docker run --shm-size), or take fewer gateways"
            )


@contextmanager
def _memory(n_bytes: int) -> Iterator[SharedMemory]:
    """Zeros. Also gone where this process is killed: Python's resource tracker outlives it."""
    memory = SharedMemory(f"tutti-{os.getpid()}-{token_hex(4)}", create=True, size=n_bytes)
    try:
        yield memory
    finally:
        memory.close()
        memory.unlink()
