"""The engine's side of the socket: gives the windows of all gateways to one engine and sends its events back.

The event loop of the engine process does nothing else; the engine's own work runs on the engine's thread. The two take
turns with Python's interpreter, so what is spent here delays the engine: there is no task and no queue for a window.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, assert_never

from tutti_server.cluster.local.message_socket import MessageServer
from tutti_server.cluster.local.messages import (
    Cancel,
    GetStats,
    Reply,
    Submit,
    WindowStatus,
    WindowUpdate,
    WindowUpdates,
    gateway_number,
    pack_reply,
    unpack_request,
)
from tutti_server.cluster.local.shared_audio import SharedAudioPool
from tutti_server.engine.api import CallbackTranscriber, EngineEvent, Window, is_terminal
from tutti_server.engine.errors import EngineError, EngineFailed

_WindowKey = tuple[bytes, int]
"""The route of a gateway, and the gateway's id of a window."""


class EngineServer:
    """Serves gateways over one socket. It is created, used and closed on one event loop."""

    def __init__(self, transcriber: CallbackTranscriber, address: str, pools: Sequence[SharedAudioPool]) -> None:
        """Open the socket.

        Args:
            address: the path of the socket to create.
            pools: the audio pool of each gateway, by the gateway's number.
        """
        self._transcriber = transcriber
        self._pools = pools
        self._windows: dict[_WindowKey, Callable[[], None]] = {}
        """The windows that are not finished, and what cancels each."""
        self._outbox: defaultdict[bytes, WindowUpdates] = defaultdict(list)
        """Updates that are not sent yet, by route."""
        self._gone: set[bytes] = set()
        """Routes of gateways that have died."""
        self._loop = asyncio.get_running_loop()
        self._socket = MessageServer(address)

    def disconnect(self, route: bytes) -> None:
        """Cancel the windows of a gateway that has died, and ignore its messages that still wait."""
        self._gone.add(route)
        self._socket.drop(route)
        for key in [key for key in self._windows if key[0] == route]:
            self._windows.pop(key)()

    async def serve(self) -> NoReturn:
        """Serve gateways until this task is cancelled. Then all windows are cancelled.

        Raises:
            EngineFailed: the engine has died. The gateways receive no message about it, because the next engine process
                will answer their windows.
        """
        try:
            await self._socket.receive(self._handle)
        finally:
            while self._windows:
                _, cancel = self._windows.popitem()
                cancel()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _handle(self, route: bytes, message: bytes) -> None:
        if route in self._gone:
            return
        request = unpack_request(message)
        match request:
            case Submit():
                self._submit((route, request.id), request)
            case Cancel():
                # An unknown window has ended, and its last update is already on its way.
                key = (route, request.id)
                if cancel := self._windows.pop(key, None):
                    cancel()
                    self._report(key, WindowStatus.RELEASED)
            case GetStats():
                self._send(route, self._transcriber.stats())
            case _:
                assert_never(request)

    def _submit(self, key: _WindowKey, request: Submit) -> None:
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
            # The gateway has checked the samples.
            self._windows[key] = self._transcriber.begin(window, partial(self._put, key))
        except EngineError as error:
            self._end_with(key, error)
        else:
            self._report(key, WindowStatus.ACCEPTED)

    def _put(self, key: _WindowKey, item: EngineEvent | EngineError) -> None:
        """Send an event of a window, or its error, to the gateway."""
        if key not in self._windows:
            # It was cancelled when the event was already on its way.
            return
        if isinstance(item, EngineError):
            del self._windows[key]
            self._end_with(key, item)
            return
        if is_terminal(item):
            del self._windows[key]
        self._report(key, item)

    def _end_with(self, key: _WindowKey, error: EngineError) -> None:
        """Report the error of a window. Only this window has failed as long as the engine is alive."""
        if isinstance(error, EngineFailed) and not self._transcriber.is_alive:
            self._socket.fail(error)
        else:
            self._report(key, error)

    def _report(self, key: _WindowKey, update: WindowUpdate) -> None:
        if not self._outbox:
            # The engine delivers all events of a step in one callback. `call_soon` runs after every window of that step
            # has had its turn, so that one message to each gateway holds all of them.
            self._loop.call_soon(self._flush)
        route, id = key
        self._outbox[route].append((id, update))

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, defaultdict(list)
        for route, updates in outbox.items():
            self._send(route, updates)

    def _send(self, route: bytes, reply: Reply) -> None:
        self._socket.send(route, pack_reply(reply))
