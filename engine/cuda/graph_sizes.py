"""The sizes for which CUDA graphs are captured, and which of them serves a batch. Plain Python, without torch.

A graph has fixed shapes. A smaller batch is padded up to the next size; a batch larger than every size is run without a
graph, or, in the encoder, cut into several batches.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

FILLING_WINDOWS = 4
"""Full windows that keep a large GPU busy. What these windows pass from layer to layer still fits into its cache."""

LEAST_SHARE = 0.5
"""The least time of an encoder call, as a share of the time of one full window. Measured on an H200: a single window,
however short, takes half as long as a full one."""

LEAST_SHARED_ROWS = 3
"""The fewest rows of a step in which slots share a window: the kernel for whole steps of fewer rows (`row_step.py`)
reads the window of each row in the row's own slot."""


class PackedSize(NamedTuple):
    """The size of an encoder call of windows that are shorter than full ones."""

    states: int
    """All encoder states."""
    windows: int
    """The most windows."""
    longest: int
    """The most states of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSizes:
    """All sizes, each list from small to large unless said otherwise."""

    step_rows: Sequence[int] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384)
    """Rows of a decode step."""
    prefill_rows: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    """Rows of a prefill."""
    prefill_tokens: Sequence[int] = (4, 8, 16, 32, 64)
    """Tokens of the longest row of a prefill: its prompt and its draft tokens."""
    most_prefilled: int = 2_048
    """The most tokens of a prefill, all rows together: those of more take longer than launching them does."""
    full_windows: tuple[tuple[int, float], ...] = (
        (11, 3.92),
        (9, 3.97),
        (7, 3.98),
        (FILLING_WINDOWS, 4.08),
        (2, 4.27),
        (1, 5.11),
    )
    """Full windows of an encoder call, from large to small, and the milliseconds for each window: those of turbo,
    measured on an H100. The products of some numbers divide better among the multiprocessors than those of others."""
    packed_states: Sequence[int] = (800, 1_600, 2_400, 3_600, 4_800)
    """Encoder states of an encoder call of shorter windows, together."""
    packed_longest: Sequence[int] = (400,)
    """The most encoder states of a window in such a call, besides the most that a shorter window has: what comes before
    the layers takes time for this many, for each window."""
    packed_least: int = 150
    """A call has place for as many windows as if each had at least this many encoder states."""

    def steps(self, max_rows: int) -> list[int]:
        """Rows of the decode steps to capture, the largest first; see `n_rows_held`."""
        return [rows for rows in reversed(self.step_rows) if rows <= max_rows]

    def step(self, n_rows: int, max_rows: int) -> int:
        """Rows of the decode step that serves this number of rows."""
        return smallest_at_least(self.step_rows, n_rows) or max_rows

    def prefills(self, n_slots: int) -> list[tuple[int, int]]:
        """`(rows, tokens)` of the prefills to capture, the largest first."""
        max_rows = smallest_at_least(self.prefill_rows, n_slots) or self.prefill_rows[-1]
        rows = [each for each in reversed(self.prefill_rows) if each <= max_rows]
        sizes = itertools.product(rows, reversed(self.prefill_tokens))
        return [(n_rows, n_tokens) for n_rows, n_tokens in sizes if n_rows * n_tokens <= self.most_prefilled]

    def prefill(self, n_rows: int, n_tokens: int) -> tuple[int, int] | None:
        """`(rows, tokens)` of the prefill that serves this one; `None` if it is larger than every size."""
        rows = smallest_at_least(self.prefill_rows, n_rows)
        tokens = smallest_at_least(self.prefill_tokens, n_tokens)
        return None if rows is None or tokens is None or rows * tokens > self.most_prefilled else (rows, tokens)

    def encoder_batches(self, max_windows: int) -> list[int]:
        """Full windows of the encoder calls to capture, the largest first."""
        return [windows for windows, _ in self.full_windows if windows <= max_windows]

    def packed_sizes(self, max_windows: int, max_short: int) -> list[PackedSize]:
        """The encoder calls to capture of windows with at most `max_short` encoder states, the largest first."""
        if not max_short:
            return []
        longest = sorted({*(each for each in self.packed_longest if each < max_short), max_short}, reverse=True)
        return [size for most in longest for size in reversed(self._packed_sizes(max_windows, most))]

    def _packed_sizes(self, max_windows: int, longest: int) -> list[PackedSize]:
        """The encoder calls of windows up to this length, from small to large, up to one that holds all windows."""
        sizes: list[PackedSize] = []
        for each in self.packed_states:
            states = max(each, longest)
            sizes.append(PackedSize(states, min(max_windows, states // self.packed_least), longest))
            if sizes[-1].windows == max_windows and states >= max_windows * longest:
                break
        return sizes

    def packed_size(self, lengths: Sequence[int], captured: Iterable[PackedSize]) -> PackedSize | None:
        """The smallest size that holds windows of these lengths; `None` if none does."""
        fitting = [
            size
            for size in captured
            if len(lengths) <= size.windows and max(lengths) <= size.longest and sum(lengths) <= size.states
        ]
        return min(fitting, default=None)

    def cut(self, n_full_states: int, max_windows: int, n_states: Sequence[int]) -> list[slice]:
        """Cut the windows of an encoder call into parts that have a graph each, unless windows are very short.

        Args:
            n_full_states: the encoder states of a full window.
            n_states: the encoder states of each window, from short to long.
        """
        n_short = sum(each < n_full_states for each in n_states)
        parts = _cut_short(n_states[:n_short], self.packed_states[-1])
        sizes = tuple(each for each in self.full_windows if each[0] <= max_windows)
        ends = itertools.accumulate(_cut_full(len(n_states) - n_short, sizes), initial=n_short)
        return parts + [slice(first, end) for first, end in itertools.pairwise(ends)]


@cache
def _cut_full(n_windows: int, sizes: tuple[tuple[int, float], ...]) -> tuple[int, ...]:
    """The sizes, from large to small, that add up to that many windows and take the least time together."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for n in range(1, n_windows + 1):
        before = ((best[n - size], size, ms) for size, ms in sizes if size <= n)
        best.append(min((total_ms + size * ms, (*cut, size)) for (total_ms, cut), size, ms in before))
    return tuple(sorted(best[-1][1], reverse=True))


GRAPH_SIZES = GraphSizes()
"""The sizes that are used unless a test asks for others."""


def n_rows_held(n_slots: int) -> int:
    """Rows of the buffers for this number of slots: those of the graph that serves all slots, in a search, too."""
    n_rows = n_slots if n_slots == 1 else max(n_slots, LEAST_SHARED_ROWS)
    return smallest_at_least(GRAPH_SIZES.step_rows, n_rows) or n_rows


def _cut_short(n_states: Sequence[int], max_states: int) -> list[slice]:
    """Cut windows into parts of neighbours, each with at most this many states."""
    parts: list[slice] = []
    total = 0
    for index, length in enumerate(n_states):
        if parts and total + length <= max_states:
            parts[-1], total = slice(parts[-1].start, index + 1), total + length
        else:
            parts, total = [*parts, slice(index, index + 1)], length
    return parts


def smallest_at_least(sizes: Sequence[int], number: int) -> int | None:
    """The first of ascending sizes that is not below a number; `None` if all are below it."""
    return next((size for size in sizes if size >= number), None)
