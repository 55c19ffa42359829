"""Threads for what may never answer, such as a disk of another machine: the end of the process does not wait for them.

It waits for those of a `ThreadPoolExecutor`, for ever.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any


class DaemonThreads(Executor):
    """Runs calls in their order, some of them at the same time. A thread ends when there is no call for it."""

    def __init__(self, n: int, name: str) -> None:
        """Run up to `n` calls at the same time, in threads with this name."""
        self._n = n
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`."""
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if len(self._threads) < self._n:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                thread.start()
                self._threads.add(thread)
        return future

    def wait(self, limit_s: float) -> None:
        """Wait until all calls are done, for at most `limit_s` seconds."""
        until_s = time.monotonic() + limit_s
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0.0))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
                future, call = self._waiting.popleft()
            _run(future, call)
            del future, call


def _run(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
