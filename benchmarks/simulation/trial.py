"""One run of the simulation: a number of sessions on a number of engines, and its figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.service.interim_load import InterimLoad
from benchmarks.live_capacity import holds
from benchmarks.scoring import summary
from benchmarks.simulation.clock import Clock
from benchmarks.simulation.engine import SimulatedEngine
from benchmarks.simulation.pool import Pool
from benchmarks.simulation.routing import OURS, POLICIES
from benchmarks.simulation.speakers import Caller, Gateway, Habits, Log, Span, endless_speech
from benchmarks.simulation.stage_times import StageTimes
from engine.api import Histogram
from engine.config import EngineConfig

HOP_S = 0.003
"""Seconds from a client's chunk to the engine's queue, and from the engine's answer to the client, in one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is simulated."""

    times: StageTimes
    config: EngineConfig
    habits: Habits = field(default_factory=Habits)
    n_engines: int = 1
    n_gateways: int = 4
    """Gateways, which choose engines each by itself; sessions are spread evenly over them."""
    policy: str = OURS
    """A name of `POLICIES`."""
    hop_s: float = HOP_S
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Who calls, and which part of the time is measured. Times in seconds."""

    calls: Sequence[tuple[float, Iterable[Span]]]
    """When each caller begins, and what it says."""
    measured: tuple[float, float]
    """Latencies cover speech between these times."""


class Trial:
    """The clock, the engines and the callers of one run."""

    def __init__(self, setup: Setup, load: Load) -> None:
        self.clock = Clock()
        self.log = Log()
        gateways = range(setup.n_gateways)
        random = np.random.default_rng(setup.seed)
        policies = [POLICIES[setup.policy](number, setup.n_gateways, random) for number in gateways]
        self.pool = Pool(self.clock, self._make_engine(setup), setup.n_engines, policies, setup.hop_s)
        self._setup = setup
        self._load = load
        gateways_of = [self._gateway(number) for number in gateways]
        for number, (begin_s, utterances) in enumerate(load.calls):
            gateway = gateways_of[number % len(gateways_of)]
            Caller(str(number), begin_s, utterances, setup.habits, self.clock, gateway, self.log)

    def _gateway(self, number: int) -> Gateway:
        """A gateway, which thins out interims as the service does while engines have no time for all of them."""
        usual_s = self._setup.habits.interim_interval_s
        interims = InterimLoad(self.pool.stats, usual_s, lambda: self.clock.now_s)
        return Gateway(self.pool.gateway(number), interims.extra_s)

    def _make_engine(self, setup: Setup) -> Callable[[], SimulatedEngine]:
        return lambda: SimulatedEngine(self.clock, setup.times, setup.config)

    def run(self) -> dict[str, Any]:
        """Run to the end of the measured time. Returns figures under the names that `benchmarks.live_capacity` uses."""
        begin_s, end_s = self._load.measured
        self.clock.run_until(end_s + 2.0)
        interims = [lag_s for spoken_s, lag_s in self.log.interims if begin_s <= spoken_s < end_s]
        finals = [lag_s for spoken_s, lag_s in self.log.finals if begin_s <= spoken_s < end_s]
        n_sessions, habits = len(self._load.calls), self._setup.habits
        level = {
            "streams": n_sessions,
            "interim_lag_s": summary(interims),
            "final_s": summary(finals),
            "interims_of_due": len(interims) * habits.interim_interval_s / habits.talk / (end_s - begin_s) / n_sessions,
            "refused": 0,
            "failed": self.log.n_sessions_ended,
            "finals_missing": 0,
            "engine": self._engine_figures(),
            "generator": {"was_late": False},
        }
        return {**level, "holds": holds(level)}

    def _engine_figures(self) -> dict[str, float]:
        stats = [engine.stats() for engine in self.pool.engines.values()]
        return {
            "encode_batch": _mean([each.encode_batch for each in stats]),
            "encode_s": _mean([each.encode_s for each in stats]),
            "decode_batch": _mean([each.decode_batch for each in stats]),
            "step_s": _mean([each.step_s for each in stats]),
            "final_queue_s": _mean([each.final_queue_s for each in stats]),
            "interim_queue_s": _mean([each.interim_queue_s for each in stats]),
            "windows_done": sum(each.windows_done for each in stats),
            "speculative_used": self.log.n_speculative,
        }


def _mean(histograms: list[Histogram]) -> float:
    count = sum(sum(each.counts) for each in histograms)
    return sum(each.total for each in histograms) / count if count else 0.0


def steady_load(n_sessions: int, habits: Habits, lengths_s: Sequence[float], seconds: float, seed: int) -> Load:
    """Callers that have begun and go on; their first seconds are not measured."""
    warm_up_s = 10.0
    random = np.random.default_rng((seed, n_sessions))
    calls = [
        (float(begin_s), endless_speech(lengths_s, habits.talk, np.random.default_rng((seed, n_sessions, number))))
        for number, begin_s in enumerate(random.uniform(0, 2.0, n_sessions))
    ]
    return Load(calls=calls, measured=(warm_up_s, warm_up_s + seconds))
