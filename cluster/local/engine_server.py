"""The engine's side of the socket: submits the windows of all gateways to one `Transcriber` and sends its events back.

The event loop of the engine process does nothing else; the engine's own work runs on the engine's thread.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import assert_never

import zmq
import zmq.asyncio

from cluster.local.messages import (
    Cancel,
    GetStats,
    Reply,
    Submit,
    WindowStatus,
    WindowUpdate,
    WindowUpdates,
    gateway_number,
    pack,
    unpack_request,
)
from cluster.local.shared_audio import SharedAudioPool
from engine.api import Transcriber, Window
from engine.errors import EngineError, EngineFailed

_WindowKey = tuple[bytes, int]
"""The route of a gateway, and the gateway's id of a window."""


class EngineServer:
    """Serves gateways over one socket. It is created, used and closed on one event loop."""

    def __init__(self, transcriber: Transcriber, address: str, pools: Sequence[SharedAudioPool]) -> None:
        """Open the socket.

        Args:
            transcriber: the engine.
            address: `ipc://` and the path of the socket to create.
            pools: the audio pool of each gateway, by the gateway's number.
        """
        self._transcriber = transcriber
        self._pools = pools
        self._windows: dict[_WindowKey, asyncio.Task[None]] = {}
        self._outbox: defaultdict[bytes, WindowUpdates] = defaultdict(list)
        """Updates that are not sent yet, by route."""
        self._gone: set[bytes] = set()
        """Routes of gateways that have died."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        # Unbounded, because a full ZeroMQ queue loses messages. The open windows of a gateway bound what waits for it.
        self._socket.set_hwm(0)
        self._socket.bind(address)

    @property
    def n_open(self) -> int:
        """The number of windows that are not finished."""
        return len(self._windows)

    def disconnect(self, route: bytes) -> None:
        """Cancel the windows of a gateway that has died, and ignore its messages that still wait in the socket."""
        self._gone.add(route)
        for (window_route, _), task in self._windows.items():
            if window_route == route:
                task.cancel()

    async def serve(self) -> None:
        """Serve gateways until this task is cancelled.

        Raises:
            ExceptionGroup: contains an `EngineFailed`: the engine has died. The gateways receive no message about it,
                because the next engine process will answer their windows.
        """
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                route, message = await self._socket.recv_multipart()
                self._handle(route, message)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self._context.term()

    def _handle(self, route: bytes, message: bytes) -> None:
        if route in self._gone:
            return
        request = unpack_request(message)
        match request:
            case Submit():
                key = (route, request.id)
                task = self._tasks.create_task(self._transcribe(key, request))
                self._windows[key] = task
                task.add_done_callback(lambda _: self._windows.pop(key))
            case Cancel():
                # Without such a task, the last update of the window is already on its way.
                key = (route, request.id)
                if running := self._windows.get(key):
                    running.cancel()
                    running.add_done_callback(partial(self._report_release, key))
            case GetStats():
                self._send(route, self._transcriber.stats())
            case _:
                assert_never(request)

    async def _transcribe(self, key: _WindowKey, request: Submit) -> None:
        # A gateway may write other audio into these blocks while the encoder still reads a cancelled window. This does
        # no harm: the text of that window is discarded.
        samples = self._pools[gateway_number(key[0])].view(request.allocation)
        # Session names are unique over all gateways, so the engine can use them as they are.
        window = Window(
            samples=samples,
            session=request.session,
            channel=request.channel,
            priority=request.priority,
            options=request.options,
        )
        try:
            async with self._transcriber.submit(window) as events:
                self._report(key, WindowStatus.ACCEPTED)
                async for event in events:
                    self._report(key, event)
        except EngineError as error:
            # Only this window has failed as long as the engine is alive.
            if isinstance(error, EngineFailed) and not self._transcriber.is_alive:
                raise
            self._report(key, error)

    def _report_release(self, key: _WindowKey, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self._report(key, WindowStatus.RELEASED)

    def _report(self, key: _WindowKey, update: WindowUpdate) -> None:
        if not self._outbox:
            # The engine delivers all events of a step in one callback. `call_soon` runs after every window of that step
            # has had its turn, so that one message to each gateway holds all of them.
            asyncio.get_running_loop().call_soon(self._flush)
        route, id = key
        self._outbox[route].append((id, update))

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, defaultdict(list)
        for route, updates in outbox.items():
            self._send(route, updates)

    def _send(self, route: bytes, reply: Reply) -> None:
        if not self._socket.closed:
            self._socket.send_multipart([route, pack(reply)])
