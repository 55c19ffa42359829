"""The passes a runner makes through its model: encode windows, read prompts, step. Here in plain PyTorch.

`engine/cuda/graphs.py` makes the same passes faster on an NVIDIA GPU; these are the reference, and what a CPU runs.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.model.attention import DecodeAttention, DecoderAttention, PrefillAttention, WatchedAttention
from engine.model.host_transfer import to_device
from engine.model.kv_cache import KVCache
from engine.model.packing import Run
from engine.model.whisper import Whisper

Heads = Sequence[tuple[int, int]]
"""(layer, head) of those to watch; none for not watching."""


ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a decode step for which there is a graph."""

FILLING_WINDOWS = 4
"""Full windows that keep a large GPU busy, while what they leave between two layers still fits into its cache."""

LEAST_SHARE = 0.5
"""However short a window is, a large GPU takes half as long for it alone as for a full one, as seen on an H200."""


class ForwardPass(Protocol):
    def encode(self, features: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        """Encode log-mel spectrograms and write the cross-attention keys and values of their slots."""
        ...

    def read(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        """Sequences from position 0 on, to hidden states `(rows, tokens of the longest, d_model)`."""
        ...

    def step(self, positions: dict[int, int]) -> Tensor:
        """One token for each of the slots up to the highest running one, to logits `(rows, vocab_size)` float32.

        Args:
            positions: where the token of each running slot stands; the tokens themselves lie on the device.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        ...


class EagerForward:
    """Over the slots of a cache, with the last token of every slot and its position in tensors on the device."""

    def __init__(self, model: Whisper, cache: KVCache, tokens: Tensor, positions: Tensor) -> None:
        self._model = model
        self._cache = cache
        self._tokens = tokens
        self._positions = positions

    def encode(self, features: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        states = self._model.encoder(features, runs)
        for layer in range(len(self._model.decoder.layers)):
            keys_values = self._model.decoder.cross_keys_values(layer, states)
            self._cache.write_cross_attention(layer, slots, keys_values, runs)

    def read(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        return self._read(tokens, PrefillAttention(self._cache, slots))

    def prefill_with_attention(
        self, tokens: Sequence[Sequence[int]], slots: Sequence[int], heads: Heads
    ) -> tuple[Tensor, Tensor]:
        """As `read`, and what these heads look at: `(rows, heads, tokens, states)`."""
        attention = WatchedAttention(PrefillAttention(self._cache, slots), heads)
        return self._read(tokens, attention), attention.weights

    def _read(self, tokens: Sequence[Sequence[int]], attention: DecoderAttention) -> Tensor:
        device = self._cache.device
        padded = to_device(pad(tokens, max(map(len, tokens))), device)
        hidden: Tensor = self._model.decoder(padded, torch.arange(padded.shape[1], device=device), attention)
        return hidden

    def step(self, positions: dict[int, int]) -> Tensor:
        return self._step(positions, self._plan(positions))

    def step_with_attention(self, positions: dict[int, int], heads: Heads) -> tuple[Tensor, Tensor]:
        """As `step`, and what these heads look at: `(rows, heads, 1, states)`."""
        attention = WatchedAttention(self._plan(positions), heads)
        return self._step(positions, attention), attention.weights

    def _plan(self, positions: dict[int, int]) -> DecodeAttention:
        at, n_rows = positions.values(), n_rows_of(positions)
        return DecodeAttention(
            self._cache,
            n_rows,
            self._positions[:n_rows],
            n_positions=max(at) + 1,
            is_ragged=min(at) != max(at),
        )

    def _step(self, positions: dict[int, int], attention: DecoderAttention) -> Tensor:
        n_rows = n_rows_of(positions)
        hidden = self._model.decoder(self._tokens[:n_rows, None], self._positions[:n_rows, None], attention)
        return self.logits(hidden[:, 0])

    def logits(self, hidden: Tensor) -> Tensor:
        return self._model.decoder.logits(hidden)


def n_rows_of(slots: Iterable[int]) -> int:
    """Slots up to the highest of these: a step runs them all, holes included."""
    return max(slots) + 1


def pad(sequences: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Rows of the same length, zeros behind each."""
    return [[*row, *([0] * (length - len(row)))] for row in sequences]


def n_rows_held(n_slots: int) -> int:
    """Rows of the buffers of so many slots: as many as the graph that holds them all."""
    return least(ROWS, n_slots) or n_slots


def least(steps: Sequence[int], number: int) -> int | None:
    """The least of the steps that is not below; `None` where all are."""
    return next((step for step in steps if step >= number), None)
