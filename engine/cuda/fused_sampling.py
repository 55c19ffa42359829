"""Samples greedily under the rules in one kernel: the twin of `logit_rules.py` and `greedy` for an NVIDIA GPU."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.checkpoint.checkpoint import Checkpoint
from engine.decoding.logit_rules import RuleState

_BLOCK = 4096
_NEVER = 1
_NOT_FIRST = 2


@triton.jit
def _sample(
    LOGITS,
    BANS,
    WITH_TIMES,
    AT_BEGIN,
    LAST_IS_TIME,
    SECOND_IS_TIME,
    LAST_TIME,
    TOKENS,
    POSITIONS,
    OUT,
    n_rows,
    eot,
    first_time,
    last_initial,
    last_position,
    N_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    with_times = tl.load(WITH_TIMES + row).to(tl.int1)
    at_begin = tl.load(AT_BEGIN + row).to(tl.int1)
    last_is_time = tl.load(LAST_IS_TIME + row).to(tl.int1)
    second_is_time = tl.load(SECOND_IS_TIME + row).to(tl.int1)
    last_time = tl.load(LAST_TIME + row)

    # As `Timestamps.apply` has it.
    closes = last_is_time & (second_is_time == 0)
    opens = last_is_time & second_is_time
    text_from = tl.where(at_begin, first_time, tl.where(closes, eot, 0))
    times_from = tl.where(opens, N_TOKENS, tl.where(closes, last_time, last_time + 1))
    times_to = tl.where(at_begin, last_initial, N_TOKENS)

    best_text, text_at, text_sum = -1e30, 0, 0.0
    best_time, time_at, time_sum = -1e30, first_time, 0.0
    for first in range(0, N_TOKENS, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        inside = ids < N_TOKENS
        logits = tl.load(LOGITS + row.to(tl.int64) * N_TOKENS + ids, mask=inside, other=-1e30)
        bans = tl.load(BANS + ids, mask=inside, other=1)
        allowed = inside & ((bans & 1) == 0) & ((at_begin == 0) | ((bans & 2) == 0))
        is_time = ids >= first_time
        in_time = (ids >= times_from) & (ids <= times_to)
        in_text = (ids >= text_from) & (ids != first_time - 1)
        fits = tl.where(is_time, in_time, in_text)
        allowed = allowed & ((with_times == 0) | fits)

        text = tl.where(allowed & (is_time == 0), logits, -1e30)
        top = tl.max(text, 0)
        if top > best_text:
            text_sum = text_sum * tl.exp(best_text - top)
            text_at = first + tl.argmax(text, 0)
            best_text = top
        text_sum += tl.sum(tl.where(text > -1e30, tl.exp(text - best_text), 0.0), 0)

        times = tl.where(allowed & is_time, logits, -1e30)
        top = tl.max(times, 0)
        if top > best_time:
            time_sum = time_sum * tl.exp(best_time - top)
            time_at = first + tl.argmax(times, 0)
            best_time = top
        time_sum += tl.sum(tl.where(times > -1e30, tl.exp(times - best_time), 0.0), 0)

    # Together more likely than any text token.
    beats_text = with_times & (best_time + tl.log(tl.maximum(time_sum, 1e-37)) > best_text)
    takes_time = beats_text | (best_time > best_text)
    best = tl.where(takes_time, best_time, best_text)
    token = tl.where(takes_time, time_at, text_at)
    total = time_sum * tl.exp(best_time - best)
    total = tl.where(beats_text, total, total + text_sum * tl.exp(best_text - best))

    is_time = token >= first_time
    tl.store(OUT + row, token.to(tl.float32))
    tl.store(OUT + n_rows + row, -tl.log(total))
    tl.store(TOKENS + row, token.to(tl.int64))
    tl.store(POSITIONS + row, tl.minimum(tl.load(POSITIONS + row) + 1, last_position))
    tl.store(SECOND_IS_TIME + row, (last_is_time | at_begin).to(tl.int8))
    tl.store(LAST_IS_TIME + row, is_time.to(tl.int8))
    tl.store(AT_BEGIN + row, tl.zeros([], tl.int8))
    tl.store(LAST_TIME + row, tl.where(is_time, token, last_time).to(tl.int64))


class FusedSampler:
    """Knows a checkpoint's rules, and moves the rows of these tensors on."""

    def __init__(self, checkpoint: Checkpoint, state: RuleState, tokens: Tensor, positions: Tensor) -> None:
        """Args:
        state, tokens, positions: what the rules know, the last token and where it stands, for every row.
        """
        self._model = checkpoint.model
        self._tokenizer = checkpoint.tokenizer
        generation = checkpoint.generation
        latest = generation.max_initial_timestamp_index
        self._last_initial = self._model.vocab_size if latest is None else self._tokenizer.first_timestamp + latest
        self._bans = _bans(self._model.vocab_size, generation.suppress_tokens, generation.begin_suppress_tokens).to(
            tokens.device
        )
        self._state = state
        self._tokens = tokens
        self._positions = positions

    def __call__(self, logits: Tensor) -> Tensor:
        """The likeliest token that the rules allow each of the first rows, and its log-probability.

        Args:
            logits: `(rows, vocab_size)` float32; it is left as it is.

        Returns:
            `(2, rows)` float32.
        """
        rows, n_tokens = logits.shape
        state = self._state
        out = torch.empty((2, rows), device=logits.device)
        _sample[(rows,)](
            logits,
            self._bans,
            state.with_timestamps.view(torch.int8),
            state.is_at_begin.view(torch.int8),
            state.last_is_time.view(torch.int8),
            state.second_last_is_time.view(torch.int8),
            state.last_time,
            self._tokens,
            self._positions,
            out,
            rows,
            self._tokenizer.eot,
            self._tokenizer.first_timestamp,
            self._last_initial,
            self._model.max_target_positions - 1,
            N_TOKENS=n_tokens,
            BLOCK=_BLOCK,
            num_warps=8,
        )
        return out


def _bans(vocab_size: int, never: Sequence[int], not_first: Sequence[int]) -> Tensor:
    bans = torch.zeros(vocab_size, dtype=torch.int8)
    bans[list(never)] |= _NEVER
    bans[list(not_first)] |= _NOT_FIRST
    return bans
