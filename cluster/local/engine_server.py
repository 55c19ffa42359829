"""The engine's side: windows of all gateways go to one `Transcriber`, and what it says of them goes back.

The event loop of the engine's process does nothing else.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import assert_never

import zmq
import zmq.asyncio

from cluster.local.messages import Answers, Ask, Cancel, Item, Mark, Reply, Submit, arena_number, pack, unpack_request
from cluster.local.shared_audio import SharedAudioPool
from engine.api import Transcriber, Window
from engine.errors import EngineError, EngineFailed

_Key = tuple[bytes, int]
"""A gateway's route, and its id of a window."""


class EngineHost:
    """Serves gateways over one socket. Made, used and closed on one event loop."""

    def __init__(self, transcriber: Transcriber, address: str, arenas: Sequence[SharedAudioPool]) -> None:
        """Args:
        address: `ipc://` and the path of a socket to make.
        arenas: of the gateways, by number.
        """
        self._transcriber = transcriber
        self._arenas = arenas
        self._windows: dict[_Key, asyncio.Task[None]] = {}
        self._outbox: defaultdict[bytes, Answers] = defaultdict(list)
        self._gone: set[bytes] = set()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        # Unbounded, as what is full loses messages; what waits for a gateway is bounded by its open windows.
        self._socket.set_hwm(0)
        self._socket.bind(address)

    @property
    def n_open(self) -> int:
        """Windows."""
        return len(self._windows)

    def disconnect(self, route: bytes) -> None:
        """A gateway has died: what it had open is cancelled, and what it said last is not heard."""
        self._gone.add(route)
        for (each, _), task in self._windows.items():
            if each == route:
                task.cancel()

    async def serve(self) -> None:
        """Until cancelled.

        Raises:
            ExceptionGroup: with `EngineFailed` in it: the engine has died. Gateways are not told, as the engine that
                takes its place will answer them.
        """
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                route, message = await self._socket.recv_multipart()
                self._receive(route, message)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()
        self._context.term()

    def _receive(self, route: bytes, message: bytes) -> None:
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
                # Where there is no such task, its last answer is on the way.
                if present := self._windows.get(key := (route, request.id)):
                    present.cancel()
                    present.add_done_callback(partial(self._left, key))
            case Ask():
                self._send(route, self._transcriber.stats())
            case _:
                assert_never(request)

    async def _transcribe(self, key: _Key, request: Submit) -> None:
        # A cancelled window may be looked at a moment longer than its blocks are taken: the encoder call that it is
        # in has other audio then, for a text that nobody reads.
        samples = self._arenas[arena_number(key[0])].look(request.place)
        # Sessions of different gateways have names of their own.
        window = Window(
            samples=samples,
            session=request.session,
            channel=request.channel,
            priority=request.priority,
            options=request.options,
        )
        try:
            async with self._transcriber.submit(window) as events:
                self._answer(key, Mark.ACCEPTED)
                async for event in events:
                    self._answer(key, event)
        except EngineFailed:
            raise
        except EngineError as error:
            self._answer(key, error)

    def _left(self, key: _Key, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self._answer(key, Mark.LEFT)

    def _answer(self, key: _Key, item: Item) -> None:
        if not self._outbox:
            # The engine hands over a step at once; by then all its windows have had their turn.
            asyncio.get_running_loop().call_soon(self._flush)
        route, id = key
        self._outbox[route].append((id, item))

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, defaultdict(list)
        for route, answers in outbox.items():
            self._send(route, answers)

    def _send(self, route: bytes, reply: Reply) -> None:
        if not self._socket.closed:
            self._socket.send_multipart([route, pack(reply)])
