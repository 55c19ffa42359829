"""Counts of a gateway that has died: some are kept for a while, some always."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from tutti_server.cluster.local.shared_counts import COUNT_BYTES, Counts, SharedCounts, counts_in
from tutti_server.cluster.local.shared_memory import create_shared_memory

SHAPE = (3, 2)


def keep(counts: Counts) -> tuple[Counts, Counts]:
    """Keep the first count for a while, and the second one always."""
    return counts * np.array([1, 0]), counts * np.array([0, 1])


@pytest.fixture
def shared() -> Iterator[SharedCounts]:
    with create_shared_memory(SHAPE[0] * SHAPE[1] * COUNT_BYTES) as memory:
        shared = SharedCounts(memory, SHAPE, keep, 0.0)
        yield shared
        shared.close()


def rows(shared: SharedCounts) -> list[list[int]]:
    return counts_in(shared.memory, SHAPE).tolist()  # type: ignore[no-any-return]  # NumPy does not say what it is


async def test_what_is_kept_of_a_gateway_is_in_the_last_row(shared: SharedCounts) -> None:
    """The next gateway in its place begins with 0; after a while only what counts always is left."""
    counts_in(shared.memory, SHAPE)[:] = [[4, 7], [1, 2], [0, 0]]
    shared.note_end(0)
    assert rows(shared) == [[0, 0], [1, 2], [4, 7]]
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, over.set)
    await over.wait()
    assert rows(shared) == [[0, 0], [1, 2], [0, 7]]
