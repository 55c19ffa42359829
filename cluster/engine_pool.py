"""Several engines as one: a `Transcriber` that chooses an engine for each window, and survives their deaths.

It does not know where the engines are: it reaches each of them over an `EngineLink`. Decoding is deterministic, so a
window whose engine has died goes to another engine, and the events that the session has received already are left out
(`engine/replay.py`).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol, Self

from tutti_server.cluster.balancing import Balancer
from tutti_server.engine.api import (
    EngineEvent,
    EngineStats,
    ModelInfo,
    StartedEvent,
    SupersededEvent,
    Window,
    is_terminal,
)
from tutti_server.engine.engine_stats import add_up, without_work
from tutti_server.engine.errors import EngineError, EngineFailed, EngineOverloaded
from tutti_server.engine.replay import Replay

logger = logging.getLogger(__name__)

MAX_ENGINE_CRASHES_PER_WINDOW = 2
"""A window that was open in this many engine crashes is assumed to have caused them, and fails."""
MAX_ENGINE_ENDS_PER_WINDOW = 6
"""A window that was open when this many engines ended for any reason, also if they were killed from outside, fails too.

The system kills an engine where memory is short, and the window may be the reason for that.
"""


class EngineGone(EngineFailed):
    """The engine behind a link has ended, or was not there. Another engine can decode the window."""

    def __init__(self, reason: str, *, had_window: bool = True, was_killed: bool = False) -> None:
        """Create the error.

        Args:
            reason: the message.
            had_window: whether the engine had received the window, which may then be the reason for its end.
            was_killed: whether the engine was ended from outside, so that no window is likely to be the reason.
        """
        super().__init__(reason)
        self.had_window = had_window
        self.was_killed = was_killed


class EngineLink(Protocol):
    """One engine outside this process.

    Its owner calls `EnginePool.notify` after each change of `is_up`, and when there is room again for a final that
    `submit` has refused with `EngineOverloaded`.
    """

    @property
    def name(self) -> str:
        """The name in metrics and logs, different from those of all other engines."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether the engine accepts windows now."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the engine is down and is not expected back."""
        ...

    @property
    def problem(self) -> str | None:
        """Why the engine is given up, in words for the operator; `None` if it is not."""
        ...

    @property
    def info(self) -> ModelInfo:
        """The model that the engine has loaded, the same in all. Asked only of a link that was up."""
        ...

    def stats(self) -> EngineStats:
        """Return the newest report: a new object for each report. Asked only of a link that was up."""
        ...

    def submit(self, window: Window) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """Submit a window; see `Transcriber.submit`.

        Raises:
            EngineGone: the engine has ended, or is not there. On entry, or while iterating.
        """
        ...


class EnginePool:
    """A `Transcriber` over several engines. See `tutti_server.engine.api.Transcriber`.

    While no engine is up, finals wait for one, and interims end as superseded. They also do when their engine dies:
    a newer one, with more audio, or the final follows soon. Finals also wait where the memory for audio is full.

    Any window that an engine had when it died may be the reason. Such windows are crash suspects: they are tried one at
    a time, beside new work, so that the one that causes the next crash is known. While only one of several engines is
    up they wait for another one, so that no window takes down all engines; where the engine was killed from outside
    they do not.
    """

    def __init__(
        self, links: Sequence[EngineLink], balancer: Balancer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create a pool.

        Args:
            links: the engines, in the order in which they are filled. See `add` and `remove` for later changes.
            balancer: chooses among them.
            clock: the time in seconds.
        """
        self._links = list(links)
        self._balancer = balancer
        self._clock = clock
        self._reports: dict[str, EngineStats] = {}
        """The newest report of each engine that the balancer knows."""
        self._last: EngineLink | None = None
        """The engine that was removed last. It tells what is loaded while there is no other."""
        self._newest: dict[tuple[str, int, int], _Submission] = {}
        """The newest droppable window of each session, channel and priority."""
        self._crash_suspects: list[_Submission] = []
        """Windows that an engine had when it died, in order. One of them at a time is in an engine."""
        self._changed = asyncio.Event()
        """Set, and replaced, when windows that wait may find an engine."""
        self._failure: str | None = None
        """Why there will be no engine any more."""

    # Engines come and go.

    def add(self, link: EngineLink, *, first: bool = False) -> None:
        """Use another engine: after the others, or before them."""
        self._links.insert(0 if first else len(self._links), link)
        self.notify()

    def remove(self, link: EngineLink) -> None:
        """Send nothing more to an engine. The windows that it has go on."""
        self._links.remove(link)
        if self._reports.pop(link.name, None) is not None:
            self._last = link
        self.notify()

    def notify(self) -> None:
        """Let the windows that wait look for an engine: a link has changed, or there is room again."""
        # From now on its model is known, also if it leaves at once.
        self._note_reports()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self, reason: str) -> None:
        """Fail the waiting windows and every later one: there will be no engine any more. Open ones end with theirs."""
        self._failure = reason
        self.notify()

    # The interface `Transcriber`.

    @property
    def info(self) -> ModelInfo:
        """The model of the engines. One of them must have been up."""
        return self._known()[0].info

    @property
    def is_alive(self) -> bool:
        """Whether any engine is up. See `Transcriber.is_alive`."""
        return any(link.is_up for link in self._links)

    @property
    def is_lost(self) -> bool:
        """Whether there will be no engine any more. See `Transcriber.is_lost`."""
        return self._failure is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """See `Transcriber.problems`."""
        return tuple(link.problem for link in self._links if link.problem)

    def stats(self) -> EngineStats:
        """The counters of all engines, added up. Nothing waits in those that are down."""
        engines = {link.name: self._stats_of(link) for link in self._known()}
        total = add_up(engines)
        if len(self._links) < 2:
            return total
        # This process may have started when one of them was down.
        unknown = tuple(link.name for link in self._links if link.name not in engines)
        return replace(total, engines=engines, unknown=unknown)

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """Submit a window and wait until an engine has accepted it. See `Transcriber.submit`."""
        submission = _Submission(self, window)
        try:
            await submission.place()
            yield submission
        finally:
            await submission.leave()

    def _known(self) -> list[EngineLink]:
        """The engines that have been up; the last one that has left, where there are no others."""
        self._note_reports()
        known = [link for link in self._links if link.name in self._reports]
        return known or ([self._last] if self._last else [])

    def _stats_of(self, link: EngineLink) -> EngineStats:
        return link.stats() if link.is_up and link in self._links else without_work(link.stats())

    def _note_reports(self) -> None:
        """Give the balancer the reports that it does not know."""
        for link in self._links:
            if link.is_up and (report := link.stats()) is not self._reports.get(link.name):
                self._reports[link.name] = report
                self._balancer.note_report(link.name, report, self._clock())

    # For `_Submission`.

    def choose(self, submission: "_Submission") -> EngineLink | None:
        """Return the engine for a window; `None` where there is none for it now.

        Raises:
            EngineFailed: there will be no engine any more.
        """
        if self._failure is not None:
            raise EngineFailed(self._failure)
        up = {link.name: link for link in self._links if link.is_up}
        if not up or (submission in self._crash_suspects and submission is not self._next_crash_suspect(len(up))):
            return None
        priority = submission.window.priority
        older = self._newest.get(submission.key) if priority.may_be_dropped else None
        self._note_reports()
        now_s = self._clock()
        link = older.link if older is not None and older.is_waiting else None
        if link is not None and up.get(link.name) is link and not self._balancer.is_silent(link.name, now_s):
            # There the newer one takes the place of the older one in the queue.
            name = link.name
        elif submission in self._crash_suspects:
            name = self._balancer.choose_for_crash_suspect(list(up))
        else:
            name = self._balancer.choose(list(up), priority, now_s)
        self._balancer.note_sent(name, priority)
        if priority.may_be_dropped:
            self._newest[submission.key] = submission
        return up[name]

    def _next_crash_suspect(self, n_up: int) -> "_Submission | None":
        """Return the crash suspect that may be tried now."""
        if any(each.link for each in self._crash_suspects):
            return None
        is_last = n_up == 1 and any(not (link.is_up or link.is_lost) for link in self._links)
        return next((each for each in self._crash_suspects if each.was_killed or not is_last), None)

    def note_crash_suspect(self, submission: "_Submission") -> None:
        """Note that an engine had this window when it died."""
        if submission not in self._crash_suspects:
            self._crash_suspects.append(submission)

    def forget(self, submission: "_Submission") -> None:
        """Note that a window has ended, which may make room for others."""
        if self._newest.get(submission.key) is submission:
            del self._newest[submission.key]
        if submission in self._crash_suspects:
            self._crash_suspects.remove(submission)
        self.notify()

    async def changed(self) -> None:
        """Wait until windows that wait may find an engine."""
        await self._changed.wait()


class _Submission:
    """A window, from its submission until its caller leaves. Iterates over its events, from whichever engine."""

    def __init__(self, pool: EnginePool, window: Window) -> None:
        self.window = window
        self.link: EngineLink | None = None
        """The engine that has the window."""
        self.is_waiting = False
        """Whether the window is in the queue of that engine."""
        self.was_killed = False
        """Whether the engine that had it last was killed from outside."""
        self._pool = pool
        self._stream: AsyncExitStack | None = None
        """The stream of events; its exit leaves the engine."""
        self._events: AsyncIterator[EngineEvent] | None = None
        """The events of that engine."""
        self._replay = Replay()
        self._n_crashes = 0
        """How many engines have crashed by themselves while they had this window."""
        self._n_ends = 0
        """How many engines have ended while they had it, those that were killed from outside included."""
        self._is_superseded = False
        self._end: Exception | None = None
        """What every further step of the iteration raises."""

    @property
    def key(self) -> tuple[str, int, int]:
        """What a newer window must share with this one to take its place in a queue."""
        return (self.window.session, self.window.channel, self.window.priority)

    async def place(self) -> None:
        """Give the window to an engine, and wait until it is accepted. Without an engine, a droppable one is dropped.

        Raises:
            EngineError: as `Transcriber.submit` does.
        """
        while self._events is None and not self._is_superseded:
            link = self._pool.choose(self)
            if link is not None:
                await self._enter(link)
            elif self.window.priority.may_be_dropped:
                self._is_superseded = True
            else:
                await self._pool.changed()

    async def leave(self) -> None:
        """Cancel the window, unless it has ended."""
        try:
            await self._close()
        finally:
            self._pool.forget(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EngineEvent:
        if self._end is not None:
            raise self._end
        try:
            event = await self._next()
        except EngineError as error:
            self._end = error
            raise
        if is_terminal(event):
            self._end = StopAsyncIteration()
        return event

    async def _next(self) -> EngineEvent:
        """Return the next event that the caller has not received."""
        while not self._is_superseded:
            if self._events is None:
                await self.place()
                continue
            try:
                event = await anext(self._events)
            except EngineGone as gone:
                await self._note_gone(gone)
                continue
            self.is_waiting = False
            if self._replay.is_new(event):
                if isinstance(event, StartedEvent) and self.link is not None:
                    return replace(event, engine=self.link.name)
                return event
        return SupersededEvent()

    async def _enter(self, link: EngineLink) -> None:
        stream = AsyncExitStack()
        self.link, self.is_waiting = link, True
        try:
            self._events = await stream.enter_async_context(link.submit(self.window))
            self._stream = stream
        except EngineGone as gone:
            await self._note_gone(gone)
        except EngineOverloaded as full:
            # A final waits until one of the windows that take the room has ended: they may be cancelled already.
            if self.window.priority.may_be_dropped or not full.waiting:
                raise
            self.link = None
            await self._pool.changed()
        finally:
            if self._events is None:
                self.link = None

    async def _note_gone(self, gone: EngineGone) -> None:
        """Note that the engine that had the window is gone.

        Raises:
            EngineFailed: too many engines have died with this window.
        """
        await self._close()
        self._replay.restart()
        if self.window.priority.may_be_dropped:
            self._is_superseded = True
        elif gone.had_window:
            self._n_ends += 1
            self._n_crashes += not gone.was_killed
            self.was_killed = gone.was_killed
            if self._n_crashes >= MAX_ENGINE_CRASHES_PER_WINDOW or self._n_ends >= MAX_ENGINE_ENDS_PER_WINDOW:
                error = EngineFailed(f"the engine has died {self._n_ends} times while it had this window")
                logger.error("[%s] a window fails: %s", self.window.session, error)
                raise error from gone
            self._pool.note_crash_suspect(self)

    async def _close(self) -> None:
        stream, self._stream, self._events, self.link = self._stream, None, None, None
        if stream is not None:
            await stream.aclose()
