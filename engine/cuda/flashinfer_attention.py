"""FlashInfer's attention in place of our own: paged decoding for steps, ragged attention for the encoder.

`EngineConfig.kernels` says which of it is taken; needs the extra `cuda`. docs/results.md has both side by side.

Source: FlashInfer, `BatchDecodeWithPagedKVCacheWrapper` and `BatchPrefillWithRaggedKVCacheWrapper`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from flashinfer import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper
from torch import Tensor

from engine.cuda import kernels
from engine.model.kv_cache import KVCache
from engine.model.packing import Run, find_runs
from engine.model.whisper import EncoderLayer, Whisper

_WORKSPACE_BYTES = 128 << 20
_SELF_PAGE = 64
_CROSS_PAGE = 100
"""Positions of a page. Both divide Whisper's 448 and 1,500."""
_TRIED = 64
"""Encoder states."""


class _Paged:
    """One of the two caches as pages: parts of a slot's positions, for all of its heads."""

    def __init__(self, cache: Tensor, page: int, rows: int, workspace: Tensor) -> None:
        """`cache`: `(layers, 2, slots, heads, positions, head_dim)`."""
        _, _, slots, heads, positions, head_dim = cache.shape
        per_slot = positions // page
        n_pages = (slots - 1) * heads * per_slot + per_slot
        # A head's positions lie together, so a page's heads lie a slot's positions apart; pages overlap in this view.
        shape = (n_pages, heads, page, head_dim)
        strides = (page * head_dim, positions * head_dim, head_dim, 1)
        self._layers = [
            tuple(each.as_strided(shape, strides, each.storage_offset()) for each in keys_values)
            for keys_values in cache
        ]
        self._first_page = heads * per_slot
        self._page, self._heads, self._head_dim, self._dtype = page, heads, head_dim, cache.dtype
        device = cache.device
        self._wrapper = BatchDecodeWithPagedKVCacheWrapper(
            workspace,
            "HND",
            use_cuda_graph=True,
            paged_kv_indptr_buffer=torch.zeros(rows + 1, dtype=torch.int32, device=device),
            paged_kv_indices_buffer=torch.zeros(rows * per_slot, dtype=torch.int32, device=device),
            paged_kv_last_page_len_buffer=torch.ones(rows, dtype=torch.int32, device=device),
        )
        self._planned: tuple[int, ...] | None = None

    def plan(self, lengths: Sequence[int]) -> None:
        """Say how many positions of each row count, one at least; row `i` is slot `i`."""
        if tuple(lengths) == self._planned:
            return
        self._planned = tuple(lengths)
        n_pages = [-(-length // self._page) for length in lengths]
        indices = [slot * self._first_page + page for slot, count in enumerate(n_pages) for page in range(count)]
        self._wrapper.plan(
            torch.tensor([0, *n_pages], dtype=torch.int32).cumsum(0, dtype=torch.int32),
            torch.tensor(indices, dtype=torch.int32),
            torch.tensor([(length - 1) % self._page + 1 for length in lengths], dtype=torch.int32),
            self._heads,
            self._heads,
            self._head_dim,
            self._page,
            q_data_type=self._dtype,
            kv_data_type=self._dtype,
        )

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """`(rows, width)` to `(rows, width)`."""
        out: Tensor = self._wrapper.run(query.view(-1, self._heads, self._head_dim), self._layers[layer])
        return out.flatten(1)


class FlashInferSteps:
    """Attention of decode steps of so many rows. `plan` comes before each."""

    def __init__(self, cache: KVCache, rows: int, workspaces: tuple[Tensor, Tensor]) -> None:
        self._rows = rows
        self._cache = cache
        self._own = _Paged(cache.self_attention, _SELF_PAGE, rows, workspaces[0])
        self._cross = _Paged(cache.cross_attention, _CROSS_PAGE, rows, workspaces[1])

    def plan_longest(self) -> None:
        """For capturing: a graph keeps the kernels that the longest rows need, and shorter ones can do with them."""
        self._own.plan([self._cache.self_attention.shape[4]] * self._rows)
        self._cross.plan([self._cache.cross_attention.shape[4]] * self._rows)

    def plan(self, positions: dict[int, int]) -> None:
        """Where the new token of each running slot stands."""
        lengths, last = self._cache.encoder_lengths, len(self._cache.encoder_lengths) - 1
        slots = [min(row, last) for row in range(self._rows)]
        self._own.plan([positions.get(slot, 0) + 1 for slot in slots])
        self._cross.plan([max(1, lengths[slot]) for slot in slots])

    def self_attention(self, layer: int, qkv: Tensor, slots: Tensor, starts: Tensor) -> Tensor:
        """See `kernels.self_attention`, for one token of each row."""
        keys, values = self._cache.self_attention[layer]
        kernels.append(qkv, keys, values, slots, starts, 1)
        return self._own.attend(layer, qkv[:, : qkv.shape[1] // 3].contiguous())

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        return self._cross.attend(layer, query)


class FlashInfer:
    """Makes both for one model and its cache."""

    def __init__(self, model: Whisper, cache: KVCache) -> None:
        self._cache = cache
        layer = model.encoder.layers[0]
        assert isinstance(layer, EncoderLayer)
        self._heads = layer.self_attn.n_heads
        self._head_dim = model.encoder.layer_norm.normalized_shape[0] // self._heads
        self._of_windows = self._workspace()

    def compile(self) -> None:
        """Compile the attention over windows, if that was never done on this machine.

        Raises:
            Exception: whatever the compiler raises, or what loads its work.
        """
        shape = (_TRIED, 3, self._heads, self._head_dim)
        self.attend(find_runs([_TRIED]))(torch.zeros(shape, device=self._cache.device, dtype=self._cache.dtype))

    def steps(self, rows: int) -> FlashInferSteps:
        return FlashInferSteps(self._cache, rows, self._of_steps)

    @cached_property
    def _of_steps(self) -> tuple[Tensor, Tensor]:
        return self._workspace(), self._workspace()

    def _workspace(self) -> Tensor:
        return torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=self._cache.device)

    def attend(self, runs: Sequence[Run]) -> Callable[[Tensor], Tensor]:
        """Attention of the encoder over windows of any lengths in one call: `(states, 3, heads, head_dim)` to
        `(states, heads * head_dim)`.
        """
        wrapper = BatchPrefillWithRaggedKVCacheWrapper(self._of_windows, "NHD", backend="auto")
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
