"""Embeds stretches of speech for all sessions of a process: several in one call, in a thread of its own."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tutti_server.app.media.pcm import Samples

MAX_BATCH = 8
"""The most stretches in one call, so that no session waits for many stretches of another."""
MIN_FILE_SHARE = 1
"""The stretches of files in each call, if any wait: files are done, too, while live sessions use the network fully."""


class SpeakerEmbedder(Protocol):
    """A network that tells voices apart."""

    def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        """Unit vectors, `(stretches, dimensions)`, of stretches of mono float32 audio at 16 kHz."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A stretch that waits for the network."""

    samples: Samples
    vector: asyncio.Future[NDArray[np.float32]]


class EmbedderBatcher:
    """Gives stretches to the network. Those that come during a call share the next one."""

    def __init__(self, embedder: SpeakerEmbedder) -> None:
        """`embedder` is called in one thread."""
        self._embedder = embedder
        self._thread = ThreadPoolExecutor(1, "speaker-network")
        self._waiting: deque[_Request] = deque()
        """Bounded: each upload waits for one call of `embed` at a time, as each session does for `embed_live`.

        A request that is given up leaves the queue: while the network hangs, each session gives up and asks anew.
        """
        self._waiting_live: deque[_Request] = deque()
        self._is_running = False

    async def embed(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        """Unit vectors, `(stretches, dimensions)`. Cancelling is safe. An error of the network is raised."""
        return await self._embed(stretches, self._waiting)

    async def embed_live(self, stretches: Sequence[Samples]) -> NDArray[np.float32]:
        """Embed a stretch of a live session, before all stretches that are not live."""
        return await self._embed(stretches, self._waiting_live)

    async def _embed(self, stretches: Sequence[Samples], waiting: deque[_Request]) -> NDArray[np.float32]:
        loop = asyncio.get_running_loop()
        requests = [_Request(each, loop.create_future()) for each in stretches]
        waiting += requests
        if not self._is_running:
            self._begin()
        try:
            return np.stack(await asyncio.gather(*(each.vector for each in requests)))
        except BaseException:
            for each in requests:
                each.vector.cancel()
            given_up = set(requests)
            kept = [each for each in waiting if each not in given_up]
            waiting.clear()
            waiting += kept
            raise

    def _begin(self) -> None:
        """Run the network for those that have waited longest, if any do: live ones, then others."""
        batch: list[_Request] = []
        n_live = MAX_BATCH - min(len(self._waiting), MIN_FILE_SHARE)
        for waiting, most in ((self._waiting_live, n_live), (self._waiting, MAX_BATCH)):
            while waiting and len(batch) < most:
                batch.append(waiting.popleft())
        self._is_running = bool(batch)
        if batch:
            audio = [each.samples for each in batch]
            call = asyncio.get_running_loop().run_in_executor(self._thread, self._embedder.embed, audio)
            call.add_done_callback(partial(self._end, batch))

    def _end(self, batch: Sequence[_Request], call: "asyncio.Future[NDArray[np.float32]]") -> None:
        """Give the answers to those that still wait, and go on with the next call."""
        error = call.exception()
        for number, request in enumerate(batch):
            if request.vector.done():
                continue
            if error:
                request.vector.set_exception(error)
            else:
                request.vector.set_result(call.result()[number])
        self._begin()
