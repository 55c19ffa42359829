"""A day of a fleet that grows and shrinks: sessions follow a curve with two peaks, and an autoscaler follows them."""

import math
from dataclasses import dataclass, field

import numpy as np

from benchmarks.simulation.fleet import SESSION_S, Response

HOURS = 24.0
NIGHT = 0.08
"""Sessions at night, as a share of those at the first peak."""
PEAKS = ((10.5, 0.92, 1.9), (15.0, 0.75, 2.0))
"""The hour of each peak, its height above the night, and its width in hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How an autoscaler adds and removes hosts. All times in seconds."""

    gpus_per_host: int = 8
    target: float = 0.75
    """Sessions per capacity that it aims at."""
    decide_every_s: float = 15.0
    host_start_s: float = 240.0
    """Until a new host runs."""
    model_load_s: float = 60.0
    """Until its engines are ready after that."""
    remove_after_s: float = 600.0
    """Hosts are removed when fewer have been enough for this long."""
    drain_s: float = SESSION_S
    """A host that is removed is paid for this much longer, while its sessions end or move."""


@dataclass(slots=True, kw_only=True)
class Day:
    """The course of a day, one entry for each decision."""

    hours: list[float] = field(default_factory=list)
    sessions: list[float] = field(default_factory=list)
    gpus_ready: list[int] = field(default_factory=list)
    gpus_paid: list[int] = field(default_factory=list)
    interim_p95_s: list[float] = field(default_factory=list)
    final_p95_s: list[float] = field(default_factory=list)
    gpu_hours: float = 0.0
    """GPU hours that are paid for."""
    fixed_gpu_hours: float = 0.0
    """GPU hours of a fleet of constant size that is loaded to the same target at the peak."""
    late_share: float = 0.0
    """The share of session time with more sessions than the GPUs hold."""
    session_hours: float = 0.0


def sessions_at(hour: float, peak: float) -> float:
    """Sessions at an hour of the day, if there are `peak` at the busiest one."""
    return peak * _profile(hour) / _HIGHEST


def _profile(hour: float) -> float:
    return NIGHT + sum(height * math.exp(-(((hour - at) / width) ** 2)) for at, height, width in PEAKS)


_HIGHEST = max(_profile(minute / 60) for minute in range(24 * 60))


def run_day(response: Response, scaling: Scaling, peak: float, *, seed: int = 0) -> Day:
    """Simulate a day. Sessions vary about the curve as independent callers do.

    Args:
        response: what sessions see, by the sessions per GPU.
        scaling: the rule of the autoscaler.
        peak: sessions at the busiest hour.
        seed: of the random numbers.
    """
    random = np.random.default_rng(seed)
    day = Day()
    host_holds = response.held * scaling.gpus_per_host
    fleet = _Fleet(scaling, _hosts_for(sessions_at(0.0, peak), host_holds, scaling))
    fixed = _hosts_for(peak, host_holds, scaling) * scaling.gpus_per_host
    step_h = scaling.decide_every_s / 3600
    # Chance fluctuations last as long as sessions do.
    memory, noise = math.exp(-scaling.decide_every_s / SESSION_S), 0.0
    late_h = 0.0
    for index in range(round(HOURS / step_h)):
        now_s = index * scaling.decide_every_s
        mean = sessions_at(index * step_h, peak)
        noise = memory * noise + math.sqrt(1 - memory**2) * float(random.normal())
        sessions = max(mean + math.sqrt(mean) * noise, 0.0)
        fleet.decide(now_s, _hosts_for(sessions, host_holds, scaling))
        load = sessions / (fleet.n_ready * scaling.gpus_per_host)
        day.hours.append(index * step_h)
        day.sessions.append(sessions)
        day.gpus_ready.append(fleet.n_ready * scaling.gpus_per_host)
        day.gpus_paid.append(fleet.n_paid * scaling.gpus_per_host)
        day.interim_p95_s.append(response.interim_s(load))
        day.final_p95_s.append(response.final_s(load))
        day.session_hours += sessions * step_h
        day.gpu_hours += day.gpus_paid[-1] * step_h
        late_h += sessions * step_h * (load > response.held)
    day.fixed_gpu_hours = fixed * HOURS
    day.late_share = late_h / day.session_hours
    return day


def _hosts_for(sessions: float, host_holds: float, scaling: Scaling) -> int:
    return max(1, math.ceil(sessions / (host_holds * scaling.target)))


class _Fleet:
    """The hosts of a day: ready, starting and draining."""

    def __init__(self, scaling: Scaling, n_ready: int) -> None:
        self.n_ready = n_ready
        self._scaling = scaling
        self._ready_at_s: list[float] = []
        """When each host that starts will be ready, ascending."""
        self._gone_at_s: list[float] = []
        """When each host that drains will be gone, ascending."""
        self._wanted: list[tuple[float, int]] = []
        """How many hosts were wanted at the decisions of the last `remove_after_s`."""

    @property
    def n_paid(self) -> int:
        """Hosts that are paid for."""
        return self.n_ready + len(self._ready_at_s) + len(self._gone_at_s)

    def decide(self, now_s: float, wanted: int) -> None:
        """Start hosts if more are wanted, and let hosts go if fewer have been enough for long."""
        scaling = self._scaling
        n_started = sum(at_s <= now_s for at_s in self._ready_at_s)
        self.n_ready += n_started
        self._ready_at_s = self._ready_at_s[n_started:]
        self._gone_at_s = [at_s for at_s in self._gone_at_s if at_s > now_s]
        self._wanted = [each for each in self._wanted if each[0] > now_s - scaling.remove_after_s] + [(now_s, wanted)]
        have = self.n_ready + len(self._ready_at_s)
        if wanted > have:
            self._ready_at_s += [now_s + scaling.host_start_s + scaling.model_load_s] * (wanted - have)
        most_wanted = max(number for _, number in self._wanted)
        n_spare = min(have - most_wanted, self.n_ready - 1)
        is_known = now_s >= scaling.remove_after_s
        if n_spare > 0 and is_known:
            self.n_ready -= n_spare
            self._gone_at_s += [now_s + scaling.drain_s] * n_spare
