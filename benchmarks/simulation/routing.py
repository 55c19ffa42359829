"""Policies by which a gateway chooses one of several engines: the service's own, and others to compare it with.

Each gateway has a policy of its own. It knows what engines have reported and what this gateway sent to them since.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from cluster.balancing import Balancer
from engine.api import EngineStats, Priority


class Policy(Protocol):
    """Chooses engines for the windows of one gateway; see `cluster.balancing.Balancer`."""

    def note_report(self, engine: str, stats: EngineStats, now_s: float) -> None:
        """Note the newest counters of an engine."""
        ...

    def note_sent(self, engine: str, priority: Priority) -> None:
        """Note that a window was sent to an engine."""
        ...

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return one of the engines that are up."""
        ...


class _Blind:
    """A policy that knows nothing of engines."""

    def note_report(self, engine: str, stats: EngineStats, now_s: float) -> None:
        """Ignore the report."""

    def note_sent(self, engine: str, priority: Priority) -> None:
        """Ignore the window."""


class Random(_Blind):
    """Any engine."""

    def __init__(self, gateway: int, random: np.random.Generator) -> None:
        self._random = random

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return an engine taken at random."""
        return engines[int(self._random.integers(len(engines)))]


class RoundRobin(_Blind):
    """One engine after another; each gateway begins with another one."""

    def __init__(self, gateway: int, random: np.random.Generator) -> None:
        self._next = gateway

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return the engine whose turn it is."""
        self._next += 1
        return engines[self._next % len(engines)]


class LeastReported:
    """The engine that reported the least work. Until the next reports, all windows go there."""

    def __init__(self, gateway: int, random: np.random.Generator) -> None:
        self._reported_s: dict[str, float] = {}

    def note_report(self, engine: str, stats: EngineStats, now_s: float) -> None:
        """Note the work that waits."""
        self._reported_s[engine] = stats.work_waiting_s

    def note_sent(self, engine: str, priority: Priority) -> None:
        """Ignore the window."""

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return the engine with the least work."""
        return min(engines, key=self._reported_s.__getitem__)


class LeastWork(LeastReported):
    """The engine with the least work: what it reported, and what this gateway has sent to it since."""

    def __init__(self, gateway: int, random: np.random.Generator) -> None:
        super().__init__(gateway, random)
        self._window_s: dict[str, float] = {}

    def note_report(self, engine: str, stats: EngineStats, now_s: float) -> None:
        """Note the work that waits, and how much one more window is."""
        super().note_report(engine, stats, now_s)
        self._window_s[engine] = stats.utterance_encode_s + stats.window_decode_s

    def note_sent(self, engine: str, priority: Priority) -> None:
        """Add a window to the work."""
        self._reported_s[engine] += self._window_s[engine]


class TwoChoices(LeastWork):
    """Of two engines taken at random, the one with less work."""

    def __init__(self, gateway: int, random: np.random.Generator) -> None:
        super().__init__(gateway, random)
        self._random = random

    def choose(self, engines: Sequence[str], priority: Priority, now_s: float) -> str:
        """Return the better one of two engines."""
        pair = self._random.choice(len(engines), size=2, replace=False)
        return super().choose([engines[int(each)] for each in pair], priority, now_s)


MakePolicy = Callable[[int, int, np.random.Generator], Policy]
"""Makes the policy of a gateway: from its number, the number of gateways, and a source of random numbers."""
OURS = "pack, then spill"
POLICIES: dict[str, MakePolicy] = {
    "random": lambda gateway, n_gateways, random: Random(gateway, random),
    "round robin": lambda gateway, n_gateways, random: RoundRobin(gateway, random),
    "least reported work": lambda gateway, n_gateways, random: LeastReported(gateway, random),
    "least work": lambda gateway, n_gateways, random: LeastWork(gateway, random),
    "two choices": lambda gateway, n_gateways, random: TwoChoices(gateway, random),
    OURS: lambda gateway, n_gateways, random: Balancer(gateway, n_gateways),
}
"""The policies by name; the last one is the service's."""
