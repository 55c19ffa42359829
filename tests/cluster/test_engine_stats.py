"""The counters of several engines, added up."""

from dataclasses import replace

from tests.fakes import FakeTranscriber
from tutti_server.engine.api import GpuStats, Histogram
from tutti_server.engine.engine_stats import add_up, without_work

ENGINE = replace(
    FakeTranscriber().stats(),
    running=2,
    work_waiting_s=0.5,
    utterance_encode_s=0.25,
    encode_s=Histogram((1.0, 2.0), (1, 2, 3), 9.0),
)


def test_counts_are_added_and_the_times_of_a_window_are_means() -> None:
    other = replace(ENGINE, running=3, utterance_encode_s=0.75, encode_s=Histogram((1.0, 2.0), (4, 0, 1), 5.5))
    total = add_up({"0": ENGINE, "1": other})
    assert (total.running, total.work_waiting_s, total.n_engines) == (5, 1.0, 2)
    assert total.utterance_encode_s == 0.5
    assert total.encode_s == Histogram((1.0, 2.0), (5, 2, 4), 14.5)
    assert total.engines == {"0": ENGINE, "1": other}


def test_an_engine_that_is_down_counts_but_is_not_measured() -> None:
    """Its counters are what it did; the time that it needed for a window says nothing of those that are up."""
    down = replace(ENGINE, n_engines=0, utterance_encode_s=8.0, windows_done=7)
    total = add_up({"0": down, "1": ENGINE})
    assert (total.windows_done, total.n_engines, total.utterance_encode_s) == (7, 1, 0.25)


def test_one_engine_is_its_own_total() -> None:
    assert add_up({"0": ENGINE}) is ENGINE


def test_gpus_are_those_of_each_engine() -> None:
    """A total has none, and an engine that has ended has none."""
    with_gpu = replace(ENGINE, gpu=GpuStats(memory_total_bytes=8, memory_reserved_bytes=3))
    total = add_up({"0": with_gpu, "1": ENGINE})
    assert total.gpu is None and total.engines["0"].gpu == with_gpu.gpu
    assert without_work(with_gpu).gpu is None
