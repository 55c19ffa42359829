"""Judges the audio of all sessions of a process ahead of them: many channels in one call, in a thread of its own.

A session decides by itself where speech is. What the batcher found beforehand spares its event loop the work, and
changes no decision.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.silero import SileroDetector, SileroModel, Stretch

INTERVAL_S = 0.01
"""The least time between the beginnings of two calls, in seconds, while several sessions are active.

It bounds the number of calls, each of which costs a change of threads: at most 100 in a second. A session that is alone
does not wait.
"""


class _Request:
    def __init__(self, rows: list[tuple[SileroDetector, Stretch]]) -> None:
        self.rows = rows
        self.is_taken = False
        """Whether a batch contains it, or contained it."""


class DetectionBatcher:
    """Runs the network for whoever waits. Callers that come during a call share the next one."""

    def __init__(self, model: SileroModel) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1, "speech-detection")
        self._waiting: list[_Request] = []
        """Bounded by the number of sessions: each waits for its own request."""
        self._turn = asyncio.Lock()
        self._last_began_s = -INTERVAL_S
        """When the last call began, by the clock of the event loop."""
        self._last_alone: SileroDetector | None = None
        """The detector that the last call was for; `None` if there were several sessions."""

    async def detect(self, upcoming: Sequence[tuple[object, Samples]]) -> None:
        """Judge audio that the detectors will receive next, all at the same time. Cancelling is safe.

        Args:
            upcoming: detectors and the samples that each of them receives next. Other detectors than Silero's are left
                out.
        """
        rows = [
            (detector, stretch)
            for detector, samples in upcoming
            if isinstance(detector, SileroDetector) and (stretch := detector.look_ahead(samples))
        ]
        if not rows:
            return
        request = _Request(rows)
        self._waiting.append(request)
        async with self._turn:
            # Whoever has the turn takes all requests along. A caller that was cancelled then leaves the others to
            # judge by themselves.
            if not request.is_taken:
                await self._wait_for_others(rows[0][0])
                await self._run()

    async def _wait_for_others(self, detector: SileroDetector) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._last_alone is not detector:
            await asyncio.sleep(max(self._last_began_s + INTERVAL_S - now_s, 0.0))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        batch, self._waiting = self._waiting, []
        for request in batch:
            request.is_taken = True
        self._last_began_s = loop.time()
        self._last_alone = batch[0].rows[0][0] if len(batch) == 1 else None
        rows = [row for request in batch for row in request.rows]
        judgements = await loop.run_in_executor(self._thread, self._model.judge, [stretch for _, stretch in rows])
        for (detector, stretch), judgement in zip(rows, judgements, strict=True):
            detector.accept(stretch, judgement)
