"""The gateway's side of the socket: the link to one engine process, which may die and be replaced.

It passes windows and events on, and keeps the audio of a window in shared memory as long as the engine may read it.
What becomes of the windows of an engine that has died is decided by `cluster/engine_pool.py`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.cluster.local.control_messages import EngineUp
from tutti_server.cluster.local.message_socket import MessageSocket
from tutti_server.cluster.local.messages import (
    Cancel,
    GetStats,
    Reply,
    Request,
    Submit,
    WindowStatus,
    WindowUpdate,
    pack_request,
    unpack_reply,
)
from tutti_server.cluster.local.shared_audio import Allocation, SharedAudioPool
from tutti_server.engine.api import EngineEvent, EngineStats, ModelInfo, Window, is_terminal
from tutti_server.engine.errors import EngineError
from tutti_server.engine.event_stream import Inbox
from tutti_server.engine.validation import check_samples

STATS_PERIOD_S = 0.5
"""How often a gateway asks for the engine's counters, in seconds."""


@dataclass(eq=False, slots=True, kw_only=True)
class _OpenWindow:
    """A window, from its submission until the engine has finished with its audio."""

    id: int
    allocation: Allocation
    """The place of the samples in the shared audio pool."""
    accepted: asyncio.Future[None]
    """Done when the engine has put the window into its queue, or has refused it."""
    inbox: Inbox = field(default_factory=Inbox)
    is_cancelled: bool = False
    """Whether the session has stopped waiting for the window. The engine may still read its audio."""

    def accept(self) -> None:
        """Note that the engine has accepted the window."""
        # It is done already where the session has just been cancelled while it waited.
        if not self.accepted.done():
            self.accepted.set_result(None)

    def fail(self, error: EngineError) -> None:
        """End the window with an error."""
        if self.accepted.done():
            self.inbox.put(error)
        else:
            self.accepted.set_exception(error)


@dataclass(frozen=True, slots=True)
class GatewayEnd:
    """What the links of a gateway have in common."""

    route: bytes
    """The address under which the engine servers know the gateway."""
    pool: SharedAudioPool
    """The gateway's shared audio pool."""
    tasks: asyncio.TaskGroup
    """The task group of the gateway. The tasks that run in it end when the links are closed."""


class _EngineConnection:
    """The socket to one engine process."""

    def __init__(self, gateway: GatewayEnd, address: str, on_reply: Callable[[Reply], None]) -> None:
        self._on_reply = on_reply
        self._socket = MessageSocket.connect(address, gateway.route)
        self._tasks = [gateway.tasks.create_task(each) for each in (self._receive(), self._poll_stats())]

    def send(self, request: Request) -> None:
        """Send a request. It is lost if the engine dies."""
        self._socket.send(pack_request(request))

    def close(self) -> None:
        """Close the socket."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()

    async def _receive(self) -> NoReturn:
        await self._socket.receive(lambda message: self._on_reply(unpack_reply(message)))

    async def _poll_stats(self) -> None:
        while True:
            self.send(GetStats())
            await asyncio.sleep(STATS_PERIOD_S)


class LocalEngineLink:
    """The link to the engine process in one place, whichever process that is. See `engine_pool.EngineLink`.

    The audio of every open window occupies blocks of the audio pool until the engine has finished with it. If there are
    no free blocks, `submit` raises `AudioPoolFull`.
    """

    def __init__(self, name: str, gateway: GatewayEnd, on_room: Callable[[], None]) -> None:
        """Create a link without an engine.

        Args:
            name: the name of the engine.
            gateway: this end of the link.
            on_room: called when the engine has finished with the audio of a window that was cancelled before.
        """
        self.name = name
        self.problem: str | None = None
        """Why the supervisor has given up starting the engine again; `None` if it has not."""
        self._gateway = gateway
        self._on_room = on_room
        self._connection: _EngineConnection | None = None
        self._ids = itertools.count()
        self._open: dict[int, _OpenWindow] = {}
        self._info: ModelInfo | None = None
        self._stats: EngineStats | None = None

    # Engines start and die.

    def connect(self, engine: EngineUp) -> None:
        """Use this engine from now on."""
        assert self._connection is None
        self.problem = None
        self._info, self._stats = engine.info, engine.stats
        self._connection = _EngineConnection(self._gateway, engine.address, self._handle)

    def disconnect(self, reason: str, *, was_killed: bool = False) -> None:
        """Give up the connection to an engine that has died, and end its windows. A second call has no effect.

        Args:
            reason: the message of the errors with which they end.
            was_killed: whether the engine was ended from outside.
        """
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        for window in list(self._open.values()):
            self._release(window)
            if not window.is_cancelled:
                window.fail(EngineGone(reason, was_killed=was_killed))

    # The interface `EngineLink`.

    @property
    def is_up(self) -> bool:
        """Whether there is an engine now."""
        return self._connection is not None

    @property
    def is_lost(self) -> bool:
        """Whether the supervisor has given up starting the engine again."""
        return self.problem is not None

    @property
    def info(self) -> ModelInfo:
        """The model of the last engine. There must have been one."""
        assert self._info
        return self._info

    def stats(self) -> EngineStats:
        """The engine's counters, at most `STATS_PERIOD_S` old. There must have been an engine."""
        assert self._stats
        return self._stats

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """Submit a window and wait until the engine has accepted it. See `EngineLink.submit`."""
        check_samples(window)
        if self._connection is None:
            raise EngineGone("the engine is not running", had_window=False)
        opened = self._submit(self._connection, window)
        try:
            await opened.accepted
            yield opened.inbox
        finally:
            self._cancel(opened)

    def _submit(self, connection: _EngineConnection, window: Window) -> _OpenWindow:
        opened = _OpenWindow(
            id=next(self._ids),
            allocation=self._gateway.pool.allocate(window.samples, window.priority),
            accepted=asyncio.get_running_loop().create_future(),
        )
        self._open[opened.id] = opened
        connection.send(
            Submit(
                id=opened.id,
                allocation=opened.allocation,
                session=window.session,
                channel=window.channel,
                priority=window.priority,
                options=window.options,
            )
        )
        return opened

    def _cancel(self, window: _OpenWindow) -> None:
        """Note that the session does not wait for the window any more. Without effect on a finished window."""
        if window.id in self._open and not window.is_cancelled:
            assert self._connection
            window.is_cancelled = True
            self._connection.send(Cancel(window.id))

    def _release(self, window: _OpenWindow) -> None:
        """Drop a window whose audio no engine reads any more."""
        del self._open[window.id]
        self._gateway.pool.free(window.allocation)

    def _handle(self, reply: Reply) -> None:
        if isinstance(reply, EngineStats):
            self._stats = reply
            return
        for id, update in reply:
            self._apply(self._open[id], update)

    def _apply(self, window: _OpenWindow, update: WindowUpdate) -> None:
        if _is_last(update):
            self._release(window)
            if window.is_cancelled:
                self._on_room()
        if window.is_cancelled:
            return
        if update is WindowStatus.ACCEPTED:
            window.accept()
        elif isinstance(update, EngineError):
            window.fail(update)
        elif not isinstance(update, WindowStatus):
            window.inbox.put(update)


def _is_last(update: WindowUpdate) -> bool:
    """Whether the engine has finished with the audio of the window."""
    if isinstance(update, WindowStatus):
        return update is WindowStatus.RELEASED
    return isinstance(update, EngineError) or is_terminal(update)
