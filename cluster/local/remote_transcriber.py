"""The gateway's side: a `Transcriber` whose engine lives in another process, and may die and be replaced.

Whoever submits knows nothing of that: decoding is deterministic, so that a new engine is given what was open once more,
and what it says again is not handed out again.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import zmq
import zmq.asyncio

from cluster.local.messages import Ask, Cancel, Item, Mark, Request, Submit, pack, unpack_reply
from cluster.local.shared_audio import Place, SharedAudioPool
from engine.api import (
    DoneEvent,
    EngineEvent,
    EngineStats,
    ModelInfo,
    Priority,
    SegmentEvent,
    SupersededEvent,
    Window,
)
from engine.errors import EngineError, EngineFailed
from engine.event_stream import Inbox
from engine.validation import check_samples

STATS_PERIOD_S = 0.5
"""So old may the engine's counters be."""
MAX_DEATHS = 2
"""Of engines while they had a window: it is taken for the reason then."""


@dataclass(frozen=True, slots=True)
class EngineUp:
    """An engine that takes windows at an address, and how it was when it began."""

    address: str
    info: ModelInfo
    stats: EngineStats


@dataclass(eq=False, slots=True)
class _Submission:
    """A window from its submission until the engine is done with its audio."""

    id: int
    window: Window
    """Without its samples, which lie in the arena."""
    place: Place
    accepted: asyncio.Future[None]
    inbox: Inbox = field(default_factory=Inbox)
    handed_out: list[Hashable] = field(default_factory=list)
    """What of each event must come again if it is submitted again."""
    n_repeated: int = 0
    """Of these, as many have come from the present engine."""
    n_deaths: int = 0
    is_sent: bool = False
    """The present engine has it."""
    is_left: bool = False
    """Nobody waits for it; the engine may still read its audio."""

    def fail(self, error: EngineError) -> None:
        if self.accepted.done():
            self.inbox.put(error)
        else:
            self.accepted.set_exception(error)

    def put(self, event: EngineEvent) -> bool:
        """Hand an event out, unless it was before. False if another one was."""
        if self.n_repeated == len(self.handed_out):
            self.handed_out.append(_replay_key(event))
            self.inbox.put(event)
        elif self.handed_out[self.n_repeated] != _replay_key(event):
            return False
        self.n_repeated += 1
        return True


class RemoteTranscriber:
    """See `engine.api.Transcriber`. The audio of every open window takes room in the arena until the engine is done
    with it; where there is none left, `submit` raises `ArenaFull`.

    While there is no engine, finals wait for one and interims are answered as superseded.
    """

    def __init__(self, route: bytes, arena: SharedAudioPool, tasks: asyncio.TaskGroup) -> None:
        """Args:
        route: what the engine knows this gateway by.
        tasks: of the gateway; what runs in it ends with `close`.
        """
        self._route = route
        self._arena = arena
        self._tasks = tasks
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket | None = None
        self._talk: list[asyncio.Task[None]] = []
        self._ids = itertools.count()
        self._submissions: dict[int, _Submission] = {}
        self._suspects: deque[_Submission] = deque()
        """What was open when an engine died, in order; the first is tried."""
        self._info: ModelInfo | None = None
        self._stats: EngineStats | None = None
        self._failure: EngineFailed | None = None

    # The engine comes and goes.

    def connect(self, engine: EngineUp) -> None:
        """There is an engine, which is given all that is open, in order. What another may have died of is given to it
        one by one, so that it takes nothing else with it.
        """
        assert self._socket is None
        self._info, self._stats = engine.info, engine.stats
        self._socket = socket = self._context.socket(zmq.DEALER)
        socket.routing_id = self._route
        socket.linger = 0
        # Unbounded: what waits is bounded by the room in the arena.
        socket.set_hwm(0)
        socket.connect(engine.address)
        self._talk = [self._tasks.create_task(self._listen(socket)), self._tasks.create_task(self._ask())]
        for submission in self._submissions.values():
            if not submission.n_deaths:
                self._submit(submission)
        self._submit_suspect()

    def disconnect(self) -> None:
        """The engine has died. Once more changes nothing."""
        if self._socket is None:
            return
        for task in self._talk:
            task.cancel()
        self._socket.close()
        self._socket = None
        if self._stats is not None:
            self._stats = replace(self._stats, waiting_finals=0, waiting_interims=0, running=0)
        for submission in list(self._submissions.values()):
            self._note_death(submission)
        self._suspects = deque(each for each in self._submissions.values() if each.n_deaths)

    def close(self, reason: str) -> None:
        """There will be no engine any more: what is open fails, as does all that comes."""
        self._failure = EngineFailed(reason)
        self.disconnect()
        for submission in list(self._submissions.values()):
            self._forget(submission)
            submission.fail(EngineFailed(reason))
        self._context.term()

    def _note_death(self, submission: _Submission) -> None:
        submission.n_deaths += submission.is_sent
        submission.is_sent = False
        submission.n_repeated = 0
        if submission.is_left:
            self._forget(submission)
        elif submission.window.priority is Priority.INTERIM:
            # Another one follows soon, of more audio.
            self._forget(submission)
            _supersede(submission)
        elif submission.n_deaths >= MAX_DEATHS:
            self._forget(submission)
            submission.fail(EngineFailed(f"the engine has died {MAX_DEATHS} times while it had this window"))

    # `Transcriber`.

    @property
    def info(self) -> ModelInfo:
        """Of the last engine; there must have been one."""
        assert self._info
        return self._info

    @property
    def is_alive(self) -> bool:
        return self._socket is not None

    def stats(self) -> EngineStats:
        """At most `STATS_PERIOD_S` old."""
        assert self._stats
        return self._stats

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """See `Transcriber.submit`. Waits until the engine has taken the window in."""
        check_samples(window)
        if self._failure is not None:
            raise EngineFailed(*self._failure.args)
        submission = self._open(window)
        try:
            await submission.accepted
            yield submission.inbox
        finally:
            self._leave(submission)

    def _open(self, window: Window) -> _Submission:
        id, accepted = next(self._ids), asyncio.get_running_loop().create_future()
        if self._socket is None and window.priority is Priority.INTERIM:
            unheard = _Submission(id, window, Place(0, 0), accepted)
            _supersede(unheard)
            return unheard
        place = self._arena.put(window.samples, window.priority)
        submission = _Submission(id, replace(window, samples=window.samples[:0]), place, accepted)
        self._submissions[id] = submission
        self._submit(submission)
        return submission

    def _submit(self, submission: _Submission) -> None:
        if self._socket is None:
            return
        window = submission.window
        submission.is_sent = True
        self._say(
            Submit(submission.id, submission.place, window.session, window.channel, window.priority, window.options)
        )

    def _submit_suspect(self) -> None:
        """The next window that another engine had when it died, unless the present one has such a window already."""
        while self._suspects and self._socket is not None:
            first = self._suspects[0]
            if first.id in self._submissions:
                if not first.is_sent:
                    self._submit(first)
                return
            self._suspects.popleft()

    def _leave(self, submission: _Submission) -> None:
        if submission.id not in self._submissions or submission.is_left:
            return
        submission.is_left = True
        if submission.is_sent:
            self._say(Cancel(submission.id))
        else:
            self._forget(submission)

    def _forget(self, submission: _Submission) -> None:
        del self._submissions[submission.id]
        self._arena.free(submission.place)
        self._submit_suspect()

    # Talking to the engine.

    def _say(self, request: Request) -> None:
        assert self._socket is not None
        self._socket.send(pack(request))

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            reply = unpack_reply(await socket.recv())
            if isinstance(reply, EngineStats):
                self._stats = reply
                continue
            for id, item in reply:
                self._take(self._submissions[id], item)

    async def _ask(self) -> None:
        while True:
            self._say(Ask())
            await asyncio.sleep(STATS_PERIOD_S)

    def _take(self, submission: _Submission, item: Item) -> None:
        if item is Mark.LEFT or isinstance(item, EngineError | DoneEvent | SupersededEvent):
            self._forget(submission)
        if submission.is_left:
            return
        if item is Mark.ACCEPTED:
            if not submission.accepted.done():
                submission.accepted.set_result(None)
        elif isinstance(item, EngineError):
            submission.fail(item)
        elif not isinstance(item, Mark) and not submission.put(item):
            self._leave(submission)
            submission.fail(EngineFailed("the engine has died, and the next one reads this window differently"))


def _supersede(submission: _Submission) -> None:
    if not submission.accepted.done():
        submission.accepted.set_result(None)
    submission.inbox.put(SupersededEvent())


def _replay_key(event: EngineEvent) -> Hashable:
    """What must be the same of an event that comes once more."""
    match event:
        case SegmentEvent(segment):
            return (segment.start_s, segment.end_s, segment.text)
        case _:
            return type(event).__name__
