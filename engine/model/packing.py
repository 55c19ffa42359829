"""Packs the encoder states of several windows: one window after another, without padding.

Neighbouring windows of equal length make a run. An operation that must not mix windows (convolution, attention) is one
call for each run.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive windows of equal length."""

    windows: slice
    """Indices of the windows in the batch."""
    n_windows: int
    n_states: int
    """Encoder states of each window."""
    start: int
    """Index of the run's first state in the packed states."""

    def unpack(self, packed: Tensor) -> Tensor:
        """The run's part of packed states `(total, ...)`, as a view `(n_windows, n_states, ...)`."""
        own = packed[self.start : self.start + self.n_windows * self.n_states]
        return own.view(self.n_windows, self.n_states, *packed.shape[1:])


def find_runs(n_states: Sequence[int]) -> list[Run]:
    """Group neighbouring windows by their number of states, in order."""
    runs: list[Run] = []
    first, start = 0, 0
    for length, group in itertools.groupby(n_states):
        count = len(list(group))
        runs.append(Run(slice(first, first + count), count, length, start))
        first, start = first + count, start + count * length
    return runs


def pack(parts: Sequence[Tensor]) -> Tensor:
    """Join the states of all runs, `(n_windows, n_states, ...)` each, to `(total, ...)`."""
    flat = [part.flatten(0, 1) for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def in_blocks(function: Callable[..., Tensor], max_states: int | None, *packed: Tensor) -> Tensor:
    """Apply a function of single states to blocks of them.

    Args:
        function: takes tensors of as many states each, and returns a tensor with a row for each state.
        max_states: the most states of a block; `None` for all in one.
        packed: the tensors, `(states, ...)` each.
    """
    n_blocks = 1 if max_states is None else math.ceil(len(packed[0]) / max_states)
    if n_blocks <= 1:
        return function(*packed)
    blocks = zip(*(each.chunk(n_blocks) for each in packed), strict=True)
    return torch.cat([function(*block) for block in blocks])
