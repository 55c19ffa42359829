"""Runs a network for all sessions of a process: several stretches of audio in one call, in a thread of its own."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tutti_server.app.media.pcm import Samples

MIN_FILE_SHARE = 1
"""The stretches of files in each call, if any wait: files are done, too, while live sessions use the network fully."""

_Request = tuple[Samples, "asyncio.Future[Any]"]
"""A stretch that waits for the network, and the answer to it."""


class NetworkBatcher:
    """Runs a network on stretches of audio. Stretches that arrive during a call are batched in the next one."""

    def __init__(self, run: Callable[[Sequence[Samples]], Iterable[Any]], name: str, max_batch: int) -> None:
        """Make a batcher.

        Args:
            run: the network; called in one thread.
            max_batch: the most stretches in one call, so that no session waits for many of others.
        """
        self._run = run
        self._thread = ThreadPoolExecutor(1, name)
        self._max_batch = max_batch
        self._waiting: deque[_Request] = deque()
        """Bounded: each upload waits for one call of `_answers` at a time, as each channel of a session does.

        A request that is given up leaves the queue: while the network hangs, each session gives up and asks anew.
        """
        self._waiting_live: deque[_Request] = deque()
        self._is_running = False

    async def _answers(self, stretches: Sequence[Samples], waiting: deque[_Request]) -> list[Any]:
        """Put stretches into a queue, and return the answers. Cancelling is safe. An error of the network is raised."""
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in stretches]
        waiting += zip(stretches, answers, strict=True)
        if not self._is_running:
            self._begin()
        try:
            return await asyncio.gather(*answers)
        except BaseException:
            for answer in answers:
                answer.cancel()
            kept = [each for each in waiting if not each[1].cancelled()]
            waiting.clear()
            waiting += kept
            raise

    def _begin(self) -> None:
        """Run the network on the stretches that have waited longest, live ones first, if any wait."""
        batch: list[_Request] = []
        n_live = self._max_batch - min(len(self._waiting), MIN_FILE_SHARE)
        for waiting, most in ((self._waiting_live, n_live), (self._waiting, self._max_batch)):
            while waiting and len(batch) < most:
                batch.append(waiting.popleft())
        self._is_running = bool(batch)
        if batch:
            stretches = [samples for samples, _ in batch]
            call = asyncio.get_running_loop().run_in_executor(self._thread, self._run, stretches)
            call.add_done_callback(partial(self._end, [answer for _, answer in batch]))

    def _end(self, answers: "list[asyncio.Future[Any]]", call: "asyncio.Future[Iterable[Any]]") -> None:
        error = call.exception()
        for answer, found in zip(answers, answers if error else call.result(), strict=True):
            if answer.done():
                continue
            if error:
                answer.set_exception(error)
            else:
                answer.set_result(found)
        self._begin()
