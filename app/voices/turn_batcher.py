"""Runs the operator's turn model for all sessions of a process: several pauses in one call, in a thread of its own."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tutti_server.app.media.pcm import Samples

logger = logging.getLogger(__name__)

MAX_BATCH = 16
"""The most pauses in one call, so that no pause waits for many others."""


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A pause that waits for the model."""

    samples: Samples
    probability: asyncio.Future[float | None]


class TurnBatcher:
    """Gives pauses to the model. Those that come during a call share the next one."""

    def __init__(self, score: Callable[[Sequence[Samples]], Sequence[float]]) -> None:
        """Make a batcher.

        Args:
            score: `AudioTurnModel.score`; called in one thread.
        """
        self._score = score
        self._thread = ThreadPoolExecutor(1, "turn-model")
        self._waiting: list[_Request] = []
        """Bounded by the number of channels: each waits for one pause at a time."""
        self._is_running = False
        self._has_failed = False

    async def score(self, samples: Samples) -> float | None:
        """The probability that the turn has ended, for the audio before a pause; `None` if the model failed.

        The first failure is logged. Cancelling is safe.
        """
        request = _Request(samples, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if not self._is_running:
            self._begin()
        return await request.probability

    def _begin(self) -> None:
        """Run the model for those that have waited longest, if any do."""
        waiting = [each for each in self._waiting if not each.probability.done()]
        batch, self._waiting = waiting[:MAX_BATCH], waiting[MAX_BATCH:]
        self._is_running = bool(batch)
        if batch:
            audio = [each.samples for each in batch]
            call = asyncio.get_running_loop().run_in_executor(self._thread, self._score, audio)
            call.add_done_callback(partial(self._end, batch))

    def _end(self, batch: Sequence[_Request], call: asyncio.Future[Sequence[float]]) -> None:
        """Give the answers to those that still wait, and go on with the next call."""
        error = call.exception()
        if error:
            self._note(error)
        probabilities = [None] * len(batch) if error else call.result()
        for request, probability in zip(batch, probabilities, strict=True):
            if not request.probability.done():
                request.probability.set_result(probability)
        self._begin()

    def _note(self, error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.error(
                "the turn model failed; such pauses are judged by their text only, and later failures are not logged",
                exc_info=error,
            )
