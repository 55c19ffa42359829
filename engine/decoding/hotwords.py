"""Makes the words that a request expects likelier: their tokens get a bounded bonus while they are being written.

The first token of a hotword gets a small bonus, so that it is sampled only where it is nearly as likely as another
token. Every next token gets a larger bonus, so that a word that was begun is spelled to its end.

They are not listed in the model's prompt, as faster-whisper does it. From a list the model spells more of the names
that it misses, but it also writes the list down in place of unclear speech: six hotwords that are not spoken raised the
word errors of tutti-base from 10.5 to 12.1 % on 2,768 words of people. With the bonus alone they are 10.6 %
(`benchmarks.real_speech --hotwords`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS
from tutti_server.engine.model.kv_cache import Rows

FIRST_BONUS = 3.0
"""The bonus added to the logit of a hotword's first token: the token becomes e to this power times likelier.

With a bonus of 4, the text of clear speech has names that are not spoken.
"""
NEXT_BONUS = 5.0
"""The bonus added to the logit of the next token of a hotword that was begun."""

MAX_HOTWORD_TOKENS = MAX_HOTWORD_BYTES + 1
"""The most tokens of a hotword: a token stands for at least one byte, and a space comes before the word."""


class Hotwords:
    """The hotwords of all slots, on the device, and how many tokens of each were written last."""

    def __init__(self, n_slots: int, device: torch.device) -> None:
        # One place more than the longest hotword needs, so that a -1 stands after every hotword.
        self._tokens = torch.full((n_slots, MAX_HOTWORDS, MAX_HOTWORD_TOKENS + 1), -1, device=device)
        self.n_written = torch.zeros((n_slots, MAX_HOTWORDS), dtype=torch.long, device=device)
        """How many tokens of each hotword the slots have written last, `(slots, hotwords)`."""
        self._slots: set[int] = set()

    def begin(self, slot: int, hotwords: Sequence[Sequence[int]], prefix: Sequence[int]) -> None:
        """Set a slot's hotwords, as tokens; `prefix` are the tokens that it has written already."""
        self.end(slot)
        if not hotwords:
            return
        self._slots.add(slot)
        rows = [[*tokens, *(-1 for _ in range(MAX_HOTWORD_TOKENS + 1 - len(tokens)))] for tokens in hotwords]
        self._tokens[slot] = -1
        self._tokens[slot, : len(rows)] = torch.tensor(rows, device=self._tokens.device)
        self.n_written[slot] = 0
        for token in prefix[-MAX_HOTWORD_TOKENS:]:
            self.after(slice(slot, slot + 1), torch.tensor([token], device=self._tokens.device))

    @torch.inference_mode()
    def end(self, slot: int) -> None:
        """Remove a slot's hotwords."""
        if slot in self._slots:
            self._slots.remove(slot)
            self._tokens[slot] = -1

    @property
    def are_any(self) -> bool:
        """Whether at least one slot has hotwords."""
        return bool(self._slots)

    def apply(self, rows: Rows, logits: Tensor) -> None:
        """Add the bonus to `logits`, `(rows, vocab_size)`, in place."""
        if not self._slots:
            return
        expected = self._expected(rows)
        bonus = torch.where(self.n_written[rows] > 0, NEXT_BONUS, FIRST_BONUS) * (expected >= 0)
        # Where two hotwords expect the same token, the larger bonus counts.
        bonuses = torch.zeros_like(logits).scatter_reduce_(1, expected.clamp_min(0), bonus.to(logits.dtype), "amax")
        logits += bonuses

    def after(self, rows: Rows, tokens: Tensor) -> None:
        """Record the sampled `tokens`, `(rows,)`."""
        if not self._slots:
            return
        is_begun = self._tokens[rows][:, :, 0] == tokens[:, None]
        is_next = self._expected(rows) == tokens[:, None]
        self.n_written[rows] = torch.where(is_next, self.n_written[rows] + 1, is_begun.long())

    def _expected(self, rows: Rows) -> Tensor:
        """Return the next token of each hotword, `(rows, hotwords)`; -1 where there is none."""
        return self._tokens[rows].gather(2, self.n_written[rows][:, :, None])[:, :, 0]
