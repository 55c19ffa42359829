"""FlashInfer's attention, which replaces our own: paged decoding for steps, ragged attention for the encoder.

`EngineConfig.kernels` says where it is used. It needs the extra `cuda`.

Source: FlashInfer, `BatchDecodeWithPagedKVCacheWrapper` and `BatchPrefillWithRaggedKVCacheWrapper`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from flashinfer import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper
from torch import Tensor

from tutti_server.engine.cuda.kernels.attention import append_to_cache
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import Run, find_runs
from tutti_server.engine.model.whisper import Whisper

_WORKSPACE_BYTES = 128 << 20
_SELF_PAGE_POSITIONS = 64
"""Positions of a page of the self-attention cache. It divides Whisper's 448 positions."""
_CROSS_PAGE_POSITIONS = 100
"""Positions of a page of the cross-attention cache. It divides Whisper's 1,500 encoder states."""
_TRIAL_STATES = 64
"""Encoder states of the window that `FlashInfer.compile` runs."""


class _PagedCache:
    """One of the two caches as pages. Each page holds some positions of a slot, for all heads."""

    def __init__(self, cache: Tensor, page_positions: int, rows: int, workspace: Tensor) -> None:
        """Make views of the cache's pages.

        Args:
            cache: `(layers, 2, slots, heads, positions, head_dim)`.
            rows: rows of the steps that read it.
        """
        _, _, slots, heads, positions, head_dim = cache.shape
        pages_per_head = positions // page_positions
        n_pages = (slots - 1) * heads * pages_per_head + pages_per_head
        # In memory, all positions of a head follow each other, so the heads of a page are `positions` apart. Pages of
        # this view overlap, and `plan` names only those that start in the first head of a slot.
        shape = (n_pages, heads, page_positions, head_dim)
        strides = (page_positions * head_dim, positions * head_dim, head_dim, 1)
        self._layers = [
            tuple(each.as_strided(shape, strides, each.storage_offset()) for each in keys_values)
            for keys_values in cache
        ]
        self._slot_pages = heads * pages_per_head
        """Pages from one slot's first page to the next slot's."""
        self._page_positions, self._heads, self._head_dim, self._dtype = page_positions, heads, head_dim, cache.dtype
        device = cache.device
        self._wrapper = BatchDecodeWithPagedKVCacheWrapper(
            workspace,
            "HND",
            use_cuda_graph=True,
            paged_kv_indptr_buffer=torch.zeros(rows + 1, dtype=torch.int32, device=device),
            paged_kv_indices_buffer=torch.zeros(rows * pages_per_head, dtype=torch.int32, device=device),
            paged_kv_last_page_len_buffer=torch.ones(rows, dtype=torch.int32, device=device),
        )
        self._planned: tuple[int, ...] | None = None

    def plan(self, lengths: Sequence[int], slots: Sequence[int] | None = None) -> None:
        """Set how many positions of each row count, at least one, and the slot that it reads; by default its number."""
        slots = range(len(lengths)) if slots is None else slots
        if (*lengths, *slots) == self._planned:
            return
        self._planned = (*lengths, *slots)
        n_pages = [-(-length // self._page_positions) for length in lengths]
        indices = [
            slot * self._slot_pages + page for slot, count in zip(slots, n_pages, strict=True) for page in range(count)
        ]
        self._wrapper.plan(
            torch.tensor([0, *n_pages], dtype=torch.int32).cumsum(0, dtype=torch.int32),
            torch.tensor(indices, dtype=torch.int32),
            torch.tensor([(length - 1) % self._page_positions + 1 for length in lengths], dtype=torch.int32),
            self._heads,
            self._heads,
            self._head_dim,
            self._page_positions,
            q_data_type=self._dtype,
            kv_data_type=self._dtype,
        )

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """`(rows, width)` to `(rows, width)`."""
        out: Tensor = self._wrapper.run(query.view(-1, self._heads, self._head_dim), self._layers[layer])
        return out.flatten(1)


class FlashInferSteps:
    """The attention of decode steps with a fixed number of rows: a `StepAttention`. Call `plan` before each step."""

    def __init__(self, cache: KVCache, rows: int, workspaces: tuple[Tensor, Tensor]) -> None:
        self._rows = rows
        self._cache = cache
        self._self_cache = _PagedCache(cache.self_attention, _SELF_PAGE_POSITIONS, rows, workspaces[0])
        self._cross_cache = _PagedCache(cache.cross_attention, _CROSS_PAGE_POSITIONS, rows, workspaces[1])

    def plan_longest(self) -> None:
        """Plan for rows of the greatest length, before a graph is captured.

        A graph keeps the kernels that these rows need, and they serve shorter rows too.
        """
        self._self_cache.plan([self._cache.self_attention.shape[4]] * self._rows)
        self._cross_cache.plan([self._cache.cross_attention.shape[4]] * self._rows)

    def plan(self, positions: dict[int, int]) -> None:
        """Plan a step with the position of each running slot's new token."""
        lengths = self._cache.encoder_lengths
        slots = [min(row, self._cache.padding_slot) for row in range(self._rows)]
        self._self_cache.plan([positions.get(slot, 0) + 1 for slot in slots])
        windows = [self._cache.window_slot(slot) for slot in slots]
        self._cross_cache.plan([max(1, lengths[slot]) for slot in slots], windows)

    def self_attention(self, layer: int, qkv: Tensor, slots: Tensor, starts: Tensor) -> Tensor:
        """Store the new tokens' keys and values and attend; see `kernels.attention.self_attention`."""
        keys, values = self._cache.self_attention[layer]
        append_to_cache(qkv, keys, values, slots, starts, 1)
        return self._self_cache.attend(layer, qkv[:, : qkv.shape[1] // 3].contiguous())

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states of each row's slot."""
        return self._cross_cache.attend(layer, query)


class FlashInfer:
    """Makes both kinds of attention for one model and its cache."""

    def __init__(self, model: Whisper, cache: KVCache) -> None:
        self._cache = cache
        self._heads = next(iter(model.encoder.layers)).self_attn.n_heads
        self._head_dim = model.encoder.layer_norm.normalized_shape[0] // self._heads
        self._window_workspace = self._allocate_workspace()

    def compile(self) -> None:
        """Compile the attention over windows, if this machine has not done so before.

        Raises:
            Exception: whatever the compiler raises, or the loading of what it made.
        """
        shape = (_TRIAL_STATES, 3, self._heads, self._head_dim)
        self.attend(find_runs([_TRIAL_STATES]))(torch.zeros(shape, device=self._cache.device, dtype=self._cache.dtype))

    def steps(self, rows: int) -> FlashInferSteps:
        """The attention of decode steps with this number of rows."""
        return FlashInferSteps(self._cache, rows, self._step_workspaces)

    @cached_property
    def _step_workspaces(self) -> tuple[Tensor, Tensor]:
        return self._allocate_workspace(), self._allocate_workspace()

    def _allocate_workspace(self) -> Tensor:
        return torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=self._cache.device)

    def attend(self, runs: Sequence[Run]) -> Callable[[Tensor], Tensor]:
        """The encoder's attention over windows of any lengths, in one call.

        Returns:
            A function from `(states, 3, heads, head_dim)` to `(states, heads * head_dim)`.
        """
        wrapper = BatchPrefillWithRaggedKVCacheWrapper(self._window_workspace, "NHD", backend="auto")
        ends = [0]
        for run in runs:
            ends += [ends[-1] + (index + 1) * run.n_states for index in range(run.n_windows)]
        bounds = torch.tensor(ends, dtype=torch.int32)
        dtype = self._cache.dtype
        wrapper.plan(
            bounds,
            bounds,
            self._heads,
            self._heads,
            self._head_dim,
            causal=False,
            q_data_type=dtype,
            kv_data_type=dtype,
        )

        def attend(queries_keys_values: Tensor) -> Tensor:
            query, key, value = queries_keys_values.unbind(1)
            out: Tensor = wrapper.run(query, key, value)
            return out.flatten(1)

        return attend
