"""How much of the device's time the decode steps of one window take."""

_MEMORY = 0.95
"""The weight of the windows before, when another one is averaged in."""


class DecodeTime:
    """Measures decode steps. A sequence is charged its part of a full batch, although a smaller batch is as slow."""

    def __init__(self, n_full_step: int, window_s: float) -> None:
        """Create the account.

        Args:
            n_full_step: the number of sequences whose step takes about as long as that of one.
            window_s: what is supposed of a window until one is decoded, in seconds.
        """
        self.n_full_step = n_full_step
        self._open_s = 0.0
        """Seconds of steps since the last window was decoded."""
        self._n_done = 0
        """How many windows had been decoded then."""
        self._sum_s, self._weight = window_s, 1.0
        """The seconds of the windows that were decoded, and how many they are; older ones count for less."""

    @property
    def window_s(self) -> float:
        """Measured seconds of decode steps per window."""
        return self._sum_s / self._weight

    def record(self, elapsed_s: float, n_running: int, n_done: int) -> None:
        """Record a step, when `n_done` windows have been decoded since the start."""
        self._open_s += elapsed_s * n_running / max(n_running, self.n_full_step)
        n_new = n_done - self._n_done
        if n_new:
            faded = _MEMORY**n_new
            self._sum_s = faded * self._sum_s + self._open_s
            self._weight = faded * self._weight + n_new
            self._open_s, self._n_done = 0.0, n_done
