"""What a simulated session asks for, and when."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest

from benchmarks.simulation.clock import Clock
from benchmarks.simulation.engine import Order
from benchmarks.simulation.speakers import Caller, Gateway, Habits, Log, Span, endless_speech
from engine.api import SAMPLE_RATE, Priority

UTTERANCE = (1.0, 4.0)


@dataclass
class Ticket:
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class ScriptedEngine:
    """Answers every window after a time."""

    clock: Clock
    after_s: float
    orders: list[tuple[float, Order, Ticket]] = field(default_factory=list)

    def submit(self, order: Order) -> Ticket:
        ticket = Ticket()
        self.orders.append((self.clock.now_s, order, ticket))
        self.clock.call_after(self.after_s / 2, order.on_started)
        self.clock.call_after(self.after_s, order.on_done)
        return ticket

    def times(self, priority: Priority) -> list[float]:
        return [at_s for at_s, order, _ in self.orders if order.priority is priority]


def run(habits: Habits, after_s: float, *utterances: Span) -> tuple[ScriptedEngine, Log]:
    clock, log = Clock(), Log()
    engine = ScriptedEngine(clock, after_s)
    Caller("one", 0.0, utterances or [UTTERANCE], habits, clock, Gateway(engine.submit), log)
    clock.run_until(20.0)
    return engine, log


def test_interims_follow_the_schedule_of_the_service() -> None:
    """The first after 0.3 s of speech, then one a second, each when its chunk has arrived."""
    engine, log = run(Habits(speculates=False), 0.02)
    assert engine.times(Priority.INTERIM) == pytest.approx([1.3, 2.3, 3.3])
    assert [spoken_s for spoken_s, _ in log.interims] == pytest.approx([1.3, 2.3, 3.3])


def test_a_flush_asks_for_the_final() -> None:
    """It comes 150 ms after the speech, and the window begins before it."""
    engine, log = run(Habits(speculates=False), 0.02)
    (final,) = [(at_s, order) for at_s, order, _ in engine.orders if order.priority is Priority.FINAL]
    assert final[0] == pytest.approx(4.15)
    assert 3.0 < final[1].n_samples / SAMPLE_RATE < 3.5
    assert log.finals[0] == pytest.approx((4.0, 0.17))


def test_silence_asks_for_the_final() -> None:
    """The detector notices the end of speech late; then the silence must pass."""
    engine, _ = run(Habits(speculates=False, silence_s=0.5), 0.02)
    assert engine.times(Priority.FINAL) == pytest.approx([4.6])


def test_a_final_that_was_decoded_ahead_is_there_when_the_utterance_ends() -> None:
    """With 500 ms of silence there is time for it, so there is no other final."""
    engine, log = run(Habits(silence_s=0.5), 0.02)
    assert (len(engine.times(Priority.SPECULATIVE)), engine.times(Priority.FINAL)) == (1, [])
    assert log.finals[0] == pytest.approx((4.0, 0.6))


def test_a_slow_engine_is_spared() -> None:
    """Where decoding ahead comes too late again and again, most utterances go without."""
    habits = Habits(chunk_s=0.02)
    utterances = [(10.0 * i / 10 + 0.5, 10.0 * i / 10 + 0.8) for i in range(10)]
    engine, log = run(habits, 0.4, *utterances)
    assert len(log.finals) == 10
    assert 1 <= len(engine.times(Priority.SPECULATIVE)) <= 5


def test_speech_fills_its_share_of_the_time() -> None:
    """Over a long time, with random pauses that are never shorter than in calls."""
    spans = endless_speech((2.0, 4.0), 0.4, np.random.default_rng(5))
    first = [next(spans) for _ in range(4_000)]
    assert sum(end - start for start, end in first) / first[-1][1] == pytest.approx(0.4, rel=0.05)
    pauses = [following[0] - span[1] for span, following in itertools.pairwise(first)]
    assert min(pauses) >= 1.0


def test_more_speech_than_pauses_allow_is_refused() -> None:
    with pytest.raises(ValueError, match=r"talk: expected at most 0\.75, got 0\.9"):
        next(endless_speech((3.0,), 0.9, np.random.default_rng(0)))
