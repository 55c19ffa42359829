"""Decides when the engine gives memory that it does not use back to the system: after each load, and during one."""

import time

from tutti_server.engine.runner import Runner

IDLE_S = 2.0
"""After this many seconds without a window, memory that is not in use is given back to the system."""
RETURN_EVERY_S = 60.0
"""During a load that leaves no such pause, it is given back this often, in seconds."""
SLOTS_EVERY_S = 5.0
"""During a load, slots give their memory back that had no window for this long, in seconds."""


class MemoryReturn:
    """Knows since when memory is being taken. The engine's thread uses it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._taking_since_s: float | None = None
        """The time of the first encoder call since memory was last given back, which ends warming up too."""
        self._slots_at_s = 0.0
        """The time at which slots last gave their memory back, during this load."""

    @property
    def max_idle_s(self) -> float | None:
        """The most seconds that the worker may wait for a window before it calls `after_step`; `None` for no limit."""
        return None if self._taking_since_s is None else IDLE_S

    def before_encoding(self, now_s: float) -> None:
        """Note that windows are about to be encoded, which takes memory."""
        if self._taking_since_s is None:
            self._taking_since_s = self._slots_at_s = now_s

    def after_step(self, *, is_idle: bool) -> None:
        """Give memory back if it is time. Idle means that no window came for `max_idle_s`, and none is decoded."""
        if self._taking_since_s is None:
            return
        now_s = time.monotonic()
        if is_idle or now_s > self._taking_since_s + RETURN_EVERY_S:
            self._runner.return_free_memory()
            self._taking_since_s = None
        elif now_s > self._slots_at_s + SLOTS_EVERY_S:
            self._runner.return_unused_slots()
            self._slots_at_s = now_s
