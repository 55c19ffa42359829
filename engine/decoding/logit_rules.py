"""Decoding rules: which tokens may be sampled next. They work on whole batches, on the device, and never wait for it.

engine/cuda/fused_sampling.py implements the same rules in one kernel, for decode steps on a GPU in which no slot has a
temperature above 0, hotwords, beams or attention peaks. The two files must change together; tests/engine/cuda compares
them, in test_fused_model.py. The suppressed tokens and the latest first timestamp come from the checkpoint's generation
config.

Source: transformers, generation/logits_process.py, `SuppressTokensAtBeginLogitsProcessor`,
`SuppressTokensLogitsProcessor` and `WhisperTimeStampLogitsProcessor`, in the order in which `generate` applies them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.model.host_transfer import to_device
from tutti_server.engine.model.kv_cache import Rows

_FORBIDDEN = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """What the rules need to know about the tokens sampled so far, per row; a forced prefix counts as sampled."""

    with_timestamps: Tensor
    """bool: the row's prompt lets the model mark times."""
    is_at_begin: Tensor
    """bool: no token was sampled yet."""
    last_is_time: Tensor
    """bool: the last token is a timestamp."""
    second_last_is_time: Tensor
    """bool: the token before the last one is a timestamp, or there is none."""
    last_time: Tensor
    """int64: the last timestamp token; where there is none, the id before the vocabulary's first timestamp."""

    @classmethod
    def begin(
        cls, prefixes: Sequence[Sequence[int]], with_timestamps: Sequence[bool], first_time: int, device: torch.device
    ) -> "RuleState":
        """Return the state of rows that begin with these forced prefixes."""
        times = [[token for token in prefix if token >= first_time] for prefix in prefixes]
        # One transfer brings all of it to the device.
        values = to_device(
            [
                [int(each) for each in with_timestamps],
                [int(len(prefix) == 0) for prefix in prefixes],
                [int(len(prefix) > 0 and prefix[-1] >= first_time) for prefix in prefixes],
                [int(len(prefix) < 2 or prefix[-2] >= first_time) for prefix in prefixes],
                [row[-1] if row else first_time - 1 for row in times],
            ],
            device,
        )
        with_timestamps_, is_at_begin, last_is_time, second_last_is_time = values[:4].bool()
        return cls(
            with_timestamps=with_timestamps_,
            is_at_begin=is_at_begin,
            last_is_time=last_is_time,
            second_last_is_time=second_last_is_time,
            last_time=values[4],
        )

    def after(self, tokens: Tensor, first_time: int) -> "RuleState":
        """Return the state after `tokens`, `(rows,)`, were sampled."""
        is_time = tokens >= first_time
        return RuleState(
            with_timestamps=self.with_timestamps,
            is_at_begin=torch.zeros_like(self.is_at_begin),
            last_is_time=is_time,
            # Before the first token there is no token, which counts as a timestamp.
            second_last_is_time=self.last_is_time | self.is_at_begin,
            last_time=torch.where(is_time, tokens, self.last_time),
        )

    def select(self, rows: Rows) -> "RuleState":
        """Return the state of some rows."""
        return RuleState(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def store(self, rows: Rows, state: "RuleState") -> None:
        """Write the state of some rows, in place."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(state, field.name)


class Rule(Protocol):
    """Forbids tokens by setting their logits to minus infinity."""

    def apply(self, logits: Tensor, state: RuleState) -> None:
        """Change `logits`, `(rows, vocab_size)` float32, in place."""
        ...


class SuppressAtBegin:
    """Forbids some tokens as the first one: a lone space, the end."""

    def __init__(self, tokens: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(sorted(set(tokens)), dtype=torch.long, device=device)

    def apply(self, logits: Tensor, state: RuleState) -> None:
        """See `Rule`."""
        ruled = torch.where(state.is_at_begin[:, None], _FORBIDDEN, logits[:, self._ids])
        logits.index_copy_(1, self._ids, ruled)


class Suppress:
    """Forbids some tokens everywhere: sounds in brackets, music, most control tokens."""

    def __init__(self, tokens: Sequence[int], device: torch.device) -> None:
        self._ids = torch.tensor(sorted(set(tokens)), dtype=torch.long, device=device)

    def apply(self, logits: Tensor, state: RuleState) -> None:
        """See `Rule`."""
        logits.index_fill_(1, self._ids, _FORBIDDEN)


class Timestamps:
    """Makes timestamps come first, in pairs, and never go back; takes one where it is likelier than all text."""

    def __init__(
        self,
        *,
        eot: int,
        no_timestamps: int,
        max_initial_index: int | None,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self._eot = eot
        self._no_timestamps = no_timestamps
        self._first = no_timestamps + 1
        self._last_initial = vocab_size if max_initial_index is None else self._first + max_initial_index
        self._ids = torch.arange(vocab_size, device=device)

    def apply(self, logits: Tensor, state: RuleState) -> None:
        """See `Rule`."""
        applies = state.with_timestamps
        logits[:, self._no_timestamps].masked_fill_(applies, _FORBIDDEN)
        text, times = logits[:, : self._first], logits[:, self._first :]

        # After a closing timestamp, only a timestamp or the end may follow. At the beginning, only a timestamp.
        closes = state.last_is_time & ~state.second_last_is_time
        text_from = torch.where(closes, self._eot, 0)
        text_from = torch.where(state.is_at_begin, self._first, text_from) * applies

        # After an opening timestamp, no timestamp may follow. Otherwise none before the last one, which may come again
        # only to open the next segment.
        opens = state.last_is_time & state.second_last_is_time
        times_from = torch.where(closes, state.last_time, state.last_time + 1)
        times_from = torch.where(opens, len(self._ids), times_from) * applies
        times_to = torch.where(state.is_at_begin & applies, self._last_initial, len(self._ids))

        if logits.device.type == "cpu":
            _forbid_outside_of_rows(logits, self._first, text_from, times_from, times_to)
        else:
            text_ids, time_ids = self._ids[: self._first], self._ids[self._first :]
            text.masked_fill_(text_ids < text_from[:, None], _FORBIDDEN)
            times.masked_fill_((time_ids < times_from[:, None]) | (time_ids > times_to[:, None]), _FORBIDDEN)

        # Are all timestamps together likelier than any text token? Both sides lack the same normaliser.
        beats_text = (torch.logsumexp(times, dim=-1) > text.amax(dim=-1)) & applies
        if logits.device.type == "cpu":
            for row in beats_text.nonzero().flatten().tolist():
                text[row] = _FORBIDDEN
        else:
            text.masked_fill_(beats_text[:, None], _FORBIDDEN)


def _forbid_outside_of_rows(
    logits: Tensor, first_time: int, text_from: Tensor, times_from: Tensor, times_to: Tensor
) -> None:
    """Forbid text below one id and timestamps outside two ids, `(rows,)` each. A slice costs a CPU less than a mask."""
    bounds = zip(text_from.tolist(), times_from.tolist(), times_to.tolist(), strict=True)
    for row, (text_begin, times_begin, last_time) in zip(logits, bounds, strict=True):
        if text_begin:
            row[: min(text_begin, first_time)] = _FORBIDDEN
        if times_begin > first_time:
            row[first_time:times_begin] = _FORBIDDEN
        if last_time + 1 < len(row):
            row[last_time + 1 :] = _FORBIDDEN


def make_rules(checkpoint: Checkpoint, device: torch.device) -> list[Rule]:
    """Return the rules of a checkpoint, in the order in which they apply."""
    vocab_size, generation = checkpoint.model.vocab_size, checkpoint.generation
    rules: list[Rule] = []
    if generation.begin_suppress_tokens:
        rules.append(SuppressAtBegin(generation.begin_suppress_tokens, device))
    if generation.suppress_tokens:
        rules.append(Suppress(generation.suppress_tokens, device))
    rules.append(
        Timestamps(
            eot=checkpoint.tokenizer.eot,
            no_timestamps=checkpoint.tokenizer.no_timestamps,
            max_initial_index=generation.max_initial_timestamp_index,
            vocab_size=vocab_size,
            device=device,
        )
    )
    return rules
