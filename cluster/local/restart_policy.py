"""When a process that has died is started again, and when the supervisor gives up. It has no clock and no process."""

from dataclasses import dataclass

MAX_PAUSE_S = 30.0
"""The longest pause before a restart, in seconds."""
STABLE_AFTER_S = 60.0
"""A process that has run for this many seconds was healthy: its crash counts as the first one."""


@dataclass(slots=True)
class RestartPolicy:
    """Decides how long to wait before a dead process is started again, and when to give up."""

    first_pause_s: float
    """The pause after the second crash in a row; see `restart_pause_s`."""
    max_failed_starts: int
    """Give up when this many processes in a row died before they were ready."""
    n_failed_starts: int = 0
    """How many processes in a row died before they were ready."""
    _n_crashes: int = 0
    """How many processes in a row died before they had run for `STABLE_AFTER_S`."""

    def note_end(self, *, was_ready: bool, lifetime_s: float) -> float | None:
        """Note that the process has died.

        Args:
            was_ready: whether its start had succeeded.
            lifetime_s: how long it ran, in seconds.

        Returns:
            seconds to wait before the next start; None: give up.
        """
        self.n_failed_starts = 0 if was_ready else self.n_failed_starts + 1
        if self.n_failed_starts >= self.max_failed_starts:
            return None
        self._n_crashes = 1 if lifetime_s >= STABLE_AFTER_S else self._n_crashes + 1
        return restart_pause_s(self._n_crashes, self.first_pause_s)


def restart_pause_s(n_crashes: int, first_s: float) -> float:
    """The pause before the next start, in seconds, after `n_crashes` in a row.

    After the first crash there is none. After the second it is `first_s`, and with each further crash it doubles.
    """
    return 0.0 if n_crashes == 1 else min(first_s * 2.0 ** min(n_crashes - 2, 16), MAX_PAUSE_S)
