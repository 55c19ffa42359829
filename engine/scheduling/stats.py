"""Counts what the engine does, from its thread, and takes snapshots of it from any other."""

import threading
from bisect import bisect_left

from engine.api import EngineStats, Histogram, Priority

_BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128)
_QUEUE_EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ENCODE_EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STEP_EDGES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class _Counts:
    """A histogram that grows."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def snapshot(self) -> Histogram:
        return Histogram(self._edges, tuple(self._counts), self._total)


class StatsRecorder:
    """The engine's counters. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encode_batch = _Counts(_BATCH_EDGES)
        self._decode_batch = _Counts(_BATCH_EDGES)
        self._queue_s = {priority: _Counts(_QUEUE_EDGES_S) for priority in Priority}
        self._encode_s = _Counts(_ENCODE_EDGES_S)
        self._step_s = _Counts(_STEP_EDGES_S)
        self._done = 0
        self._superseded = 0
        self._cancelled = 0
        self._tokens = 0
        self._drafted = 0
        self._accepted = 0
        self._audio_s = 0.0

    def left_queue(self, priority: Priority, queued_s: float) -> None:
        with self._lock:
            self._queue_s[priority].observe(queued_s)

    def encoded(self, n_windows: int, audio_s: float, elapsed_s: float) -> None:
        with self._lock:
            self._encode_batch.observe(n_windows)
            self._encode_s.observe(elapsed_s)
            self._audio_s += audio_s

    def launched(self, n_running: int) -> None:
        """A decode step."""
        with self._lock:
            self._decode_batch.observe(n_running)
            self._tokens += n_running

    def stepped(self, elapsed_s: float) -> None:
        with self._lock:
            self._step_s.observe(elapsed_s)

    def prefilled(self, n_windows: int, n_drafted: int, n_accepted: int) -> None:
        """Prefill samples a first token for each window, and more where drafts were right."""
        with self._lock:
            self._tokens += n_windows + n_accepted
            self._drafted += n_drafted
            self._accepted += n_accepted

    def done(self) -> None:
        with self._lock:
            self._done += 1

    def superseded(self) -> None:
        with self._lock:
            self._superseded += 1

    def cancelled(self) -> None:
        with self._lock:
            self._cancelled += 1

    def snapshot(self, *, waiting_finals: int, waiting_interims: int, running: int) -> EngineStats:
        with self._lock:
            return EngineStats(
                waiting_finals=waiting_finals,
                waiting_interims=waiting_interims,
                running=running,
                encode_batch=self._encode_batch.snapshot(),
                decode_batch=self._decode_batch.snapshot(),
                final_queue_s=self._queue_s[Priority.FINAL].snapshot(),
                interim_queue_s=self._queue_s[Priority.INTERIM].snapshot(),
                encode_s=self._encode_s.snapshot(),
                step_s=self._step_s.snapshot(),
                windows_done=self._done,
                windows_superseded=self._superseded,
                windows_cancelled=self._cancelled,
                tokens_decoded=self._tokens,
                tokens_drafted=self._drafted,
                tokens_accepted=self._accepted,
                audio_s=self._audio_s,
            )
