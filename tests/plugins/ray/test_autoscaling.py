"""How many engines the work needs."""

from dataclasses import replace

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.plugins.ray.autoscaling import TARGET_WAITING_S, WorkMeter, n_engines_needed


@pytest.mark.parametrize(
    ("n_running", "waiting_s", "busy", "needed"),
    [
        (1, 0.0, 0.0, 1),  # idle
        (4, 0.0, 0.0, 1),
        (4, 0.1, 2.3, 4),  # as busy as they should be
        (4, 0.1, 1.1, 2),  # too many
        (2, 2.5 * TARGET_WAITING_S, 1.0, 3),  # work waits
        (2, 100.0, 2.0, 4),  # at most twice as many at a time
    ],
)
def test_engines_follow_the_work(n_running: int, waiting_s: float, busy: float, needed: int) -> None:
    """Work that waits asks for more engines; idle time for fewer."""
    assert n_engines_needed(n_running, waiting_s, busy) == needed


def test_an_engine_measures_its_busy_share() -> None:
    """The seconds of the device that its work took, as a share of the time since the last measure."""
    times = iter([0.0, 10.0, 20.0])
    meter, stats = WorkMeter(lambda: next(times)), FakeTranscriber().stats()
    busy = replace(stats, busy_s=4.0)
    assert meter.measure(busy) == {"work_waiting_s": stats.work_waiting_s, "busy_share": pytest.approx(0.4)}
    assert meter.measure(busy)["busy_share"] == 0.0
