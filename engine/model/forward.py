"""The forward passes that a runner needs of its model: encode windows, prefill prompts, step by one token.

Here they are in plain PyTorch: this is what a CPU runs, and the reference for `engine/cuda/graphs.py`, which does the
same faster on an NVIDIA GPU.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from tutti_server.engine.model.attention import DecodeAttention, DecoderAttention, PrefillAttention, RecordingAttention
from tutti_server.engine.model.host_transfer import to_device
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES
from tutti_server.engine.model.packing import Run, find_runs
from tutti_server.engine.model.whisper import Whisper

Heads = Sequence[tuple[int, int]]
"""`(layer, head)` of each head whose attention weights are returned."""


class ForwardPass(Protocol):
    """The forward passes over the slots of a cache."""

    def encode(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        """Encode audio, and write what cross-attention reads to its slots.

        Args:
            samples: `(windows, n_samples)` float32, of which each encoder state of a window needs `STATE_SAMPLES`;
                later ones are not used.
            runs: the windows, grouped by length.
        """
        ...

    def prefill(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        """Run whole sequences, each from position 0 of its slot.

        Returns:
            Hidden states, `(rows, tokens of the longest sequence, d_model)`.
        """
        ...

    def step(self, positions: dict[int, int]) -> Tensor:
        """Run one token in each slot up to the highest running one.

        Args:
            positions: the position of each running slot's token; the tokens themselves are on the device.

        Returns:
            Logits, `(rows, vocab_size)` float32. A `CudaGraphForward` may return more rows than there are slots.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        ...


class EagerForward:
    """A `ForwardPass` in plain PyTorch. The last token of every slot, and its position, are tensors on the device."""

    def __init__(
        self,
        model: Whisper,
        cache: KVCache,
        tokens: Tensor,
        positions: Tensor,
        *,
        encodes_alone: bool = False,
    ) -> None:
        """Create the passes. With `encodes_alone` each window has its own, as bfloat16 may round otherwise."""
        self._encodes_alone = encodes_alone
        self._model = model
        self._cache = cache
        self._tokens = tokens
        self._positions = positions

    def encode(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        """Encode windows; see `ForwardPass.encode`."""
        self.write_windows(samples, slots, runs)
        for run in runs:
            for slot in slots[run.windows]:
                self._cache.set_length(slot, run.n_states)

    def write_windows(self, samples: Tensor, slots: Sequence[int], runs: Sequence[Run]) -> None:
        """Encode windows, and write what cross-attention reads, but do not set the lengths of the slots.

        A thread other than the engine's may call it once the cache has reserved the slots.
        """
        if self._encodes_alone and len(slots) > 1:
            for run in runs:
                for window in range(run.windows.start, run.windows.stop):
                    here = slice(window, window + 1)
                    own = samples[here, : run.n_states * STATE_SAMPLES]
                    self.write_windows(own, slots[here], find_runs([run.n_states]))
            return
        states = self._model.encoder(self._model.log_mel(samples), runs)
        if self._cache.encoder_states is not None:
            self._cache.write_states(slots, states, runs)
            return
        for layer in range(len(self._model.decoder.layers)):
            keys_values = self._model.decoder.cross_keys_values(layer, states)
            self._cache.write_cross_attention(layer, slots, keys_values, runs)

    def prefill(self, tokens: Sequence[Sequence[int]], slots: Sequence[int]) -> Tensor:
        """Run whole sequences; see `ForwardPass.prefill`."""
        return self._prefill(tokens, PrefillAttention(self._cache, slots, list(map(len, tokens))))

    def prefill_with_attention(
        self, tokens: Sequence[Sequence[int]], slots: Sequence[int], heads: Heads
    ) -> tuple[Tensor, Tensor]:
        """Do the same as `prefill`, and return attention weights too.

        Returns:
            The hidden states, and the weights of the heads: `(rows, heads, tokens, states)`.
        """
        attention = RecordingAttention(PrefillAttention(self._cache, slots, list(map(len, tokens))), heads)
        return self._prefill(tokens, attention), attention.weights

    def _prefill(self, tokens: Sequence[Sequence[int]], attention: DecoderAttention) -> Tensor:
        device = self._cache.device
        padded = to_device(pad(tokens, max(map(len, tokens))), device)
        hidden: Tensor = self._model.decoder(padded, torch.arange(padded.shape[1], device=device), attention)
        return hidden

    def step(self, positions: dict[int, int]) -> Tensor:
        """Run one token in each slot; see `ForwardPass.step`."""
        return self._step(positions, self._decode_attention(positions))

    def step_with_attention(self, positions: dict[int, int], heads: Heads) -> tuple[Tensor, Tensor]:
        """Do the same as `step`, and return attention weights too.

        Returns:
            The logits, and the weights of the heads: `(rows, heads, 1, states)`.
        """
        attention = RecordingAttention(self._decode_attention(positions), heads)
        return self._step(positions, attention), attention.weights

    def _decode_attention(self, positions: dict[int, int]) -> DecodeAttention:
        running, n_rows = positions.values(), n_rows_of(positions)
        return DecodeAttention(
            self._cache,
            n_rows,
            self._positions[:n_rows],
            n_positions=max(running) + 1,
            is_ragged=min(running) != max(running),
        )

    def _step(self, positions: dict[int, int], attention: DecoderAttention) -> Tensor:
        n_rows = n_rows_of(positions)
        hidden = self._model.decoder(self._tokens[:n_rows, None], self._positions[:n_rows, None], attention)
        return self.logits(hidden[:, 0])

    def logits(self, hidden: Tensor) -> Tensor:
        """`(rows, d_model)` to `(rows, vocab_size)` float32."""
        return self._model.decoder.logits(hidden)


def n_rows_of(slots: Iterable[int]) -> int:
    """Slots up to the highest of these. A step runs all of them, free ones included."""
    return max(slots) + 1


def pad(sequences: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Rows of the same length: each sequence, then zeros."""
    return [[*row, *([0] * (length - len(row)))] for row in sequences]
