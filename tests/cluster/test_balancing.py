"""The choice among engines: full batches at low load, the shortest wait above it, and no herd of gateways."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.cluster.balancing import FULL_AT_S, LATE_REPORT_S, Balancer
from tutti_server.engine.api import EngineStats, Priority

WINDOW_S = 0.01
IDLE = replace(FakeTranscriber().stats(), utterance_encode_s=0.6 * WINDOW_S, window_decode_s=0.4 * WINDOW_S)
ENGINES = ("0", "1", "2")


def report(all_s: float, final_s: float | None = None) -> EngineStats:
    return replace(IDLE, work_waiting_s=all_s, final_work_waiting_s=all_s if final_s is None else final_s)


def balancer_of(*reports: EngineStats, gateway: int = 0, n_gateways: int = 1) -> Balancer:
    balancer = Balancer(gateway, n_gateways)
    for engine, stats in zip(ENGINES, reports, strict=False):
        balancer.note_report(engine, stats, 0.0)
    return balancer


def send(balancer: Balancer, now_s: float = 0.0, priority: Priority = Priority.FINAL, n_engines: int = 3) -> str:
    engine = balancer.choose(ENGINES[:n_engines], priority, now_s)
    balancer.note_sent(engine, priority)
    return engine


def test_at_low_load_the_first_engine_gets_all_windows() -> None:
    """Until so much waits there that a window had to wait for longer than `FULL_AT_S`."""
    balancer = balancer_of(report(0.0), report(0.0), report(0.0))
    n_full = round(FULL_AT_S / WINDOW_S)
    assert [send(balancer) for _ in range(2 * n_full)] == ["0"] * n_full + ["1"] * n_full


def test_what_was_sent_counts_until_the_next_report() -> None:
    """And work that the engine has had time for does not."""
    balancer = balancer_of(report(0.2), report(0.2 + 1.5 * WINDOW_S), report(9.0))
    assert [send(balancer) for _ in range(4)] == ["0", "0", "1", "0"]
    balancer.note_report("0", report(0.2), 0.0)
    assert send(balancer) == "0"
    assert send(balancer, now_s=0.2) == "0"


def test_waiting_interims_delay_interims_and_files_more_than_finals() -> None:
    """A final of a live session overtakes the interims and files that wait."""
    balancer = balancer_of(report(1.0, final_s=0.1), report(0.5, final_s=0.5))
    assert send(balancer, priority=Priority.FINAL, n_engines=2) == "0"
    assert send(balancer, priority=Priority.SPECULATIVE, n_engines=2) == "0"
    assert send(balancer, priority=Priority.INTERIM, n_engines=2) == "1"
    assert send(balancer, priority=Priority.FILE, n_engines=2) == "1"
    balancer = balancer_of(report(0.4), report(0.4))
    assert [send(balancer, priority=Priority.FILE, n_engines=2) for _ in range(2)] == ["0", "1"]
    assert send(balancer, priority=Priority.FINAL, n_engines=2) == "0"


def test_of_equal_engines_each_gateway_prefers_another() -> None:
    chosen = [send(balancer_of(*[report(0.5)] * 3, gateway=gateway)) for gateway in range(4)]
    assert chosen == ["0", "1", "2", "0"]


def test_an_engine_that_stops_reporting_gets_nothing_while_others_report() -> None:
    """It may stand still: its report of an empty queue is old."""
    balancer = balancer_of(report(0.0), report(0.3))
    balancer.note_report("1", report(0.3), LATE_REPORT_S)
    assert send(balancer, LATE_REPORT_S, n_engines=2) == "0"
    assert send(balancer, LATE_REPORT_S + 0.01, n_engines=2) == "1"


@dataclass
class Simulated:
    """What came of a simulation."""

    skew_s: float
    """The largest difference between the waiting work of two engines, in seconds."""
    shares: list[float]
    """The part of all windows that each engine got."""


def simulate(n_engines: int, n_gateways: int, load: float) -> Simulated:
    """Send windows for 10 s, at random times, by reports that come every half second, to each gateway at other times.

    Args:
        n_engines: engines that do a second of work in a second.
        n_gateways: gateways that send.
        load: the fraction of the engines' time that the windows need.
    """
    random, step_s, report_every_s = Random(0), 0.001, 0.5
    work = [0.0] * n_engines
    n_sent = [0] * n_engines
    names = [str(engine) for engine in range(n_engines)]
    gateways = [(random.random() * report_every_s, Balancer(number, n_gateways)) for number in range(n_gateways)]
    skew_s = 0.0
    for now_s in (step * step_s for step in range(10_000)):
        for offset_s, balancer in gateways:
            if now_s == 0 or (now_s + offset_s) % report_every_s < step_s:
                for engine, waiting_s in zip(names, work, strict=True):
                    balancer.note_report(engine, report(waiting_s), now_s)
        # Several windows may come in one step.
        for _ in range(sum(random.random() < load * n_engines * step_s / WINDOW_S / 10 for _ in range(10))):
            _, balancer = random.choice(gateways)
            engine = balancer.choose(names, Priority.FINAL, now_s)
            balancer.note_sent(engine, Priority.FINAL)
            work[int(engine)] += WINDOW_S
            n_sent[int(engine)] += 1
        work = [max(0.0, each - step_s) for each in work]
        skew_s = max(skew_s, max(work) - min(work))
    return Simulated(skew_s, [n / sum(n_sent) for n in n_sent])


@pytest.mark.parametrize(("n_engines", "n_gateways"), [(2, 4), (8, 8)])
def test_gateways_with_old_reports_do_not_herd(n_engines: int, n_gateways: int) -> None:
    """Near full load the work of two engines differs by less than what comes between two reports."""
    near_full = simulate(n_engines, n_gateways, load=0.97)
    assert near_full.skew_s < 0.2
    assert min(near_full.shares) > 0.8 / n_engines


@pytest.mark.parametrize(("n_engines", "n_gateways"), [(2, 4), (8, 8)])
def test_few_engines_do_the_work_of_a_low_load(n_engines: int, n_gateways: int) -> None:
    """The load of half an engine goes to one engine, but for what would wait there."""
    assert simulate(n_engines, n_gateways, load=0.5 / n_engines).shares[0] > 0.9
