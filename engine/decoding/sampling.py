"""Draws the next token of every row: the likeliest, or at a temperature, with random numbers of the row's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draw:
    """How the tokens of one reading are drawn."""

    temperature: float = 0.0
    """0 is the likeliest token always."""
    seed: int = 0
    """The same seed draws the same tokens, whoever shares the batch."""
    watched_samples: int = 0
    """Say of each token where in so much audio the alignment heads looked; 0 for not."""


class Sampler:
    """Knows the draw of every slot. A slot that has none is greedy."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._draws: dict[int, tuple[float, torch.Generator]] = {}
        """Of slots with a temperature above 0."""

    def begin(self, slot: int, draw: Draw) -> None:
        self.end(slot)
        if draw.temperature > 0:
            generator = torch.Generator(self._device).manual_seed(draw.seed)
            self._draws[slot] = (draw.temperature, generator)

    def end(self, slot: int) -> None:
        self._draws.pop(slot, None)

    @property
    def draws_any(self) -> bool:
        """Some slot is not greedy."""
        return bool(self._draws)

    def sample(self, slots: Sequence[int], logits: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and their log-probabilities, `(rows,)` each, from `(rows, vocab_size)`; row `i` is of `slots[i]`.

        Log-probabilities are those of the model, whatever the temperature. Source: openai/whisper,
        whisper/decoding.py, `GreedyDecoder.update`.
        """
        # The largest of the logits with Gumbel noise is a draw from their softmax.
        wanted = logits
        for row, slot in enumerate(slots) if self._draws else ():
            if slot in self._draws:
                temperature, generator = self._draws[slot]
                wanted = logits.clone() if wanted is logits else wanted
                noise = torch.empty_like(logits[row]).exponential_(generator=generator)
                wanted[row] = logits[row] / temperature - noise.log()
        tokens = wanted.argmax(dim=-1)
        logprobs = logits.gather(1, tokens[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
        return tokens, logprobs
