"""The static memory of the decoder: keys and values of every slot, and who holds which slot."""

import heapq
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.checkpoint.checkpoint import ModelConfig
from engine.model.host_transfer import to_device
from engine.model.packing import Run

Rows = slice | Tensor
"""Slots, in order: a slice where they are consecutive, so that indexing gives a view, else an index tensor."""


class KVCache:
    """Self- and cross-attention keys and values of all slots.

    Buffers are allocated once, as zeros, and never cleared. What lies beyond a slot's lengths is left over from earlier
    windows: attention masks it, which needs it to be finite, since zero times NaN is NaN.
    """

    def __init__(self, model: ModelConfig, n_slots: int, device: torch.device, dtype: torch.dtype) -> None:
        head_dim = model.d_model // model.decoder_attention_heads
        shape = (model.decoder_layers, 2, n_slots, model.decoder_attention_heads)
        # (layers, keys | values, slots, heads, positions, head_dim)
        self.self_attention = _zeros((*shape, model.max_target_positions, head_dim), device, dtype)
        self.cross_attention = _zeros((*shape, model.max_source_positions, head_dim), device, dtype)
        self.encoder_lengths = [0] * n_slots
        """Encoder states of each slot's window; 0 for a slot without one."""
        self.lengths = torch.zeros(n_slots, dtype=torch.int32, device=device)
        """The same, on the device, as of the last `update`."""
        self._are_lengths_new = False
        self.device = device
        self.dtype = dtype

    def rows(self, slots: Sequence[int]) -> Rows:
        """Index of `slots` in the buffers."""
        first = slots[0]
        if list(slots) == list(range(first, first + len(slots))):
            return slice(first, first + len(slots))
        return to_device(slots, self.device)

    def write_cross_attention(self, layer: int, slots: Sequence[int], keys_values: Tensor, runs: Sequence[Run]) -> None:
        """Store a layer's keys and values of packed encoder states, `(states, 2, heads, head_dim)`."""
        for run in runs:
            own = slots[run.windows]
            values = run.unpack(keys_values).permute(2, 0, 3, 1, 4)  # (2, windows, heads, states, head_dim)
            self.cross_attention[layer, :, self.rows(own), :, : run.n_states] = values
            for slot in own:
                self.set_length(slot, run.n_states)

    def set_length(self, slot: int, n_states: int) -> None:
        """Say how many encoder states a slot holds."""
        if self.encoder_lengths[slot] != n_states:
            self.encoder_lengths[slot] = n_states
            self._are_lengths_new = True

    def update(self) -> None:
        """Bring the lengths to the device, if they have changed."""
        if self._are_lengths_new:
            self.lengths.copy_(to_device(self.encoder_lengths, self.device))
            self._are_lengths_new = False

    def forget(self, slot: int) -> None:
        """The slot's window is over: its length no longer counts. Its keys and values stay where they are."""
        self.set_length(slot, 0)


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Zeros that, on the CPU, take no memory before they are written: `numpy.zeros` leaves clearing to the system."""
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(n_bytes, np.uint8)).view(dtype).view(shape)


class SlotAllocator:
    """Hands out slots, the lowest free one first, so that those in use lie close together in the buffers."""

    def __init__(self, n_slots: int) -> None:
        self._free = list(range(n_slots))
        self._used: set[int] = set()

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_rows(self) -> int:
        """Slots up to the highest one in use: a decode step runs them all as one view, holes included."""
        return max(self._used, default=-1) + 1

    def allocate(self) -> int:
        slot = heapq.heappop(self._free)
        self._used.add(slot)
        return slot

    def free(self, slot: int) -> None:
        self._used.remove(slot)
        heapq.heappush(self._free, slot)
