"""Encoder states of several windows, one after another without padding, and where each window's lie.

Neighbours of equal length make a run: what must not mix windows (convolutions, attention) is one call for each run.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive windows of equal length."""

    windows: slice
    n_windows: int
    n_states: int
    """Of each window."""
    start: int
    """Its first state among all."""

    def unpack(self, packed: Tensor) -> Tensor:
        """`(total, ...)` to a view `(n_windows, n_states, ...)`."""
        own = packed[self.start : self.start + self.n_windows * self.n_states]
        return own.view(self.n_windows, self.n_states, *packed.shape[1:])


def find_runs(n_states: Sequence[int]) -> list[Run]:
    """Group windows, in order, by their number of states."""
    runs: list[Run] = []
    first, start = 0, 0
    for length, group in itertools.groupby(n_states):
        count = len(list(group))
        runs.append(Run(slice(first, first + count), count, length, start))
        first, start = first + count, start + count * length
    return runs


def cut(n_states: Sequence[int], most: int) -> list[slice]:
    """Neighbouring windows in parts of at most so many states, or of one window."""
    parts: list[slice] = []
    first, total = 0, 0
    for at, length in enumerate(n_states):
        if total and total + length > most:
            parts.append(slice(first, at))
            first, total = at, 0
        total += length
    return [*parts, slice(first, len(n_states))]


def pack(parts: Sequence[Tensor]) -> Tensor:
    """One `(n_windows, n_states, ...)` for each run to `(total, ...)`."""
    flat = [part.flatten(0, 1) for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat)
