"""Attention with PyTorch's scaled-dot-product kernels, over the slots of the caches.

The decoder sees two methods. An object of `DecoderAttention` is the plan of one pass: which rows, how long they are.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.kv_cache import KVCache
from engine.model.packing import Run, pack


class DecoderAttention(Protocol):
    """What a decoder layer needs of one pass over some rows."""

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        """Store the new tokens' keys and values, then attend to all tokens of the row up to each one.

        Args:
            query: `(rows, heads, tokens, head_dim)`.
            keys_values: `(2, rows, heads, tokens, head_dim)`.

        Returns:
            `(rows, heads, tokens, head_dim)`.
        """
        ...

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states of the row's slot; shapes as above."""
        ...


def encoder_attention(queries_keys_values: Tensor, runs: Sequence[Run]) -> Tensor:
    """Every encoder state attends to all of its window.

    Args:
        queries_keys_values: `(states, 3, heads, head_dim)`, of all windows packed.

    Returns:
        `(states, heads * head_dim)`.
    """
    attended = []
    for run in runs:
        query, key, value = run.unpack(queries_keys_values).permute(2, 0, 3, 1, 4)
        attended.append(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
    return pack(attended)


class PrefillAttention:
    """Rows that begin: prompts side by side, padded on the right, one after the other's length.

    Padding needs no mask: it comes after everything that is used, and what it writes is overwritten before it is read.
    """

    def __init__(self, cache: KVCache, slots: Sequence[int]) -> None:
        self._cache = cache
        self._rows = cache.rows(slots)
        self.cross = CrossAttention(cache, slots)

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        self._cache.self_attention[layer, :, self._rows, :, : query.shape[2]] = keys_values
        return F.scaled_dot_product_attention(query, keys_values[0], keys_values[1], is_causal=True)

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        return self.cross(layer, query)


class DecodeAttention:
    """One new token for each of the first `n_rows` slots, all in place: no keys or values are copied.

    Rows that nobody uses compute garbage, which stays in their own slots.
    """

    def __init__(self, cache: KVCache, n_rows: int, positions: Tensor, n_positions: int, is_ragged: bool) -> None:
        """Args:
        positions: `(n_rows,)` where each row's new token stands.
        n_positions: one more than the highest position of a row in use.
        is_ragged: rows in use stand at different positions.
        """
        self._cache = cache
        self._index = torch.arange(n_rows, device=cache.device)
        self._positions = positions
        self._n_positions = n_positions
        self._mask: Tensor | None = None
        if is_ragged:
            columns = torch.arange(n_positions, device=cache.device)
            self._mask = (columns <= positions[:, None])[:, None, None, :]  # (rows, 1, 1, positions)
        self.cross = CrossAttention(cache, range(n_rows))

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        buffer = self._cache.self_attention[layer]
        # The two indices stand apart, so that their dimension comes first: (rows, 2, heads, head_dim).
        buffer[:, self._index, :, self._positions] = keys_values[:, :, :, 0].transpose(0, 1)
        keys, values = buffer[:, : query.shape[0], :, : self._n_positions]
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=self._mask)

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        return self.cross(layer, query)


class CrossAttention:
    """Rows against the encoder states of their slots, masked only where these differ in number.

    Rows that nobody uses take part in whatever lies there.
    """

    def __init__(self, cache: KVCache, slots: Sequence[int]) -> None:
        self._cache = cache
        self._rows = cache.rows(slots)
        self._n_states = max(cache.encoder_lengths[slot] for slot in slots)
        lengths = [cache.encoder_lengths[slot] or self._n_states for slot in slots]
        self._mask: Tensor | None = None
        if min(lengths) < self._n_states:
            columns = torch.arange(self._n_states, device=cache.device)
            self._mask = (columns < torch.tensor(lengths, device=cache.device)[:, None])[:, None, None, :]

    def __call__(self, layer: int, query: Tensor) -> Tensor:
        keys, values = self._cache.cross_attention[layer][:, self._rows, :, : self._n_states]
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=self._mask)

    def weights(self, layer: int, head: int, query: Tensor) -> Tensor:
        """What one head looks at, `(rows, tokens, n_states)` float32."""
        keys = self._cache.cross_attention[layer, 0, self._rows, head, : self._n_states]
        scores = (query[:, head] @ keys.mT).float() / query.shape[-1] ** 0.5
        if self._mask is not None:
            scores = scores.masked_fill(~self._mask[:, 0], float("-inf"))
        weights: Tensor = scores.softmax(dim=-1)
        return weights


class WatchedAttention:
    """Another plan, of which is kept what the alignment heads look at."""

    def __init__(self, plan: PrefillAttention | DecodeAttention, heads: Sequence[tuple[int, int]]) -> None:
        """`heads`: (layer, head)."""
        self._plan = plan
        self._heads = heads
        self._weights: list[Tensor] = []

    @property
    def weights(self) -> Tensor:
        """`(rows, heads, tokens, n_states)`, the heads in the order of their layers."""
        return torch.stack(self._weights, dim=1)

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        return self._plan.self_attention(layer, query, keys_values)

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        for head in (head for at, head in self._heads if at == layer):
            self._weights.append(self._plan.cross.weights(layer, head, query))
        return self._plan.cross_attention(layer, query)
