"""The way from a gateway to one engine replica: a streaming call for each window, and one for the engine's reports.

It knows Ray by `EngineCalls` only, so that it is tested without Ray. `ray_transcriber.py` makes the calls.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from tutti_server.cluster.engine_pool import EngineGone
from tutti_server.engine.api import EngineEvent, EngineStats, ModelInfo, Window, is_terminal
from tutti_server.engine.errors import EngineError
from tutti_server.engine.event_stream import Inbox
from tutti_server.engine.validation import check_samples

logger = logging.getLogger(__name__)

REPORT_PERIOD_S = 0.5
"""How often an engine reports to each gateway, in seconds."""
REPORTS_PER_CALL = 10
"""The number of reports after which a call ends, and the gateway makes another one if it still needs them."""
MAX_SILENCE_S = 5.0
"""An engine without a report for this many seconds is taken for gone, and its windows go to another one.

Ray notices the end of a process at once, but that of a machine or of a network much later.
"""
RETRY_S = 0.5
"""How long to wait before an engine that was taken for gone is called again, in seconds."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an engine replica reports to a gateway."""

    info: ModelInfo
    stats: EngineStats


class CallFailed(Exception):
    """A call to an engine replica has failed: the replica or its node has ended, or the engine in it."""

    def __init__(self, reason: str, *, was_killed: bool = False) -> None:
        """Create the error. `was_killed`: it is known that the engine did not end by itself."""
        super().__init__(reason)
        self.was_killed = was_killed


class EngineCalls(Protocol):
    """The calls to one engine replica. The iterations raise `CallFailed`, and must not be cancelled.

    Ray cancels a call with a request that blocks the event loop, for ten seconds if the replica does not answer. So a
    window is cancelled by another call, and what comes of a call that is not needed any more is ignored.
    """

    def decode(self, id: str, window: Window) -> AsyncIterator[EngineEvent | EngineError]:
        """Decode a window. The last item is a terminal event, or an error of this window, unless it is cancelled."""
        ...

    def cancel(self, id: str) -> None:
        """Drop a window, and end the call that decodes it."""
        ...

    def reports(self) -> AsyncIterator[Report]:
        """Report now, and then `REPORTS_PER_CALL` times after `REPORT_PERIOD_S` each."""
        ...


@dataclass(eq=False, slots=True)
class _Submission:
    inbox: Inbox = field(default_factory=Inbox)
    is_done: bool = False
    """Whether the last event or an error is in the inbox."""

    def put(self, item: EngineEvent | EngineError) -> None:
        """Pass on what came of the window. What comes after its end is ignored."""
        if not self.is_done:
            self.is_done = isinstance(item, EngineError) or is_terminal(item)
            self.inbox.put(item)


class RayEngineLink:
    """An `EngineLink` to one replica. See `tutti_server.cluster.engine_pool.EngineLink`."""

    def __init__(self, name: str, node: str, calls: EngineCalls, on_change: Callable[[], None]) -> None:
        """Create a link that is not up yet; `run` makes it so.

        Args:
            name: Serve's id of the replica.
            node: Ray's id of its node.
            on_change: called after each change of `is_up`, and after each report.
        """
        self.name = name
        self.node = node
        self.is_lost = False
        """Whether Serve stops the replica, or it has ended. What it has it may still decode."""
        self.problem = None
        """See `EngineLink.problem`. Serve starts others in place of those that it gives up."""
        self.is_up = False
        self._calls = calls
        self._on_change = on_change
        self._report: Report | None = None
        self._submissions: set[_Submission] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_silent = True
        """Whether the engine was taken for gone and has not reported since: calls to it may never be answered."""

    @property
    def info(self) -> ModelInfo:
        """See `EngineLink.info`."""
        assert self._report
        return self._report.info

    def stats(self) -> EngineStats:
        """See `EngineLink.stats`."""
        assert self._report
        return self._report.stats

    async def run(self) -> None:
        """Follow the engine's reports until it is not a member any more, and its windows have ended."""
        while not self.is_lost or (self._submissions and not self._is_silent):
            try:
                await self._follow()
            except (CallFailed, TimeoutError) as error:
                if isinstance(error, CallFailed):
                    self._note_gone(str(error), was_killed=error.was_killed)
                else:
                    # Its machine or its network, as an engine that hangs or crashes still reports, or fails its calls.
                    self._note_gone(f"no report for {MAX_SILENCE_S:g} s", was_killed=True)
                await asyncio.sleep(RETRY_S)

    def leave(self) -> None:
        """Send nothing more to the engine: it is not a member any more. The windows that it has go on."""
        self.is_lost = True
        self._set_up(False)

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """Submit a window. The context is entered with the first event, which comes when the window leaves the queue.

        Raises:
            EngineGone: see `EngineLink.submit`.
        """
        check_samples(window)
        if not self.is_up:
            raise EngineGone(f"the engine {self.name} is not there", had_window=False)
        submission, id = _Submission(), uuid4().hex
        self._submissions.add(submission)
        self._start(self._receive(submission, self._calls.decode(id, window)))
        try:
            first = await anext(submission.inbox)
            yield _chain(first, submission.inbox)
        finally:
            self._submissions.discard(submission)
            if not submission.is_done and not self._is_silent:
                self._calls.cancel(id)

    async def _receive(self, submission: _Submission, items: AsyncIterator[EngineEvent | EngineError]) -> None:
        try:
            async for item in items:
                submission.put(item)
            # Without effect after the last event.
            submission.put(EngineGone(f"the engine {self.name} has left a window"))
        except CallFailed as error:
            submission.put(EngineGone(f"the engine {self.name} is gone: {error}", was_killed=error.was_killed))

    async def _follow(self) -> None:
        """Receive the reports of one call. Raises `CallFailed` or `TimeoutError` when the engine is gone."""
        reports = asyncio.Queue[Report | CallFailed | None]()
        self._start(_read(self._calls.reports(), reports))
        while True:
            async with asyncio.timeout(MAX_SILENCE_S):
                report = await reports.get()
            if report is None:
                return
            if isinstance(report, CallFailed):
                raise report
            self._report, self._is_silent = report, False
            self._set_up(not self.is_lost)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        # A context of its own: Serve cancels the calls that were made in the context of a request when it ends.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note_gone(self, reason: str, *, was_killed: bool) -> None:
        """Give the windows that the engine has back to the pool."""
        if self.is_up:
            logger.warning("the engine %s is gone: %s", self.name, reason)
        for submission in self._submissions:
            submission.put(EngineGone(f"the engine {self.name} is gone: {reason}", was_killed=was_killed))
        self._is_silent = True
        self._set_up(False)

    def _set_up(self, is_up: bool) -> None:
        self.is_up = is_up
        self._on_change()


async def _read(reports: AsyncIterator[Report], into: "asyncio.Queue[Report | CallFailed | None]") -> None:
    """Put all reports of a call into a queue, and at the end `None` or the error."""
    try:
        async for report in reports:
            into.put_nowait(report)
        into.put_nowait(None)
    except CallFailed as error:
        into.put_nowait(error)


async def _chain(first: EngineEvent, following: AsyncIterator[EngineEvent]) -> AsyncIterator[EngineEvent]:
    yield first
    async for event in following:
        yield event
