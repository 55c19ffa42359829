"""How long a window takes in each of its stages, as its last event reports."""

import numpy as np
import pytest

from tests.engine.engines import collect, start_engine
from tests.engine.fakes import FakeRunner
from tutti_server.engine.api import DoneEvent, Window, WindowTiming
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.scheduling.request import Milestones


def test_stages_follow_one_another_without_a_gap() -> None:
    reached = Milestones(submitted_s=10.0, encoding_s=11.0, prefill_s=13.0, decoding_s=16.0)
    expected = WindowTiming(queued_s=1.0, encode_s=2.0, prefill_s=3.0, decode_s=4.0)
    assert reached.timing(now_s=20.0) == expected


@pytest.mark.parametrize("fault", [None, "step"])
async def test_a_decoded_window_reports_its_stages(small_checkpoint: Checkpoint, fault: str | None) -> None:
    """Also one that was decoded again, whose event is equal to the first all the same."""
    tokenizer = small_checkpoint.tokenizer
    tokens = [tokenizer.first_timestamp, *tokenizer.encode(" good morning"), tokenizer.first_timestamp + 25]
    runner = FakeRunner(small_checkpoint, lambda _: iter([*tokens, *[tokenizer.eot] * 9]))
    if fault:
        runner.single_faults[fault] = RuntimeError("out of memory")
    async with start_engine(runner) as engine:
        *_, done = await collect(engine, Window(samples=np.zeros(16_000, np.float32), session="s"))
        *_, again = await collect(engine, Window(samples=np.zeros(16_000, np.float32), session="s"))
    assert isinstance(done, DoneEvent) and isinstance(again, DoneEvent)
    assert done == again
    for timing in (done.timing, again.timing):
        assert timing and min(timing.queued_s, timing.encode_s, timing.prefill_s, timing.decode_s) >= 0
