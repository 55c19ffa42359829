"""The gateway's side of the socket: a `Transcriber` whose engine is in another process, and may die and be replaced.

The sessions of the gateway do not notice a crash. Decoding is deterministic, so the `RemoteTranscriber` submits the
open windows to the next engine again and leaves out the events that the sessions have received already
(`engine/replay.py`).
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import zmq
import zmq.asyncio

from cluster.local.control_messages import EngineUp
from cluster.local.messages import (
    Cancel,
    GetStats,
    Reply,
    Request,
    Submit,
    WindowStatus,
    WindowUpdate,
    pack,
    unpack_reply,
)
from cluster.local.shared_audio import Allocation, SharedAudioPool
from engine.api import DoneEvent, EngineEvent, EngineStats, ModelInfo, SupersededEvent, Window
from engine.errors import EngineError, EngineFailed
from engine.event_stream import Inbox
from engine.replay import Replay
from engine.validation import check_samples

logger = logging.getLogger(__name__)

STATS_PERIOD_S = 0.5
"""How often a gateway asks for the engine's counters, in seconds."""
MAX_ENGINE_CRASHES_PER_WINDOW = 2
"""A window that was open in this many engine crashes is assumed to have caused them, and fails."""

_NO_AUDIO = Allocation(0, 0)


@dataclass(eq=False, slots=True, kw_only=True)
class _Submission:
    """A window, from its submission until the engine has finished with its audio."""

    id: int
    window: Window
    """The window, but with empty samples: these are in the shared audio pool."""
    allocation: Allocation
    """The place of the samples in the shared audio pool."""
    accepted: asyncio.Future[None]
    """Done when an engine has put the window into its queue, or has refused it."""
    inbox: Inbox = field(default_factory=Inbox)
    replay: Replay = field(default_factory=Replay)
    n_engine_crashes: int = 0
    """How many engines have died while they had this window."""
    is_sent: bool = False
    """Whether the window was sent to the present engine."""
    is_cancelled: bool = False
    """Whether the session has stopped waiting for the window. The engine may still read its audio."""

    def deliver(self, event: EngineEvent) -> None:
        """Pass an event on to the session, unless the session has received it already.

        Raises:
            EngineFailed: the event contradicts one that the session has received.
        """
        if self.replay.is_new(event):
            self.inbox.put(event)

    def fail(self, error: EngineError) -> None:
        """End the window with an error."""
        if self.accepted.done():
            self.inbox.put(error)
        else:
            self.accepted.set_exception(error)

    def accept(self) -> None:
        """Note that an engine has accepted the window, so that `RemoteTranscriber.submit` yields its events.

        A second engine, after a crash of the first, accepts the window again; that call has no effect.
        """
        if not self.accepted.done():
            self.accepted.set_result(None)

    def supersede(self) -> None:
        """End the window, which is an interim, as if a newer interim replaced it."""
        self.accept()
        self.inbox.put(SupersededEvent())


class _EngineConnection:
    """The socket to one engine process."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        address: str,
        route: bytes,
        tasks: asyncio.TaskGroup,
        on_reply: Callable[[Reply], None],
    ) -> None:
        self._socket: zmq.asyncio.Socket = context.socket(zmq.DEALER)
        self._socket.routing_id = route
        self._socket.linger = 0
        # Unbounded: the size of the audio pool bounds the windows that wait.
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self._tasks = [tasks.create_task(self._receive(on_reply)), tasks.create_task(self._poll_stats())]

    def send(self, request: Request) -> None:
        """Send a request. It is lost if the engine dies."""
        self._socket.send(pack(request))

    def close(self) -> None:
        """Close the socket."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()

    async def _receive(self, on_reply: Callable[[Reply], None]) -> None:
        while True:
            on_reply(unpack_reply(await self._socket.recv()))

    async def _poll_stats(self) -> None:
        while True:
            self.send(GetStats())
            await asyncio.sleep(STATS_PERIOD_S)


class RemoteTranscriber:
    """A `Transcriber` that passes windows to an engine process. See `engine.api.Transcriber`.

    The audio of every open window occupies blocks of the audio pool until the engine has finished with it. If there are
    no free blocks, `submit` raises `AudioPoolFull`.

    While there is no engine, finals wait for one, and interims end as superseded.
    """

    def __init__(self, route: bytes, pool: SharedAudioPool, tasks: asyncio.TaskGroup) -> None:
        """Create a transcriber without an engine.

        Args:
            route: the address under which the engine server knows this gateway.
            pool: the gateway's shared audio pool.
            tasks: the task group of the gateway. The tasks that run in it end with `close`.
        """
        self._route = route
        self._pool = pool
        self._tasks = tasks
        self._context = zmq.asyncio.Context()
        self._engine: _EngineConnection | None = None
        self._ids = itertools.count()
        self._submissions: dict[int, _Submission] = {}
        self._suspects: deque[_Submission] = deque()
        """Windows that were open when an engine died, in order. Only the first of them is submitted at a time."""
        self._info: ModelInfo | None = None
        self._stats: EngineStats | None = None
        self._failure: EngineFailed | None = None
        """Set when there will be no engine any more."""

    # Engines start and die.

    def connect(self, engine: EngineUp) -> None:
        """Use this engine, and submit all open windows to it, in order.

        Any window that was open in a crash may have caused it. Such windows are submitted one after another, so that
        the one that causes the next crash is known, and no other window fails with it.
        """
        assert self._engine is None
        self._info, self._stats = engine.info, engine.stats
        self._engine = _EngineConnection(self._context, engine.address, self._route, self._tasks, self._handle)
        for submission in self._submissions.values():
            if not submission.n_engine_crashes:
                self._submit(submission)
        self._submit_suspect()

    def disconnect(self) -> None:
        """Give up the connection to an engine that has died. A second call has no effect."""
        if self._engine is None:
            return
        self._engine.close()
        self._engine = None
        if self._stats is not None:
            self._stats = replace(self._stats, waiting_finals=0, waiting_speculative=0, waiting_interims=0, running=0)
        for submission in list(self._submissions.values()):
            self._note_crash(submission)
        self._suspects = deque(each for each in self._submissions.values() if each.n_engine_crashes)

    def close(self, reason: str) -> None:
        """Fail the open windows and every later one: there will be no engine any more.

        Args:
            reason: the message of their errors.
        """
        self._failure = EngineFailed(reason)
        self.disconnect()
        for submission in list(self._submissions.values()):
            self._release(submission)
            submission.fail(EngineFailed(reason))
        self._context.term()

    def _note_crash(self, submission: _Submission) -> None:
        submission.n_engine_crashes += submission.is_sent
        submission.is_sent = False
        submission.replay.restart()
        if submission.is_cancelled:
            self._release(submission)
        elif submission.window.priority.may_be_dropped:
            # Not submitted again: a newer interim, with more audio, or the final follows soon.
            self._release(submission)
            submission.supersede()
        elif submission.n_engine_crashes >= MAX_ENGINE_CRASHES_PER_WINDOW:
            self._release(submission)
            reason = f"the engine has died {MAX_ENGINE_CRASHES_PER_WINDOW} times while it had this window"
            logger.error("[%s] a window fails: %s", submission.window.session, reason)
            submission.fail(EngineFailed(reason))

    # The interface `Transcriber`.

    @property
    def info(self) -> ModelInfo:
        """The model of the last engine. There must have been one."""
        assert self._info
        return self._info

    @property
    def is_alive(self) -> bool:
        """Whether there is an engine now. See `Transcriber.is_alive`."""
        return self._engine is not None

    @property
    def is_lost(self) -> bool:
        """Whether the supervisor has given up restarting the engine. See `Transcriber.is_lost`."""
        return self._failure is not None

    def stats(self) -> EngineStats:
        """The engine's counters, at most `STATS_PERIOD_S` old."""
        assert self._stats
        return self._stats

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """Submit a window and wait until the engine has accepted it. See `Transcriber.submit`."""
        check_samples(window)
        if self._failure is not None:
            raise EngineFailed(*self._failure.args)
        submission = self._open(window)
        try:
            await submission.accepted
            yield submission.inbox
        finally:
            self._cancel(submission)

    def _open(self, window: Window) -> _Submission:
        id, accepted = next(self._ids), asyncio.get_running_loop().create_future()
        if self._engine is None and window.priority.may_be_dropped:
            superseded = _Submission(id=id, window=window, allocation=_NO_AUDIO, accepted=accepted)
            superseded.supersede()
            return superseded
        allocation = self._pool.allocate(window.samples, window.priority)
        without_samples = replace(window, samples=window.samples[:0])
        submission = _Submission(id=id, window=without_samples, allocation=allocation, accepted=accepted)
        self._submissions[id] = submission
        self._submit(submission)
        return submission

    def _submit(self, submission: _Submission) -> None:
        if self._engine is None:
            return
        window = submission.window
        submission.is_sent = True
        self._engine.send(
            Submit(
                id=submission.id,
                allocation=submission.allocation,
                session=window.session,
                channel=window.channel,
                priority=window.priority,
                options=window.options,
            )
        )

    def _submit_suspect(self) -> None:
        """Submit the next window that was open in a crash, unless the present engine has one of these already."""
        while self._suspects and self._engine is not None:
            first = self._suspects[0]
            if first.id in self._submissions:
                if not first.is_sent:
                    self._submit(first)
                return
            self._suspects.popleft()

    def _cancel(self, submission: _Submission) -> None:
        """Note that the session does not wait for the window any more. Without effect on a finished window."""
        if submission.id not in self._submissions or submission.is_cancelled:
            return
        submission.is_cancelled = True
        if submission.is_sent:
            assert self._engine is not None
            self._engine.send(Cancel(submission.id))
        else:
            self._release(submission)

    def _release(self, submission: _Submission) -> None:
        """Drop a window whose audio no engine reads any more."""
        del self._submissions[submission.id]
        self._pool.free(submission.allocation)
        self._submit_suspect()

    def _handle(self, reply: Reply) -> None:
        if isinstance(reply, EngineStats):
            self._stats = reply
            return
        for id, update in reply:
            self._apply(self._submissions[id], update)

    def _apply(self, submission: _Submission, update: WindowUpdate) -> None:
        if update is WindowStatus.RELEASED or isinstance(update, EngineError | DoneEvent | SupersededEvent):
            self._release(submission)
        if submission.is_cancelled:
            return
        if update is WindowStatus.ACCEPTED:
            submission.accept()
        elif isinstance(update, EngineError):
            submission.fail(update)
        elif not isinstance(update, WindowStatus):
            try:
                submission.deliver(update)
            except EngineFailed as contradiction:
                self._cancel(submission)
                submission.fail(contradiction)
