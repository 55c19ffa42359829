"""Many hosts, each with some GPUs and gateways of its own: how sessions are spread over them, and what they see.

This model is coarser than `trial.py`. A host is known by what the detailed simulation found for its number of sessions
(`Response`); time goes in steps of one second; sessions come and go at random and stay on their host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.capacity import Level

Counts = NDArray[np.int64]
"""Sessions of each host."""
Place = Callable[[Counts, int, np.random.Generator], Counts]
"""Spreads newcomers over hosts: from the sessions of each and the number of newcomers to the newcomers of each."""
SESSION_S = 300.0
"""Mean length of a session, in seconds."""
MIN_IN_TIME = 0.99
"""A fleet holds its sessions if this share of them is, over time, on hosts that hold theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What the sessions of a host see, by its sessions per GPU."""

    loads: tuple[float, ...]
    """Sessions per GPU, ascending."""
    interim_p95_s: tuple[float, ...]
    final_p95_s: tuple[float, ...]
    interims_of_due: tuple[float, ...]
    held: float
    """The most sessions per GPU that are held."""

    @classmethod
    def of(cls, levels: Sequence[Level], held: float, n_gpus: int) -> "Response":
        """The response that the detailed simulation found for a host with this number of GPUs."""
        ordered = sorted(levels, key=lambda level: level["streams"])
        return cls(
            loads=tuple(level["streams"] / n_gpus for level in ordered),
            interim_p95_s=tuple(level["interim_lag_s"]["p95"] for level in ordered),
            final_p95_s=tuple(level["final_s"]["p95"] for level in ordered),
            interims_of_due=tuple(level["interims_of_due"] for level in ordered),
            held=held / n_gpus,
        )

    def interim_s(self, load: float) -> float:
        """The p95 lag of interims at this many sessions per GPU; beyond the measured ones, that of the last."""
        return float(np.interp(load, self.loads, self.interim_p95_s))

    def final_s(self, load: float) -> float:
        """The same for finals."""
        return float(np.interp(load, self.loads, self.final_p95_s))

    def due(self, load: float) -> float:
        """The interims that come, as a share of those due."""
        return float(np.interp(load, self.loads, self.interims_of_due))


def _at_random(counts: Counts, n: int, random: np.random.Generator) -> Counts:
    return random.multinomial(n, np.full(len(counts), 1 / len(counts)))


def _two_choices(counts: Counts, n: int, random: np.random.Generator) -> Counts:
    pairs = random.integers(len(counts), size=(n, 2))
    # All that come within a second choose by the same counts.
    chosen = pairs[np.arange(n), np.argmin(counts[pairs], axis=1)]
    return np.bincount(chosen, minlength=len(counts))


def _fewest(counts: Counts, n: int, random: np.random.Generator) -> Counts:
    """Give each newcomer to the host that has the fewest sessions by then."""
    order = np.argsort(counts, kind="stable")
    ordered = counts[order]
    sizes = np.arange(1, len(counts) + 1)
    # Filling the hosts up to the level of the next one takes this many newcomers.
    needed = ordered * sizes - np.cumsum(ordered)
    n_filled = int(np.searchsorted(needed, n, side="right"))
    total = int(ordered[:n_filled].sum()) + n
    filled = np.full(n_filled, total // n_filled)
    filled[: total % n_filled] += 1
    placed = np.zeros_like(counts)
    placed[order[:n_filled]] = filled - ordered[:n_filled]
    return placed


PLACES: dict[str, Place] = {"random": _at_random, "two choices": _two_choices, "fewest sessions": _fewest}
"""How a load balancer spreads sessions over hosts, by name."""


def share_in_time(
    n_hosts: int, host_holds: float, n_sessions: int, place: str, *, seed: int = 0, seconds: int = 900
) -> float:
    """The share of session time on hosts that have no more sessions than they hold.

    Args:
        n_hosts: how many hosts.
        host_holds: the most sessions that a host holds.
        n_sessions: the mean number of sessions.
        place: a name of `PLACES`.
        seed: of the random numbers.
        seconds: the time that is simulated, after two mean sessions in which the fleet settles.
    """
    random = np.random.default_rng((seed, n_hosts, n_sessions))
    counts = _fewest(np.zeros(n_hosts, np.int64), n_sessions, random)
    in_time = total = 0
    settle_s = round(2 * SESSION_S)
    for second in range(settle_s + seconds):
        counts = counts - random.binomial(counts, 1 / SESSION_S)
        counts = counts + PLACES[place](counts, int(random.poisson(n_sessions / SESSION_S)), random)
        if second >= settle_s:
            in_time += int(counts[counts <= host_holds].sum())
            total += int(counts.sum())
    return in_time / total


def fleet_holds(n_hosts: int, host_holds: float, place: str, *, seed: int = 0) -> int:
    """The most sessions of a fleet of which `MIN_IN_TIME` are on hosts that hold theirs, to one in two hundred."""
    low, high = 0.5, 1.0
    while high - low > 0.005:
        middle = (low + high) / 2
        n_sessions = round(middle * n_hosts * host_holds)
        if share_in_time(n_hosts, host_holds, n_sessions, place, seed=seed, seconds=300) >= MIN_IN_TIME:
            low = middle
        else:
            high = middle
    return round(low * n_hosts * host_holds)
