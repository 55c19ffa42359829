"""What Prometheus scrapes of one engine and of several."""

import multiprocessing
import os
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes import FakeTranscriber
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.process_metrics import ProcessMetrics, note_process
from tutti_server.engine.api import EngineStats, GpuStats


@dataclass(kw_only=True)
class TwoEngines(FakeTranscriber):
    """Two engines, the second of which is down, and one of which nothing else is known."""

    def stats(self) -> EngineStats:
        one = super().stats()
        first, second = replace(one, running=3, work_waiting_s=0.25), replace(one, windows_done=7, n_engines=0)
        return replace(one, engines={"0": first, "1": second}, unknown=("2",))


def test_a_single_engine_has_no_label() -> None:
    page = Metrics(FakeTranscriber(n_open=2)).render().decode()
    assert "\ntutti_engine_up 1.0\n" in page and "\ntutti_engine_work_seconds 0.004\n" in page
    assert 'tutti_engine_windows_total{how="done"} 0.0' in page
    assert "engine=" not in page


def test_each_of_several_engines_has_its_label() -> None:
    page = Metrics(TwoEngines()).render().decode()
    for line in (
        'tutti_engine_up{engine="0"} 1.0',
        'tutti_engine_up{engine="1"} 0.0',
        'tutti_engine_running{engine="0"} 3.0',
        'tutti_engine_work_seconds{engine="0"} 0.25',
        'tutti_engine_windows_total{engine="1",how="done"} 7.0',
        'tutti_engine_step_seconds_count{engine="1"} 0.0',
    ):
        assert f"\n{line}\n" in page
    assert "tutti_engine_up 1" not in page
    assert [line for line in page.splitlines() if 'engine="2"' in line] == ['tutti_engine_up{engine="2"} 0.0']


def test_a_page_shows_its_process_and_not_when_series_began() -> None:
    """`_created` series would double the page."""
    page = Metrics(FakeTranscriber()).render().decode()
    assert "_created" not in page
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "max_fds"):
        assert f'process_{name}{{process="server"}}' in page


def test_processes_that_are_noted_are_shown_by_their_names(tmp_path: Path) -> None:
    """And nothing of one that has ended."""
    note_process(str(tmp_path))
    (tmp_path / "gateway-0.pid").write_text(str(os.getppid()))
    (tmp_path / "gateway-1.pid").write_text(str(2**31 - 1))
    metrics = {metric.name: metric for metric in ProcessMetrics(str(tmp_path)).collect()}
    named = {sample.labels["process"] for metric in metrics.values() for sample in metric.samples}
    assert named == {multiprocessing.current_process().name, "gateway-0"}
    assert len(metrics["process_resident_memory_bytes"].samples) == 2


@dataclass(kw_only=True)
class OneGpuOfTwo(FakeTranscriber):
    """Two engines, the first of which has a GPU whose driver tells some figures."""

    def stats(self) -> EngineStats:
        one = super().stats()
        gpu = GpuStats(memory_total_bytes=8, memory_reserved_bytes=3, utilization=0.25)
        return replace(one, engines={"0": replace(one, gpu=gpu), "1": one})


def test_a_gpu_is_shown_as_far_as_it_is_known() -> None:
    page = Metrics(OneGpuOfTwo()).render().decode()
    shown = [line for line in page.splitlines() if line.startswith("tutti_engine_gpu")]
    assert shown == [
        'tutti_engine_gpu_memory_total_bytes{engine="0"} 8.0',
        'tutti_engine_gpu_memory_reserved_bytes{engine="0"} 3.0',
        'tutti_engine_gpu_utilization_ratio{engine="0"} 0.25',
    ]
    assert "power" not in page and "temperature" not in page
