"""Memory of buffers that is given back slot by slot. `test_kv_cache.py` has it with the cache's own buffers."""

import torch

from tutti_server.engine.model.host_memory import HostMemory

CPU = torch.device("cpu")
SHAPE = (2, 3, 4_096)
"""Two parts, three slots, and four pages of float32 in each slot."""


def test_memory_that_is_given_back_is_zero_and_that_of_used_slots_stays() -> None:
    memory = HostMemory(3, n_parts=2)
    buffer = memory.zeros(SHAPE, CPU, torch.float32)
    buffer.fill_(1.0)
    for slot in range(3):
        memory.use(slot)
    assert memory.give_back({1}, keeps_recent=True) == 0
    assert bool((buffer == 1.0).all())
    assert memory.give_back({1}, keeps_recent=False) == 2
    assert buffer.amax(-1).tolist() == [[0.0, 1.0, 0.0]] * 2
    assert buffer.amin(-1).tolist() == [[0.0, 1.0, 0.0]] * 2


def test_without_buffers_on_the_host_nothing_is_given_back() -> None:
    memory = HostMemory(3, n_parts=2)
    memory.use(0)
    assert memory.give_back(set(), keeps_recent=False) == 0
