"""Attention with PyTorch's scaled-dot-product kernels, over the slots of the caches.

The decoder calls two methods of a `DecoderAttention`. Such an object is made for one forward pass: it knows which rows
take part, and how long they are.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.packing import Run, pack
from tutti_server.engine.model.processor import has_bfloat16, has_tiles

BLOCK_WEIGHTS = 1_500_000
"""The attention weights of one block of queries. In bfloat16 they take 3 MB, which stay in the second-level caches."""
MIN_BLOCK_QUERIES = 32
"""The fewest queries of a block, however many heads and states there are."""


class DecoderAttention(Protocol):
    """The attention of one forward pass of the decoder over some rows."""

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        """Store the new tokens' keys and values, then attend from each token to all tokens of its row up to it.

        Args:
            query: `(rows, heads, tokens, head_dim)`.
            keys_values: `(2, rows, heads, tokens, head_dim)`.

        Returns:
            `(rows, heads, tokens, head_dim)`.
        """
        ...

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states of each row's slot, with the shapes of `self_attention`."""
        ...


def encoder_attention(queries_keys_values: Tensor, runs: Sequence[Run]) -> Tensor:
    """Attend from every encoder state to all states of its window.

    Args:
        queries_keys_values: `(states, 3, heads, head_dim)`, of all windows packed.
        runs: where each window's states are.

    Returns:
        `(states, heads * head_dim)`.
    """
    attend = attend_in_blocks if _has_slow_kernel(queries_keys_values) else _attend
    return pack([attend(run.unpack(queries_keys_values)).flatten(2) for run in runs])


def _has_slow_kernel(x: Tensor) -> bool:
    """Whether PyTorch's attention of many queries takes longer than `attend_in_blocks`.

    It does not where the processor has tiles (AMX), which it uses: there blocks take twice as long.
    """
    return x.device.type == "cpu" and x.dtype == torch.bfloat16 and has_bfloat16() and not has_tiles()


def _attend(queries_keys_values: Tensor) -> Tensor:
    """PyTorch's attention within each window: `(windows, states, 3, heads, head_dim)` to the same without the 3."""
    query, key, value = queries_keys_values.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def attend_in_blocks(queries_keys_values: Tensor) -> Tensor:
    """Attend within each window, some queries at a time: as many as fill the cache of the processor with weights.

    The two products are those of oneDNN, which in bfloat16 take half the time of float32; PyTorch's attention takes as
    long in both. A window of base (1,500 states, 8 heads) takes 22 ms a layer on two cores of an AMD EPYC with AVX-512,
    where PyTorch's attention takes 31 to 39. Weights are rounded to bfloat16 before they are multiplied by the values,
    as they are there, and scores before the softmax, as they are not there.

    Args:
        queries_keys_values: `(windows, states, 3, heads, head_dim)`.

    Returns:
        `(windows, states, heads, head_dim)`.
    """
    n_windows, n_states, _, n_heads, head_dim = queries_keys_values.shape
    attended = queries_keys_values.new_empty(n_windows, n_states, n_heads, head_dim)
    n_queries = max(MIN_BLOCK_QUERIES, BLOCK_WEIGHTS // (n_heads * n_states))
    for window, outputs in zip(queries_keys_values, attended.transpose(1, 2), strict=True):
        queries, keys, values = window.permute(1, 2, 0, 3)  # each (heads, states, head_dim)
        queries = queries / head_dim**0.5
        keys, values = keys.mT.contiguous(), values.contiguous()
        for first in range(0, n_states, n_queries):
            block = slice(first, first + n_queries)
            weights = torch.bmm(queries[:, block], keys).softmax(dim=-1)
            outputs[:, block] = torch.bmm(weights, values)
    return attended


class PrefillAttention:
    """Attention for sequences that start at position 0, padded on the right to the length of the longest.

    The padding needs no mask. No real token attends to it, because it comes later, and the keys and values that it
    stores are overwritten before a token attends to their positions. On a CPU each of different lengths attends alone,
    so that longer ones do not change its bits.
    """

    def __init__(self, cache: KVCache, slots: Sequence[int], lengths: Sequence[int] = ()) -> None:
        """Attend alone in each sequence, which has this number of tokens; equally many without `lengths`."""
        self._cache = cache
        self._rows = cache.rows(slots)
        self.cross = cross_attention_of(cache, slots)
        self._alone: list[tuple[PrefillAttention, slice, int]] = []
        """The attention of each sequence that attends alone, its row and its length."""
        if cache.device.type == "cpu" and len(set(lengths)) > 1:
            self._alone = [
                (PrefillAttention(cache, [slot]), slice(row, row + 1), n)
                for row, (slot, n) in enumerate(zip(slots, lengths, strict=True))
            ]

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        """Store keys and values, and attend causally; see `DecoderAttention`."""
        if self._alone:
            attended = torch.zeros_like(query)
            for own, row, n in self._alone:
                attended[row, :, :n] = own.self_attention(layer, query[row, :, :n], keys_values[:, row, :, :n])
            return attended
        self._cache.self_attention[layer, :, self._rows, :, : query.shape[2]] = keys_values
        return F.scaled_dot_product_attention(query, keys_values[0], keys_values[1], is_causal=True)

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states; see `DecoderAttention`."""
        if not self._alone:
            return self.cross(layer, query)
        attended = torch.zeros_like(query)
        for own, row, n in self._alone:
            attended[row, :, :n] = own.cross_attention(layer, query[row, :, :n])
        return attended

    def weights(self, layer: int, head: int, query: Tensor) -> Tensor:
        """The cross-attention weights of one head; see `CrossAttention.weights`. Those of padding are zeros."""
        if not self._alone:
            return self.cross.weights(layer, head, query)
        weights = torch.zeros(len(query), query.shape[2], self.cross.n_states)
        for own, row, n in self._alone:
            part = own.cross.weights(layer, head, query[row, :, :n])
            weights[row, :n, : part.shape[2]] = part
        return weights


class DecodeAttention:
    """Attention for one new token in each of the first `n_rows` slots. No keys or values are copied.

    The rows of free slots compute numbers without meaning, which stay in these slots. On a CPU each row sums over its
    own positions, neighbours at the same position together, so that longer rows do not change its bits. On a GPU one
    call with a mask is faster.
    """

    def __init__(self, cache: KVCache, n_rows: int, positions: Tensor, n_positions: int, is_ragged: bool) -> None:
        """Make the mask, if one is needed.

        Args:
            n_rows: slots that take part.
            positions: `(n_rows,)`: the position of each row's new token.
            n_positions: one more than the highest position of a running row.
            is_ragged: whether running rows are at different positions.
        """
        self._cache = cache
        self._index = torch.arange(n_rows, device=cache.device)
        self._positions = positions
        self._n_positions = n_positions
        self._mask: Tensor | None = None
        self._runs: list[tuple[slice, int]] = []
        """Neighbouring rows at the same position, and how many positions they have; none if all rows are alike."""
        if is_ragged and cache.device.type == "cpu":
            begin = 0
            for position, rows in groupby(positions.tolist()):
                end = begin + len(list(rows))
                self._runs.append((slice(begin, end), min(position + 1, n_positions)))
                begin = end
        elif is_ragged:
            columns = torch.arange(n_positions, device=cache.device)
            self._mask = (columns <= positions[:, None])[:, None, None, :]  # (rows, 1, 1, positions)
        self.cross = cross_attention_of(cache, range(n_rows))

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        """Store keys and values, and attend; see `DecoderAttention`."""
        buffer = self._cache.self_attention[layer]
        # A slice separates the two index tensors, so their dimension comes first: (rows, 2, heads, head_dim).
        buffer[:, self._index, :, self._positions] = keys_values[:, :, :, 0].transpose(0, 1)
        keys, values = buffer[:, : query.shape[0], :, : self._n_positions]
        if not self._runs:
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=self._mask)
        attended = torch.empty_like(query)
        for rows, n in self._runs:
            attended[rows] = F.scaled_dot_product_attention(query[rows], keys[rows, :, :n], values[rows, :, :n])
        return attended

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the encoder states; see `DecoderAttention`."""
        return self.cross(layer, query)

    def weights(self, layer: int, head: int, query: Tensor) -> Tensor:
        """The cross-attention weights of one head; see `CrossAttention.weights`."""
        return self.cross.weights(layer, head, query)


class CrossAttention:
    """Attention to the encoder states of each row's slot. It needs a mask only if the slots hold different numbers.

    The rows of free slots attend to whatever their slots hold.
    """

    def __init__(self, cache: KVCache, slots: Sequence[int]) -> None:
        self._cache = cache
        self._rows = cache.rows([cache.window_slot(slot) for slot in slots])
        self.n_states = max(cache.encoder_lengths[slot] for slot in slots)
        lengths = [cache.encoder_lengths[slot] or self.n_states for slot in slots]
        self._last: tuple[int, Tensor] | None = None
        """The layer that was read last, and its keys and values: encoder states are projected for them."""
        self._mask: Tensor | None = None
        if min(lengths) < self.n_states:
            columns = torch.arange(self.n_states, device=cache.device)
            self._mask = (columns < torch.tensor(lengths, device=cache.device)[:, None])[:, None, None, :]

    def __call__(self, layer: int, query: Tensor) -> Tensor:
        """`(rows, heads, tokens, head_dim)` to the same shape."""
        keys, values = self._read(layer)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=self._mask)

    def _read(self, layer: int) -> Tensor:
        if self._last is None or self._last[0] != layer:
            self._last = layer, self._cache.read_cross_attention(layer, self._rows, self.n_states)
        return self._last[1]

    def weights(self, layer: int, head: int, query: Tensor) -> Tensor:
        """The attention weights of one head, `(rows, tokens, n_states)` float32."""
        keys = self._read(layer)[0, :, head]
        scores = (query[:, head] @ keys.mT).float() / query.shape[-1] ** 0.5
        if self._mask is not None:
            scores = scores.masked_fill(~self._mask[:, 0], float("-inf"))
        weights: Tensor = scores.softmax(dim=-1)
        return weights


class RowCrossAttention:
    """Cross-attention on a CPU: two matrix products a row, over the states of its own window.

    The products of a row in a step have the same shapes, and so the same bits, whatever the other slots hold. Rows of
    free slots are zero. With rows of 200 to 1,500 states it takes two thirds of the time of a mask for all rows. The
    beams of a window are one row of several queries, so that its keys and values are read once.
    """

    def __init__(self, cache: KVCache, slots: Sequence[int]) -> None:
        self.n_states = max(cache.encoder_lengths[slot] for slot in slots)
        rows: dict[int, list[int]] = {}
        for row, slot in enumerate(slots):
            if cache.encoder_lengths[slot]:
                rows.setdefault(cache.window_slot(slot), []).append(row)
        self._single = [(own[0], cache.cross_views(slot)) for slot, own in rows.items() if len(own) == 1]
        self._shared = [(torch.tensor(own), cache.cross_views(slot)) for slot, own in rows.items() if len(own) > 1]
        self._all = [(row, cache.cross_views(slot)) for slot, own in rows.items() for row in own]

    def __call__(self, layer: int, query: Tensor) -> Tensor:
        """`(rows, heads, tokens, head_dim)` to the same shape."""
        query = query / query.shape[-1] ** 0.5
        attended = torch.zeros(query.shape)
        queries, outputs = query.unbind(), attended.unbind()
        for row, layers in self._single:
            keys, values = layers[layer]
            torch.bmm(torch.bmm(queries[row], keys).softmax(dim=-1), values, out=outputs[row])
        for rows, layers in self._shared:
            keys, values = layers[layer]
            together = query[rows, :, 0].transpose(0, 1)  # (heads, beams, head_dim)
            weights = torch.bmm(together, keys).softmax(dim=-1)
            attended[rows, :, 0] = torch.bmm(weights, values).transpose(0, 1)
        return attended

    def weights(self, layer: int, head: int, query: Tensor) -> Tensor:
        """What `CrossAttention.weights` gives. After the states of a row's own window there are zeros."""
        weights = torch.zeros(len(query), query.shape[2], self.n_states)
        for row, layers in self._all:
            scores = query[row : row + 1, head] @ layers[layer][0][None, head]
            weights[row, :, : scores.shape[2]] = (scores[0] / query.shape[-1] ** 0.5).softmax(dim=-1)
        return weights


def cross_attention_of(cache: KVCache, slots: Sequence[int]) -> CrossAttention | RowCrossAttention:
    """Cross-attention in the form that is faster for this cache."""
    return RowCrossAttention(cache, slots) if cache.is_read_by_row else CrossAttention(cache, slots)


class RecordingAttention:
    """Calls another `DecoderAttention`, and keeps the cross-attention weights of some heads."""

    def __init__(self, attention: PrefillAttention | DecodeAttention, heads: Sequence[tuple[int, int]]) -> None:
        self._attention = attention
        self._heads = heads
        self._weights: list[Tensor] = []

    @property
    def weights(self) -> Tensor:
        """`(rows, heads, tokens, n_states)`, with the heads in the order of their layers."""
        return torch.stack(self._weights, dim=1)

    def self_attention(self, layer: int, query: Tensor, keys_values: Tensor) -> Tensor:
        """Pass the call on; see `DecoderAttention`."""
        return self._attention.self_attention(layer, query, keys_values)

    def cross_attention(self, layer: int, query: Tensor) -> Tensor:
        """Keep the weights of this layer's heads, and pass the call on; see `DecoderAttention`."""
        for head in (head for head_layer, head in self._heads if head_layer == layer):
            self._weights.append(self._attention.weights(layer, head, query))
        return self._attention.cross_attention(layer, query)
