"""How long the encoder takes, and the decode-time debt of the running sequences that follows from it."""

from collections.abc import Sequence
from typing import Protocol

from tutti_server.engine.scheduling.request import Request

_MEMORY = 0.7
"""The weight of the earlier measurements when a new one is averaged in. It smooths single slow calls."""


class EncodeWork(Protocol):
    """What a runner knows of the work of encoding."""

    @property
    def min_encode_work(self) -> float:
        """The least work of one call, in full windows."""
        ...

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        """Return the work of encoding a window, in full windows."""
        ...


class EncoderTime:
    """Measures encoder calls, and accounts for the decode-time debt of the running sequences.

    An encoder call delays the running sequences. The debt is the decode time that they get before the next call.
    """

    def __init__(self, runner: EncodeWork, window_s: float, min_decode_share: float) -> None:
        """Create the account.

        Args:
            runner: tells the work of windows.
            window_s: seconds of encoder time per full window, as measured while warming up.
        """
        self._runner = runner
        self._debt_per_encode_s = min_decode_share / (1 - min_decode_share)
        self.window_s = window_s
        """Measured seconds of encoder time per full window."""
        self._full_debt_s = self._debt_s = 0.0
        self.begun_s = 0.0
        """Expected seconds of the encoder calls that are under way."""

    def full_windows(self, batch: Sequence[Request]) -> float:
        """Return the work of one call for these requests, in full windows."""
        return max(self._work(batch), self._runner.min_encode_work)

    def final_share(self, batch: Sequence[Request]) -> float:
        """Return the fraction of one call's work that is for finals, speculative ones included."""
        finals = [request for request in batch if not request.window.is_interim]
        return self._work(finals) / (self._work(batch) or 1.0)

    def expected_s(self, batch: Sequence[Request]) -> float:
        """Return how many seconds one call for these requests is expected to take."""
        return self.full_windows(batch) * self.window_s

    def record(self, batches: Sequence[Sequence[Request]], elapsed_s: float) -> list[float]:
        """Record calls for these batches, which took this long together. Returns the seconds of each call."""
        work = [self.full_windows(batch) for batch in batches]
        full_windows = sum(work)
        self.window_s = _MEMORY * self.window_s + (1 - _MEMORY) * elapsed_s / full_windows
        self._full_debt_s = self._debt_s = elapsed_s * self._debt_per_encode_s
        self.begun_s = 0.0
        return [elapsed_s * each / full_windows for each in work]

    def _work(self, batch: Sequence[Request]) -> float:
        windows = [request.window for request in batch]
        return sum(self._runner.encode_work(len(window.samples), window.is_interim) for window in windows)

    def record_step(self, elapsed_s: float) -> None:
        """Subtract a decode step of this many seconds from the debt."""
        self._debt_s -= elapsed_s

    def reset_debt(self) -> None:
        """Set the debt to zero: the sequences that had it have ended, or the encoder call has not delayed them."""
        self._debt_s = 0.0

    @property
    def debt_fraction(self) -> float:
        """The remaining decode-time debt of the running sequences, as a fraction of their debt after the last call."""
        return max(0.0, self._debt_s) / self._full_debt_s if self._full_debt_s else 0.0
