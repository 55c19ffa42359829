"""The simulation loses no window and no work, depends on its seed alone, and agrees with what is known of queues."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.simulation.clock import Clock
from benchmarks.simulation.engine import Order, SimulatedEngine
from benchmarks.simulation.routing import OURS, POLICIES
from benchmarks.simulation.speakers import Habits
from benchmarks.simulation.stage_times import H200, Curve, StageTimes, read_times
from benchmarks.simulation.trial import Load, Setup, Trial, steady_load
from engine.api import SAMPLE_RATE, Priority
from engine.config import EngineConfig

LENGTHS_S = (2.0, 3.0, 5.0)


def setup(n_engines: int = 1, **changes: Any) -> Setup:
    config = EngineConfig(audio_context="interims", max_encode_batch=16)
    return replace(
        Setup(times=read_times(H200, "random:turbo", 16), config=config, n_engines=n_engines, n_gateways=2), **changes
    )


def load(n_sessions: int = 40, seconds: float = 6.0, seed: int = 1) -> Load:
    return steady_load(n_sessions, Habits(), LENGTHS_S, seconds, seed)


def window(session: str, priority: Priority, log: list[str]) -> Order:
    return Order(
        session=session,
        priority=priority,
        n_samples=4 * SAMPLE_RATE,
        n_steps=20,
        on_started=lambda: None,
        on_done=lambda: log.append("done"),
        on_dropped=lambda: log.append("dropped"),
    )


@pytest.mark.parametrize("n_engines", [1, 3])
def test_every_window_ends_once_and_every_utterance_has_a_final(n_engines: int) -> None:
    """After the last utterance nothing is open, and each window was answered, dropped or withdrawn once."""
    trial = Trial(
        setup(n_engines), Load(calls=[(0.01 * i, [(0.5, 2.5), (4.0, 7.0)]) for i in range(60)], measured=(0, 9))
    )
    trial.run()
    assert trial.log.n_utterances == 120
    assert len(trial.log.finals) == 120
    assert trial.pool.n_submitted == trial.pool.n_ended
    assert [engine.n_open for engine in trial.pool.engines.values()] == [0] * n_engines


def test_work_served_is_work_offered() -> None:
    """All steps that decoded windows need were taken, and no more: a window takes part in as many as it needs."""
    clock, log = Clock(), list[str]()
    engine = SimulatedEngine(clock, setup().times, setup().config)
    for number in range(30):
        engine.submit(window(str(number), Priority.FINAL, log))
    clock.run_until(10.0)
    stats = engine.stats()
    assert log == ["done"] * 30
    assert (stats.windows_done, stats.tokens_decoded) == (30, 30 * 20)
    assert stats.encode_batch.total == 30
    assert stats.work_waiting_s == 0


def test_a_run_depends_on_its_seed_alone() -> None:
    """The same seed gives the same figures; another one gives other callers."""
    first, again, other = (Trial(setup(2), load(seed=seed)).run() for seed in (1, 1, 2))
    assert first == again
    assert first["interim_lag_s"] != other["interim_lag_s"]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != OURS])
def test_policies_are_equal_where_there_is_nothing_to_choose(policy: str) -> None:
    """With one engine the policy does not matter."""
    assert Trial(setup(policy=policy), load(20, 2.0)).run() == Trial(setup(), load(20, 2.0)).run()


def test_sessions_on_more_engines_than_they_need_wait_less() -> None:
    """Interims of 50 sessions are newer with two slow engines than with one, which is beyond its limit."""
    encode, prefill, step = Curve((1.0, 8.0), (50.0, 350.0)), Curve((1.0,), (5.0,)), Curve((1.0,), (1.0,))
    times = StageTimes(encode, prefill, step, 16)
    config = EngineConfig(audio_context="full", max_encode_batch=16)
    one, two = (Trial(setup(n_engines, config=config, times=times), load(50)).run() for n_engines in (1, 2))
    assert one["interims_of_due"] < two["interims_of_due"]
    assert two["interim_lag_s"]["p95"] < one["interim_lag_s"]["p95"]


def test_a_single_server_queue_waits_as_the_formula_says() -> None:
    """Windows one at a time, at random moments: the mean wait is that of M/D/1, load * time / (2 * (1 - load))."""
    # The encoder takes a small part, because the worker notices its end up to 1 ms late.
    encode, prefill, step = (Curve((1.0, 2.0), (ms, ms)) for ms in (3.0, 50.0, 50.0))
    times = StageTimes(encode, prefill, step, 1)
    # No window joins an encoder call that is under way.
    config = EngineConfig(
        max_encode_batch=1, max_wait_ms=0.0, max_decode_stall_ms=0.0, min_decode_share=0.0, max_waiting=100_000
    )

    def times_in_engine_s(arrivals_s: Sequence[float]) -> list[float]:
        clock, found = Clock(), list[float]()
        engine = SimulatedEngine(clock, times, config)

        def arrive() -> None:
            arrived_s = clock.now_s
            order = replace(window("one", Priority.FINAL, []), n_steps=1)
            engine.submit(replace(order, on_done=lambda: found.append(clock.now_s - arrived_s)))

        for at_s in arrivals_s:
            clock.call_at(at_s, arrive)
        clock.run_until(1e6)
        return found

    (service_s,) = times_in_engine_s([1.0])
    utilisation, n = 0.6, 4_000
    found = times_in_engine_s(np.cumsum(np.random.default_rng(4).exponential(service_s / utilisation, n)).tolist())
    assert len(found) == n
    mean_wait_s = np.mean(found) - service_s
    assert mean_wait_s == pytest.approx(utilisation * service_s / (2 * (1 - utilisation)), rel=0.1)


def test_finals_of_an_engine_that_goes_come_from_another() -> None:
    """No session ends, and no utterance stays without a final, when one of two engines goes under load."""
    trial = Trial(setup(2), Load(calls=[(0.005 * i, [(0.5, 2.5), (4.0, 7.0)]) for i in range(80)], measured=(0, 9)))
    for at_s in (2.75, 2.85, 2.95):
        trial.clock.call_at(at_s, lambda: trial.pool.lose(next(iter(trial.pool.engines)), 0.05))
    trial.run()
    assert trial.pool.n_again > 0
    assert len(trial.log.finals) == trial.log.n_utterances == 160
    assert trial.log.n_sessions_ended == 0
    assert trial.pool.n_submitted == trial.pool.n_ended


def test_finals_wait_while_no_engine_is_up() -> None:
    """When the only engine goes, the finals come from the one that takes its place."""
    trial = Trial(setup(), Load(calls=[(0.0, [(0.5, 2.5)])], measured=(0, 9)))
    trial.clock.call_at(2.0, lambda: trial.pool.lose("0", 3.0))
    trial.run()
    assert [spoken_s for spoken_s, _ in trial.log.finals] == [2.5]
    assert trial.log.finals[0][1] == pytest.approx(2.5, abs=0.3)


def test_a_full_queue_leaves_out_interims_and_no_final() -> None:
    """As in the service: a final always has room."""
    config = replace(setup().config, max_waiting=1)
    trial = Trial(setup(config=config), Load(calls=[(0.0, [(0.5, 2.5), (4.0, 5.0)])] * 40, measured=(0, 9)))
    level = trial.run()
    assert len(trial.log.finals) == trial.log.n_utterances == 80
    assert level["failed"] == 0
