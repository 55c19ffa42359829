"""The static memory of the decoder: keys and values of every slot, and who holds which slot."""

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.checkpoint import ModelConfig

Rows = slice | Tensor
"""Slots, in order: a slice where they are consecutive, so that indexing gives a view, else an index tensor."""


class KVCache:
    """Self- and cross-attention keys and values of all slots.

    Buffers are allocated once and never cleared: what lies beyond a slot's lengths is garbage and is never attended.
    """

    def __init__(self, model: ModelConfig, n_slots: int, device: torch.device, dtype: torch.dtype) -> None:
        head_dim = model.d_model // model.decoder_attention_heads
        shape = (model.decoder_layers, 2, n_slots, model.decoder_attention_heads)
        # Pages of the CPU's memory are only taken when first written, so unused slots cost nothing there.
        # (layers, keys | values, slots, heads, positions, head_dim)
        self.self_attention = torch.empty(*shape, model.max_target_positions, head_dim, device=device, dtype=dtype)
        self.cross_attention = torch.empty(*shape, model.max_source_positions, head_dim, device=device, dtype=dtype)
        self.encoder_lengths = [model.max_source_positions] * n_slots
        """Encoder states of each slot's window; a slot that never had one may be attended over garbage."""
        self.device = device

    def rows(self, slots: Sequence[int]) -> Rows:
        """Index of `slots` in the buffers."""
        first = slots[0]
        if list(slots) == list(range(first, first + len(slots))):
            return slice(first, first + len(slots))
        return torch.tensor(slots, device=self.device)

    def write_cross_attention(self, layer: int, slots: Sequence[int], keys_values: Tensor) -> None:
        """Store a layer's keys and values of encoder states, `(2, batch, heads, n_states, head_dim)`."""
        n_states = keys_values.shape[3]
        self.cross_attention[layer, :, self.rows(slots), :, :n_states] = keys_values
        for slot in slots:
            self.encoder_lengths[slot] = n_states


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
