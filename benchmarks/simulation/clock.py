"""Simulated time: a queue of events, each at its time, and processes that work and wait between them."""

import heapq
import itertools
from collections.abc import Callable, Generator
from typing import Any

from engine.scheduling.batcher import Wait

Process = Generator[float | Wait, None, Any]
"""Code that takes simulated time. It yields the seconds that it works, or a `Wait` that `Sleeper.wake` cuts short."""


class Clock:
    """Runs events in the order of their times. Events of the same time run in the order in which they were added."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """The present time, in seconds since the beginning."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def call_at(self, at_s: float, event: Callable[[], None]) -> None:
        """Run `event` at a time; at once where that has passed."""
        heapq.heappush(self._events, (max(at_s, self.now_s), next(self._numbers), event))

    def call_after(self, seconds: float, event: Callable[[], None]) -> None:
        """Run `event` after a while."""
        self.call_at(self.now_s + seconds, event)

    def run_until(self, end_s: float) -> None:
        """Run all events up to a time."""
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.now_s = end_s


class Sleeper:
    """Runs one process. Other parts of the simulation may wake it while it waits."""

    def __init__(self, clock: Clock, process: Process) -> None:
        self._clock = clock
        self._process = process
        self._n_resumed = 0
        """How often the process went on. A timer that was set before the last time is outdated."""
        self._is_waiting = False
        self._go_on_after(0.0)

    def wake(self) -> None:
        """Let the process go on now if it waits; work is not interrupted."""
        if self._is_waiting:
            self._is_waiting = False
            self._go_on_after(0.0)

    def stop(self) -> None:
        """End the process wherever it is."""
        self._n_resumed += 1
        self._is_waiting = False
        self._process.close()

    def _go_on_after(self, seconds: float) -> None:
        number = self._n_resumed
        self._clock.call_after(seconds, lambda: self._go_on(number))

    def _go_on(self, number: int) -> None:
        if number != self._n_resumed:
            return
        self._n_resumed += 1
        # What the process itself causes does not wake it.
        self._is_waiting = False
        pause = next(self._process, None)
        self._is_waiting = isinstance(pause, Wait)
        seconds = pause.for_s if isinstance(pause, Wait) else pause
        if seconds is not None:
            self._go_on_after(seconds)
