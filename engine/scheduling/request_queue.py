"""The requests that wait for the encoder. Any thread may add and remove them; the engine's thread sleeps on them."""

import threading
import time
from collections.abc import Callable

from tutti_server.engine.api import Priority
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.scheduling.batcher import Batcher, BatchLimits, Encode, Idle, Load, Wait, Waiting
from tutti_server.engine.scheduling.request import Request


class RequestQueue:
    """A batcher with a lock, and the requests that it decides on. Safe to call from any thread."""

    def __init__(self, limits: BatchLimits) -> None:
        self._changed = threading.Condition()
        """The lock of all that the queue holds. It is notified when the worker may have something new to do."""
        self._batcher = Batcher(limits)
        self._requests: dict[int, Request] = {}
        self._failure: BaseException | None = None
        self.is_closed = False
        """Whether the queue was closed or the engine has failed. This is final: no request is accepted any more."""

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._requests

    def n_waiting(self, priority: Priority) -> int:
        """Return the number of requests of a priority that wait."""
        with self._changed:
            return self._batcher.n_waiting(priority)

    def encode_work(self, priority: Priority) -> float:
        """Return the work of encoding all requests of a priority that wait, in full windows."""
        with self._changed:
            return self._batcher.encode_work(priority)

    def add(self, request: Request, encode_work: float) -> Request | None:
        """Queue a request.

        Args:
            encode_work: the work of encoding its window, in full windows.

        Returns:
            The interim that it supersedes, if there is one; that one has left the queue.

        Raises:
            EngineOverloaded: the queue has no room for a window that may be dropped.
            EngineFailed: the engine has died or was closed.
        """
        window = request.window
        waiting = Waiting(
            id=request.id,
            session=window.session,
            channel=window.channel,
            priority=window.priority,
            encode_work=encode_work,
            n_slots=request.n_slots,
        )
        with self._changed:
            if self.is_closed:
                raise self.closed_error()
            now_s = request.reached.submitted_s = time.monotonic()
            older = self._batcher.add(waiting, now_s)
            self._requests[request.id] = request
            superseded = self._requests.pop(older.id) if older else None
            self._changed.notify()
        return superseded

    def cancel(self, request: Request) -> bool:
        """Mark a request as cancelled, at any stage. Returns whether it was waiting; it has left the queue then."""
        with self._changed:
            request.is_cancelled = True
            is_waiting = self._batcher.remove(request.id)
            if is_waiting:
                del self._requests[request.id]
            return is_waiting

    def next_batch(
        self, measure_load: Callable[[], Load], *, may_sleep: bool, max_idle_s: float | None = None
    ) -> list[Request]:
        """Return the requests to encode now, which leave the queue; none if the worker should go on without.

        Args:
            measure_load: returns what the device is doing at that moment.
            may_sleep: sleep as long as the batcher decides to wait.
            max_idle_s: the longest sleep while there is no work at all, in seconds; `None` for no limit.
        """
        with self._changed:
            while True:
                match self._batcher.decide(time.monotonic(), measure_load()):
                    case Encode(ids):
                        return [self._requests.pop(id) for id in ids]
                    case Idle():
                        return []
                    case Wait(for_s):
                        if self.is_closed or not may_sleep:
                            return []
                        is_idle = for_s is None
                        if not self._changed.wait(max_idle_s if is_idle else for_s) and is_idle:
                            return []

    def close(self) -> None:
        """Accept no more requests, and wake the worker."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()

    def drain(self, failure: BaseException | None) -> list[Request]:
        """Close the queue, because of a failure if there is one, and return the requests that still waited."""
        with self._changed:
            # The first failure counts: a thread that was given up may end after all.
            self._failure = self._failure or failure
            self.is_closed = True
            return [self._requests.pop(id) for id in self._batcher.clear()]

    def closed_error(self) -> EngineFailed:
        """Return the error with which requests to a closed engine fail."""
        if self._failure is None:
            return EngineFailed("the engine was closed")
        error = EngineFailed(f"the engine has died: {type(self._failure).__name__}")
        error.__cause__ = self._failure
        return error
