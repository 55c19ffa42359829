"""What Prometheus scrapes of one engine and of several."""

from dataclasses import dataclass, replace

from tests.fakes import FakeTranscriber
from tutti_server.app.service.metrics import Metrics
from tutti_server.engine.api import EngineStats


@dataclass(kw_only=True)
class TwoEngines(FakeTranscriber):
    """Two engines, the second of which is down."""

    def stats(self) -> EngineStats:
        one = super().stats()
        first, second = replace(one, running=3, work_waiting_s=0.25), replace(one, windows_done=7, n_engines=0)
        return replace(one, engines={"0": first, "1": second})


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
