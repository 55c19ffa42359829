"""How far a training run has come, by the clock, and what it has logged."""

import time
from typing import Any


class RunRecord:
    """Counts steps and time over all calls of one schedule, and holds the log and the test results."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: the length of the whole schedule."""
        self.seconds = seconds
        self.step = 0
        self.elapsed_before_s = 0.0
        """Seconds of training in earlier calls."""
        self.seen_h = 0.0
        """Hours of audio in all windows so far."""
        self.history: list[dict[str, Any]] = []
        self.tests: list[dict[str, Any]] = []
        self._started_at = time.monotonic()

    def start_clock(self) -> None:
        """Start the time of this call now."""
        self._started_at = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds of training in all calls."""
        return self.elapsed_before_s + time.monotonic() - self._started_at

    @property
    def progress(self) -> float:
        """Elapsed share of the schedule."""
        return self.elapsed_s / self.seconds

    def to_json(self) -> dict[str, Any]:
        """The record as `train.json` and the saved state hold it."""
        return {
            "step": self.step,
            "elapsed_s": round(self.elapsed_s, 1),
            "seen_h": round(self.seen_h, 1),
            "history": self.history,
            "tests": self.tests,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `to_json` returned."""
        self.step, self.elapsed_before_s = state["step"], state["elapsed_s"]
        self.seen_h, self.history, self.tests = state["seen_h"], state["history"], state["tests"]
