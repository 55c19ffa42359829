"""Counts what the engine does. The engine's thread counts, and any thread takes snapshots."""

import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tutti_server.engine.api import EngineStats, Histogram, Priority

_BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128)
_QUEUE_EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ENCODE_EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STEP_EDGES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class _GrowingHistogram:
    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def snapshot(self) -> Histogram:
        return Histogram(self._edges, tuple(self._counts), self._total)


@dataclass(slots=True, kw_only=True)
class _Totals:
    """See the fields of the same names in `EngineStats`."""

    windows_done: int = 0
    windows_superseded: int = 0
    windows_cancelled: int = 0
    tokens_decoded: int = 0
    tokens_drafted: int = 0
    tokens_accepted: int = 0
    audio_s: float = 0.0
    busy_s: float = 0.0
    final_busy_s: float = 0.0


class StatsRecorder:
    """The engine's counters. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encode_batch = _GrowingHistogram(_BATCH_EDGES)
        self._decode_batch = _GrowingHistogram(_BATCH_EDGES)
        self._queue_s = {priority: _GrowingHistogram(_QUEUE_EDGES_S) for priority in Priority}
        self._encode_s = _GrowingHistogram(_ENCODE_EDGES_S)
        self._step_s = _GrowingHistogram(_STEP_EDGES_S)
        self._totals = _Totals()

    def left_queue(self, priority: Priority, queued_s: float) -> None:
        """Count a window that leaves the queue for its encoder call."""
        with self._lock:
            self._queue_s[priority].observe(queued_s)

    def encoded(
        self, n_windows: int, audio_s: float, elapsed_s: float, final_share: float, device_share: float = 1.0
    ) -> None:
        """Count an encoder call.

        Args:
            final_share: the fraction of its work that finals were, speculative ones and those of files included.
            device_share: the part of the device that it had.
        """
        with self._lock:
            self._encode_batch.observe(n_windows)
            self._encode_s.observe(elapsed_s)
            self._totals.audio_s += audio_s
            self._add_work(elapsed_s * device_share, final_share)

    def launched(self, n_running: int) -> None:
        """Count a decode step that was launched."""
        with self._lock:
            self._decode_batch.observe(n_running)
            self._totals.tokens_decoded += n_running

    def stepped(self, elapsed_s: float, final_share: float, device_share: float = 1.0) -> None:
        """Record how long a decode step took; the shares are those of `encoded`."""
        with self._lock:
            self._step_s.observe(elapsed_s)
            self._add_work(elapsed_s * device_share, final_share)

    def _add_work(self, busy_s: float, final_share: float) -> None:
        self._totals.busy_s += busy_s
        self._totals.final_busy_s += busy_s * final_share

    def prefilled(self, n_windows: int, n_drafted: int, n_accepted: int) -> None:
        """Count a prefill. It samples one token for each window, and one more for each accepted draft token."""
        with self._lock:
            self._totals.tokens_decoded += n_windows + n_accepted
            self._totals.tokens_drafted += n_drafted
            self._totals.tokens_accepted += n_accepted

    @property
    def n_done(self) -> int:
        """The number of windows that were decoded."""
        with self._lock:
            return self._totals.windows_done

    def done(self) -> None:
        """Count a window that is decoded."""
        with self._lock:
            self._totals.windows_done += 1

    def superseded(self) -> None:
        """Count a window that a newer one superseded."""
        with self._lock:
            self._totals.windows_superseded += 1

    def cancelled(self) -> None:
        """Count a window that was cancelled."""
        with self._lock:
            self._totals.windows_cancelled += 1

    def snapshot(
        self,
        *,
        n_waiting: Callable[[Priority], int],
        running: int,
        utterance_encode_s: float,
        window_decode_s: float,
        work_waiting_s: float,
        final_work_waiting_s: float,
    ) -> EngineStats:
        """Return all counters as they are now. `n_waiting` tells how many windows of a priority are in the queue."""
        with self._lock:
            return EngineStats(
                waiting_finals=n_waiting(Priority.FINAL),
                waiting_speculative=n_waiting(Priority.SPECULATIVE),
                waiting_files=n_waiting(Priority.FILE),
                waiting_interims=n_waiting(Priority.INTERIM),
                running=running,
                utterance_encode_s=utterance_encode_s,
                window_decode_s=window_decode_s,
                work_waiting_s=work_waiting_s,
                final_work_waiting_s=final_work_waiting_s,
                encode_batch=self._encode_batch.snapshot(),
                decode_batch=self._decode_batch.snapshot(),
                final_queue_s=self._queue_s[Priority.FINAL].snapshot(),
                speculative_queue_s=self._queue_s[Priority.SPECULATIVE].snapshot(),
                file_queue_s=self._queue_s[Priority.FILE].snapshot(),
                interim_queue_s=self._queue_s[Priority.INTERIM].snapshot(),
                encode_s=self._encode_s.snapshot(),
                step_s=self._step_s.snapshot(),
                **asdict(self._totals),
            )
