"""How long a window takes in each of its stages, as its last event reports."""

import pytest

from tests.engine.engines import done_of, start_engine, window
from tests.engine.fakes import FakeRunner
from tutti_server.engine.api import WindowTiming
from tutti_server.engine.scheduling.request import Milestones


def test_stages_follow_one_another_without_a_gap() -> None:
    reached = Milestones(submitted_s=10.0, encoding_s=11.0, prefill_s=13.0, decoding_s=16.0)
    expected = WindowTiming(queued_s=1.0, encode_s=2.0, prefill_s=3.0, decode_s=4.0)
    assert reached.timing(now_s=20.0) == expected


@pytest.mark.parametrize("fault", [None, "step"])
async def test_a_decoded_window_reports_its_stages(runner: FakeRunner, fault: str | None) -> None:
    """Also one that was decoded again, whose event is equal to the first all the same."""
    if fault:
        runner.single_faults[fault] = RuntimeError("out of memory")
    async with start_engine(runner) as engine:
        done, again = [await done_of(engine, window()) for _ in range(2)]
    assert done == again
    for timing in (done.timing, again.timing):
        assert timing and min(timing.queued_s, timing.encode_s, timing.prefill_s, timing.decode_s) >= 0
