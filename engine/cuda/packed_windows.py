"""Windows of different lengths in one pass of the encoder, packed: one window's states after another's.

Where each window lies is computed on the device, so that one CUDA graph serves any lengths: a graph has a number of
states, and those that are left over belong to no window. By themselves, short windows would not fill a GPU.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Places(NamedTuple):
    """Says where packed encoder states go in a cache."""

    slots: Tensor
    """`(states,)`: the slot of each state."""
    positions: Tensor
    """`(states,)`: its place among the states of its window."""


def places_of(slots: Tensor, n_states: int) -> Places:
    """The places of windows that all have the same length, `(windows,)` slots."""
    positions = torch.arange(n_states, device=slots.device).repeat(len(slots))
    return Places(slots.repeat_interleave(n_states), positions)


class PackedWindows:
    """Says where windows lie among packed states."""

    def __init__(self, lengths: Tensor, n_states: int, longest: int) -> None:
        """Lay windows out one after another.

        Args:
            lengths: `(windows,)` int64: the states of each window; 0 for a window that is not there.
            n_states: all states; those after the last window belong to none.
            longest: the most states of a window.
        """
        self._lengths = lengths
        self._longest = longest
        ends = lengths.cumsum(0)
        at = torch.arange(n_states, device=lengths.device)
        starts = F.pad(ends, (1, 0))
        self._windows = torch.searchsorted(ends, at, right=True)
        """The window of each state; the number of windows for a state of none."""
        self._positions = at - starts[self._windows]
        self._bounds = F.pad(starts, (0, 1), value=n_states).int()
        """The begin of each window, the begin of the states of none, and the end."""

    @property
    def frames(self) -> Tensor:
        """Which mel frames a window has, `(windows, 2 * longest)`."""
        return torch.arange(2 * self._longest, device=self._lengths.device) < 2 * self._lengths[:, None]

    def places(self, slots: Tensor) -> Places:
        """Return where the states go: `(windows + 1,)` slots, of which the last is for states of no window."""
        return Places(slots[self._windows], self._positions.clamp(max=self._longest - 1))

    def pack(self, x: Tensor) -> Tensor:
        """Pack `(windows, longest, width)`. States of no window get the numbers of others."""
        rows = self._windows.clamp(max=len(x) - 1) * self._longest + self._positions.clamp(max=self._longest - 1)
        return x.flatten(0, 1)[rows]

    def attend(self, queries_keys_values: Tensor) -> Tensor:
        """Attend within each window.

        Args:
            queries_keys_values: `(states, 3, heads, head_dim)`.

        Returns:
            `(states, heads * head_dim)`
        """
        has_kernel = queries_keys_values.is_cuda and queries_keys_values.dtype != torch.float32
        return (self._attend_with_kernel if has_kernel else self._attend_with_mask)(queries_keys_values)

    def _attend_with_kernel(self, queries_keys_values: Tensor) -> Tensor:
        # Flash Attention, which takes the bounds from the device.
        from torch.nn.attention.varlen import varlen_attn

        query, key, value = queries_keys_values.unbind(1)
        longest = len(query)
        out = varlen_attn(query, key, value, self._bounds, self._bounds, longest, longest)
        assert isinstance(out, Tensor)  # without what else can be asked for
        return out.flatten(1)

    def _attend_with_mask(self, queries_keys_values: Tensor) -> Tensor:
        query, key, value = queries_keys_values.permute(1, 2, 0, 3)[:, None]  # each (1, heads, states, head_dim)
        same_window = (self._windows[:, None] == self._windows)[None, None]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=same_window)[0].transpose(0, 1).flatten(1)
