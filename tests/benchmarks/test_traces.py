"""The benchmark of traces: its engine is one to a session, and its table compares with no traces."""

from benchmarks.traces import SAMPLERS, InstantEngine, table
from engine import api
from tests.fakes import speech


async def test_the_engine_answers_every_window_with_text_and_times() -> None:
    engine = InstantEngine()
    async with engine.submit(api.Window(samples=speech([1, 2]), session="s")) as events:
        *_, done = [event async for event in events]
    assert isinstance(done, api.DoneEvent)
    assert done.text == done.segments[0].text == "".join(piece.text for piece in done.pieces)
    assert done.timing and done.segments[0].end_s == 0.56
    assert engine.stats().windows_done == 1


def test_the_median_of_each_kind_is_compared_with_none() -> None:
    found = dict(zip(SAMPLERS, ([2.0, 2.5, 9.0], [2.5, 2.5, 2.5], [5.0, 4.0, 6.0]), strict=True))
    rows = table(found, 2.5).rows
    assert rows[0] == ("off", "2.50", "2.00", "9.00", "400", "1.00")
    assert [row[-1] for row in rows] == ["1.00", "1.00", "2.00"]
