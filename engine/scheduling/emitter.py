"""Finishes transcripts, and hands events and errors from the engine's thread to the callers."""

import time
from collections import deque

from tutti_server.engine.api import EngineEvent
from tutti_server.engine.decoding.word_timing import Alignment
from tutti_server.engine.errors import EngineError, EngineFailed
from tutti_server.engine.scheduling.request import AttemptOutput, Deliver, Item, Request


class EventEmitter:
    """Collects the events and errors of an engine step and delivers them together. Makes the last events of windows."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._items: list[tuple[Request, Item]] = []
        self._finished: deque[tuple[Request, AttemptOutput, Alignment | None]] = deque()
        """The decoded windows whose last events are not made yet. Their slots are free."""

    @property
    def n_finished(self) -> int:
        """The number of finished windows whose last events are not made yet."""
        return len(self._finished)

    def forget_finished(self) -> list[Request]:
        """Drop the finished windows whose last events are not made yet. Returns their requests."""
        requests = [request for request, _, _ in self._finished]
        self._finished.clear()
        return requests

    def put(self, request: Request, item: Item) -> None:
        """Add an item, which the next `flush` or `emit` delivers, unless the request was cancelled.

        An event that the request had before a failure is left out. A request whose events differ from those ends.
        """
        if request.is_cancelled:
            return
        if isinstance(item, EngineError):
            self._items.append((request, item))
            return
        try:
            is_new = request.replay.is_new(item)
        except EngineFailed as contradiction:
            request.is_cancelled = True
            self._items.append((request, contradiction))
            return
        if is_new:
            self._items.append((request, item))

    def finish(self, request: Request, output: AttemptOutput, alignment: Alignment | None) -> None:
        """Add a window that is decoded. A later `emit` makes its last events."""
        self._finished.append((request, output, alignment))

    def emit(self, max_windows: int) -> None:
        """Make the last events of at most this many finished windows, and deliver all items."""
        for _ in range(min(max_windows, len(self._finished))):
            request, output, alignment = self._finished[0]
            events: list[EngineEvent] = [
                *output.held_events,
                *output.transcript.finish(
                    output.is_truncated, request.n_steps, alignment, request.reached.timing(time.monotonic())
                ),
            ]
            self._finished.popleft()
            for event in request.last_events(output, events):
                self.put(request.caller, event)
        self.flush()

    def flush(self) -> None:
        """Deliver all items."""
        if self._items:
            items, self._items = self._items, []
            self._deliver(items)
