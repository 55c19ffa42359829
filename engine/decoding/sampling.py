"""Samples the next token of every row: the likeliest one, or at a temperature a random one, from the row's own seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutti_server.engine.decoding.beam_search import BeamSearch


@dataclass(frozen=True, slots=True)
class Draw:
    """How the tokens of one decoding attempt are sampled."""

    temperature: float = 0.0
    """0 always takes the likeliest token."""
    seed: int = 0
    """The same seed gives the same tokens, whichever windows share the batch."""
    n_attention_samples: int = 0
    """The number of audio samples, from the start of the window, whose encoder states count for attention peaks.

    0 if no attention peaks are wanted.
    """
    search: BeamSearch | None = None
    """The slots of a beam search, which takes the place of sampling; the first slot holds the window."""


class Sampler:
    """Holds the draw of every slot. A slot without one is greedy."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._draws: dict[int, tuple[float, torch.Generator]] = {}
        """Temperature and random numbers of the slots whose temperature is above 0."""

    def begin(self, slot: int, draw: Draw) -> None:
        """Set the draw of a slot, in place of the one it had."""
        self.end(slot)
        if draw.temperature > 0:
            generator = torch.Generator(self._device).manual_seed(draw.seed)
            self._draws[slot] = (draw.temperature, generator)

    def end(self, slot: int) -> None:
        """Make a slot greedy."""
        self._draws.pop(slot, None)

    @property
    def draws_any(self) -> bool:
        """Whether at least one slot has a temperature above 0."""
        return bool(self._draws)

    def sample(self, slots: Sequence[int], logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and their log-probabilities, `(rows,)` each.

        Log-probabilities are the model's, without the temperature. Source: openai/whisper, whisper/decoding.py,
        `GreedyDecoder.update`.

        Args:
            logits: `(rows, vocab_size)`.
        """
        # The largest of the logits plus Gumbel noise is a draw from their softmax.
        wanted = logits
        for row, slot in enumerate(slots) if self._draws else ():
            if slot in self._draws:
                temperature, generator = self._draws[slot]
                wanted = logits.clone() if wanted is logits else wanted
                noise = torch.empty_like(logits[row]).exponential_(generator=generator)
                wanted[row] = logits[row] / temperature - noise.log()
        if logits.device.type == "cpu":
            # NumPy finds the largest number in a tenth of PyTorch's time; `log_softmax` reads each row once.
            tokens = torch.from_numpy(wanted.numpy().argmax(axis=-1))
            return tokens, logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        tokens = wanted.argmax(dim=-1)
        logprobs = logits.gather(1, tokens[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
        return tokens, logprobs
