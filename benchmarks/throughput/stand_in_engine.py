"""A stand-in for the engine, which computes nothing: it sends the usual events of every window, in steps as an engine.

Its events are made before, so that what remains is the cost of bringing windows and events from process to process.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from engine.api import (
    DoneEvent,
    EngineEvent,
    EngineStats,
    ModelInfo,
    Piece,
    Segment,
    SegmentEvent,
    StartedEvent,
    Window,
    WindowTiming,
)
from engine.event_stream import Inbox
from engine.scheduling.stats import StatsRecorder

STEP_S = 0.005
"""Seconds between two steps."""
STEPS_PER_WINDOW = 6
"""Steps from the one at which a window starts to its text."""
N_TEXTS = 512
"""Different texts: events of windows that end together share nothing."""
N_WORDS = 28
"""Words of each text."""

Put = Callable[[EngineEvent], None]


class StandInEngine:
    """Answers each window after `STEPS_PER_WINDOW` steps. `run` must be running."""

    is_alive = True
    is_lost = False
    problems = ()
    info = ModelInfo(
        name="stand-in",
        device="cpu",
        dtype="float32",
        is_multilingual=True,
        languages=("en",),
        tasks=("transcribe",),
        n_parameters=0,
        n_slots=256,
        max_encode_batch=16,
    )

    def __init__(self) -> None:
        self._texts = deque(_last_events(number) for number in range(N_TEXTS))
        self._new: dict[int, Put] = {}
        """Windows that have not started, by their numbers."""
        self._steps: deque[dict[int, Put]] = deque({} for _ in range(STEPS_PER_WINDOW))
        """Windows that have started, by the step at which they did; the oldest come first."""
        self._n_windows = 0

    def stats(self) -> EngineStats:
        """Counters of an engine that has nothing to do."""
        return StatsRecorder().snapshot(
            n_waiting=lambda _: 0,
            running=0,
            utterance_encode_s=0.001,
            window_decode_s=0.001,
            work_waiting_s=0.0,
            final_work_waiting_s=0.0,
        )

    async def run(self) -> None:
        """Send events, until this task is cancelled."""
        while True:
            await asyncio.sleep(STEP_S)
            self._step()

    def begin(self, window: Window, put: Put) -> Callable[[], None]:
        """Take a window in. Returns a function that cancels it."""
        self._n_windows += 1
        self._new[self._n_windows] = put
        return partial(self._cancel, self._n_windows)

    @asynccontextmanager
    async def submit(self, window: Window) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """See `Transcriber.submit`."""
        events = Inbox()
        cancel = self.begin(window, events.put)
        try:
            yield events
        finally:
            cancel()

    def _cancel(self, number: int) -> None:
        for windows in (self._new, *self._steps):
            windows.pop(number, None)

    def _step(self) -> None:
        new, self._new = self._new, {}
        self._steps.append(new)
        for put in new.values():
            put(StartedEvent(0.01, len(new)))
        for put in self._steps.popleft().values():
            for event in self._texts[0]:
                put(event)
            self._texts.rotate()


def _last_events(number: int) -> tuple[SegmentEvent, DoneEvent]:
    words = [f" word{number}-{index}" for index in range(N_WORDS - 2)]
    tokens = [(number + index, 1000 + index) for index in range(len(words))]
    pieces = (
        Piece((50_000,), "", 0.0),
        *(
            Piece(each, word, attention_peak_s=0.1 * at)
            for at, (each, word) in enumerate(zip(tokens, words, strict=True))
        ),
        Piece((50_100,), "", 3.8),
    )
    text = "".join(words)
    segment = Segment(
        start_s=0.0,
        end_s=3.8,
        text=text,
        tokens=tuple(token for each in tokens for token in each),
        avg_logprob=-0.2,
        compression_ratio=1.2,
        no_speech_prob=0.01,
    )
    done = DoneEvent(
        text=text,
        pieces=pieces,
        segments=(segment,),
        language="en",
        no_speech_prob=0.01,
        avg_logprob=-0.2,
        compression_ratio=1.2,
        is_truncated=False,
        n_steps=52,
        last_text_logprob=-0.1,
        end_logprob=-0.1,
        timing=WindowTiming(queued_s=0.01, encode_s=0.01, prefill_s=0.01, decode_s=0.03),
    )
    return SegmentEvent(segment, "en"), done
