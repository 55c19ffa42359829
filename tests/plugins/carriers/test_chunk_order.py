"""Chunks leave in order, and a lost one holds up no more than a few."""

from hypothesis import given
from hypothesis import strategies as st

from tests.compat.conformance import supported
from tutti_server.plugins.carriers.telnyx import MAX_HELD, Chunk, ChunkOrder


def chunk(number: int) -> Chunk:
    return Chunk(number, 20 * number, bytes([number % 256]))


@supported("telnyx", "media out of order")
@given(st.data())
def test_chunks_that_arrive_within_a_few_of_their_turn_leave_in_order(data: st.DataObject) -> None:
    """Each block of a few is shuffled; the first chunk of all comes first."""
    numbers = [1]
    for first in range(2, 52, MAX_HELD):
        numbers += data.draw(st.permutations(range(first, first + MAX_HELD)))
    order = ChunkOrder()
    left = [each for number in numbers for each in order.add(chunk(number))]
    assert left == [chunk(number) for number in range(1, 52)]
    assert order.finish() == []


def test_a_lost_chunk_holds_up_a_few() -> None:
    order = ChunkOrder()
    assert order.add(chunk(1)) == [chunk(1)]
    for number in range(3, 3 + MAX_HELD):
        assert order.add(chunk(number)) == []
    assert order.add(chunk(3 + MAX_HELD)) == [chunk(number) for number in range(3, 4 + MAX_HELD)]
    assert order.add(chunk(2)) == [chunk(2)]
