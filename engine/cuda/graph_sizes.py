"""The sizes for which CUDA graphs are captured, and which of them serves a batch. Plain Python, without torch.

A graph has fixed shapes. A smaller batch is padded up to the next size; a batch larger than every size is run without a
graph, or, in the encoder, cut into several batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FILLING_WINDOWS = 4
"""Full windows that keep a large GPU busy. What these windows pass from layer to layer still fits into its cache."""

LEAST_SHARE = 0.5
"""The least time of an encoder call, as a share of the time of one full window. Measured on an H200: a single window,
however short, takes half as long as a full one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSizes:
    """All sizes, each list from small to large unless said otherwise."""

    step_rows: Sequence[int] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    """Rows of a decode step."""
    prefill_rows: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    """Rows of a prefill."""
    prefill_tokens: Sequence[int] = (4, 8, 16, 32)
    """Tokens of the longest row of a prefill: its prompt and its draft tokens."""
    full_windows: Sequence[int] = (FILLING_WINDOWS, 2, 1)
    """Windows of an encoder call, from large to small, for every window length."""
    large_windows: Sequence[int] = (11, 9, 7)
    """More full windows of an encoder call, from large to small: those numbers whose products divide well among the
    multiprocessors of an H100 or H200. They take up to 4 % less time for each window than others."""
    short_windows: Sequence[int] = (16, 8)
    """More windows of an encoder call, from large to small. They are used for lengths at which they hold no more
    encoder states than the largest of `full_windows` holds at full length."""
    max_padded_states: int = 1_600
    """A batch is padded up to a graph of at most this many encoder states, because a GPU takes little longer for them
    than for fewer. A larger batch is cut instead."""

    def steps(self, max_rows: int) -> list[int]:
        """Rows of the decode steps to capture, the largest first.

        Args:
            max_rows: rows of the buffers; see `n_rows_held`.
        """
        return [rows for rows in reversed(self.step_rows) if rows <= max_rows]

    def step(self, n_rows: int, max_rows: int) -> int:
        """Rows of the decode step that serves this number of rows."""
        return smallest_at_least(self.step_rows, n_rows) or max_rows

    def prefills(self, n_slots: int) -> list[tuple[int, int]]:
        """`(rows, tokens)` of the prefills to capture, the largest first."""
        max_rows = smallest_at_least(self.prefill_rows, n_slots) or self.prefill_rows[-1]
        rows = [each for each in reversed(self.prefill_rows) if each <= max_rows]
        return [(n_rows, n_tokens) for n_rows in rows for n_tokens in reversed(self.prefill_tokens)]

    def prefill(self, n_rows: int, n_tokens: int) -> tuple[int, int] | None:
        """`(rows, tokens)` of the prefill that serves this one; `None` if it is larger than every size."""
        rows = smallest_at_least(self.prefill_rows, n_rows)
        tokens = smallest_at_least(self.prefill_tokens, n_tokens)
        return None if rows is None or tokens is None else (rows, tokens)

    def encoder_batches(self, n_states: int, n_full_states: int, max_windows: int) -> list[int]:
        """Windows of the encoder calls to capture for one window length, the largest first.

        Args:
            n_states: encoder states of each window.
            n_full_states: encoder states of a full window.
            max_windows: the most windows that come in one call.
        """
        large = self.large_windows if n_states == n_full_states else ()
        max_states = self.full_windows[0] * n_full_states
        fitting = [windows for windows in self.short_windows if windows * n_states <= max_states]
        return [windows for windows in (*large, *fitting, *self.full_windows) if windows <= max_windows]

    def cut_full(self, n_windows: int, max_windows: int) -> list[int]:
        """Cut full windows into batches for which there are graphs, so that they take the least time together.

        Args:
            max_windows: the most windows that come in one call.

        Returns:
            The windows of each batch, from large to small.
        """
        sizes = [size for size in (*self.large_windows, *self.full_windows) if size <= max_windows]
        best: list[list[int]] = [[]]
        for n in range(1, n_windows + 1):
            cuts = ([*best[n - size], size] for size in sizes if size <= n)
            best.append(min(cuts, key=lambda cut: sum(map(_full_ms, cut))))
        return sorted(best[-1], reverse=True)

    def cut_batch(self, n_windows: int, n_states: int, captured: Sequence[int]) -> list[tuple[int, int]]:
        """Cut windows of equal length into batches for which there are graphs.

        Args:
            n_states: encoder states of each window.
            captured: what `encoder_batches` gave for this length.

        Returns:
            For each batch, in order: the windows of its graph, and how many of them it uses.
        """
        batches: list[tuple[int, int]] = []
        n_left = n_windows
        while n_left > 0:
            size = smallest_at_least(sorted(captured), n_left)
            if size is None or size * n_states > self.max_padded_states:
                size = next(windows for windows in captured if windows <= n_left)
            batches.append((size, min(size, n_left)))
            n_left -= size
        return batches


_MS_OF_EACH = {1: 5.11, 2: 4.27, 4: 4.08, 7: 3.98, 9: 3.97, 11: 3.92}
"""The time of each full window of turbo where that many are encoded together, in milliseconds: measured on an H100."""


def _full_ms(n_windows: int) -> float:
    """The time of that many full windows together."""
    return n_windows * _MS_OF_EACH[n_windows]


GRAPH_SIZES = GraphSizes()
"""The sizes that are used unless a test asks for others."""


def n_rows_held(n_slots: int) -> int:
    """Rows of the buffers for this number of slots: those of the graph that serves all slots."""
    return smallest_at_least(GRAPH_SIZES.step_rows, n_slots) or n_slots


def smallest_at_least(sizes: Sequence[int], number: int) -> int | None:
    """The first of ascending sizes that is not below a number; `None` if all are below it."""
    return next((size for size in sizes if size >= number), None)
