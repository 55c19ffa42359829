"""Greedy sampling under Whisper's rules, in one kernel for a decode step.

It implements the rules of engine/decoding/logit_rules.py a second time, and must change together with them. It chooses
the tokens that those rules and `Sampler` choose for slots without a temperature and without hotwords; the tests compare
the two. The suppressed tokens, here the banned ones, come from the checkpoint's generation config. One program handles
one row.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.followed_search import N_LANES
from tutti_server.engine.decoding.logit_rules import RuleState
from tutti_server.engine.model.host_transfer import to_device

_BLOCK = 4096
"""Logits that a program loads at a time."""
# The kernel `_sample` tests these two flags as the literals 1 and 2, in `bans & 1` and `bans & 2`: the two must agree.
_BANNED = 1
"""The flag of a token that is never sampled."""
_BANNED_AT_BEGIN = 2
"""The flag of a token that is not sampled first."""
_ROW_STATE = ["WITH_TIMES", "AT_BEGIN", "LAST_IS_TIME", "SECOND_LAST_IS_TIME", "LAST_TIME"]
"""Arguments that are rows of a tensor, at any address. Triton would compile a kernel for each kind of addresses."""


@triton.jit
def _add_block(logits, first, peak, peak_token, total):
    """Add a block of logits to a running softmax: the largest logit, its token, and the sum of all weights.

    The sum is of `exp(logit - peak)`. A token that is not allowed has the logit -1e30 and the weight 0.
    """
    top = tl.max(logits, 0)
    if top > peak:
        total = total * tl.exp(peak - top)
        peak_token = first + tl.argmax(logits, 0)
        peak = top
    total += tl.sum(tl.where(logits > -1e30, tl.exp(logits - peak), 0.0), 0)
    return peak, peak_token, total


@triton.jit
def _timestamp_ranges(
    is_at_begin,
    last_is_time,
    second_last_is_time,
    last_time,
    eot,
    first_time,
    last_initial_time,
    N_TOKENS: tl.constexpr,
):
    """Compute the ranges that `Timestamps.apply` allows: the first text token, the first timestamp, the last timestamp.

    The end time of a segment is followed by a start time, which may be the same time again, or by the end of the text.
    A start time is followed by text.
    """
    closes_segment = last_is_time & (second_last_is_time == 0)
    opens_segment = last_is_time & second_last_is_time
    text_begin = tl.where(is_at_begin, first_time, tl.where(closes_segment, eot, 0))
    time_begin = tl.where(opens_segment, N_TOKENS, tl.where(closes_segment, last_time, last_time + 1))
    time_end = tl.where(is_at_begin, last_initial_time, N_TOKENS)
    return text_begin, time_begin, time_end


@triton.jit
def _allowed(bans, ids, is_inside, with_times, is_at_begin, text_begin, time_begin, time_end, first_time):
    """Return which tokens of a block the rules allow."""
    is_allowed = is_inside & ((bans & 1) == 0) & ((is_at_begin == 0) | ((bans & 2) == 0))
    is_in_time_range = (ids >= time_begin) & (ids <= time_end)
    is_in_text_range = (ids >= text_begin) & (ids != first_time - 1)
    fits_timestamps = tl.where(ids >= first_time, is_in_time_range, is_in_text_range)
    return is_allowed & ((with_times == 0) | fits_timestamps)


@triton.jit(
    do_not_specialize=["n_rows"], do_not_specialize_on_alignment=[*_ROW_STATE, "TOKENS", "POSITIONS", "N_CANDIDATES"]
)
def _sample(  # noqa: PLR0915
    LOGITS,
    BANS,
    WITH_TIMES,
    AT_BEGIN,
    LAST_IS_TIME,
    SECOND_LAST_IS_TIME,
    LAST_TIME,
    TOKENS,
    POSITIONS,
    OUT,
    N_CANDIDATES,
    CANDIDATE_LOGPROBS,
    CANDIDATE_TOKENS,
    n_rows,
    eot,
    first_time,
    last_initial_time,
    last_position,
    N_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """Sample one row's next token, and update what the rules know of the row.

    A row that wants candidates gets its likeliest tokens instead, and stays as it is but for its position.
    """
    row = tl.program_id(0)
    with_times = tl.load(WITH_TIMES + row).to(tl.int1)
    is_at_begin = tl.load(AT_BEGIN + row).to(tl.int1)
    last_is_time = tl.load(LAST_IS_TIME + row).to(tl.int1)
    second_last_is_time = tl.load(SECOND_LAST_IS_TIME + row).to(tl.int1)
    last_time = tl.load(LAST_TIME + row)

    text_begin, time_begin, time_end = _timestamp_ranges(
        is_at_begin, last_is_time, second_last_is_time, last_time, eot, first_time, last_initial_time, N_TOKENS
    )

    # Text and times have softmaxes of their own, because the rules compare the two.
    text_peak, text_token, text_total = -1e30, 0, 0.0
    time_peak, time_token, time_total = -1e30, first_time, 0.0
    for first in range(0, N_TOKENS, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        is_inside = ids < N_TOKENS
        logits = tl.load(LOGITS + row.to(tl.int64) * N_TOKENS + ids, mask=is_inside, other=-1e30)
        bans = tl.load(BANS + ids, mask=is_inside, other=1)
        is_allowed = _allowed(
            bans, ids, is_inside, with_times, is_at_begin, text_begin, time_begin, time_end, first_time
        )
        is_time = ids >= first_time
        text = tl.where(is_allowed & (is_time == 0), logits, -1e30)
        text_peak, text_token, text_total = _add_block(text, first, text_peak, text_token, text_total)
        times = tl.where(is_allowed & is_time, logits, -1e30)
        time_peak, time_token, time_total = _add_block(times, first, time_peak, time_token, time_total)

    # A time is sampled where all times together are likelier than any text token.
    times_win = with_times & (time_peak + tl.log(tl.maximum(time_total, 1e-37)) > text_peak)
    picks_time = times_win | (time_peak > text_peak)
    peak = tl.where(picks_time, time_peak, text_peak)
    token = tl.where(picks_time, time_token, text_token)
    # The rule then bans all text, so that only the times count for the log-probability.
    total = time_total * tl.exp(time_peak - peak)
    total = tl.where(times_win, total, total + text_total * tl.exp(text_peak - peak))

    is_time = token >= first_time
    tl.store(OUT + row, token.to(tl.float32))
    tl.store(OUT + n_rows + row, -tl.log(total))
    tl.store(POSITIONS + row, tl.minimum(tl.load(POSITIONS + row) + 1, last_position))
    n_candidates = tl.load(N_CANDIDATES + row)
    if n_candidates > 0:
        lane = tl.arange(0, LANES)
        best = tl.where(lane < n_candidates, -1e30, float("inf"))
        best_tokens = tl.zeros([LANES], tl.int32)
        for first in range(0, N_TOKENS, BLOCK):
            ids = first + tl.arange(0, BLOCK)
            is_inside = ids < N_TOKENS
            logits = tl.load(LOGITS + row.to(tl.int64) * N_TOKENS + ids, mask=is_inside, other=-1e30)
            bans = tl.load(BANS + ids, mask=is_inside, other=1)
            is_allowed = _allowed(
                bans, ids, is_inside, with_times, is_at_begin, text_begin, time_begin, time_end, first_time
            )
            is_allowed = is_allowed & ((ids >= first_time) | (times_win == 0))
            logits = tl.where(is_allowed, logits, -1e30)
            top, least = tl.max(logits, 0), tl.min(best, 0)
            while top > least:
                at = tl.argmax(logits, 0)
                is_least = lane == tl.argmin(best, 0)
                best = tl.where(is_least, top, best)
                best_tokens = tl.where(is_least, first + at, best_tokens)
                logits = tl.where(ids == first + at, -1e30, logits)
                top, least = tl.max(logits, 0), tl.min(best, 0)
        places = row * LANES + lane
        tl.store(CANDIDATE_LOGPROBS + places, best - (peak + tl.log(total)), mask=lane < n_candidates)
        tl.store(CANDIDATE_TOKENS + places, best_tokens, mask=lane < n_candidates)
    else:
        tl.store(TOKENS + row, token.to(tl.int64))
        tl.store(SECOND_LAST_IS_TIME + row, (last_is_time | is_at_begin).to(tl.int8))
        tl.store(LAST_IS_TIME + row, is_time.to(tl.int8))
        tl.store(AT_BEGIN + row, tl.zeros([], tl.int8))
        tl.store(LAST_TIME + row, tl.where(is_time, token, last_time).to(tl.int64))


@triton.jit(
    do_not_specialize_on_alignment=[
        *_ROW_STATE,
        *(f"FROM_{name}" for name in _ROW_STATE if name != "AT_BEGIN"),
        *("SLOTS", "FIRST_PLACES", "N_DRAFTED", "N_PROMPT", "DRAFTED"),
    ]
)
def _start(
    SAMPLED,
    DRAFTED,
    FROM_WITH_TIMES,
    FROM_LAST_IS_TIME,
    FROM_SECOND_LAST_IS_TIME,
    FROM_LAST_TIME,
    SLOTS,
    FIRST_PLACES,
    N_DRAFTED,
    N_PROMPT,
    WITH_TIMES,
    AT_BEGIN,
    LAST_IS_TIME,
    SECOND_LAST_IS_TIME,
    LAST_TIME,
    TOKENS,
    POSITIONS,
):
    """Verify the draft of one prompt, and let its slot run from the last token that counts."""
    prompt = tl.program_id(0)
    slot = tl.load(SLOTS + prompt)
    first = tl.load(FIRST_PLACES + prompt)
    n_drafted = tl.load(N_DRAFTED + prompt)
    # As `_accept_drafts` in engine/runner.py: all before the first that differs from the sampled token count.
    n_accepted, is_same = tl.zeros([], tl.int64), n_drafted >= 0
    for index in range(0, n_drafted):
        place = first + index
        is_same = is_same & (tl.load(SAMPLED + place).to(tl.int64) == tl.load(DRAFTED + place))
        n_accepted += is_same.to(tl.int64)
    last = first + n_accepted
    tl.store(TOKENS + slot, tl.load(SAMPLED + last).to(tl.int64))
    tl.store(POSITIONS + slot, tl.load(N_PROMPT + prompt) + n_accepted)
    tl.store(WITH_TIMES + slot, tl.load(FROM_WITH_TIMES + last))
    tl.store(AT_BEGIN + slot, tl.zeros([], tl.int8))
    tl.store(LAST_IS_TIME + slot, tl.load(FROM_LAST_IS_TIME + last))
    tl.store(SECOND_LAST_IS_TIME + slot, tl.load(FROM_SECOND_LAST_IS_TIME + last))
    tl.store(LAST_TIME + slot, tl.load(FROM_LAST_TIME + last))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest next tokens of rows. They are looked for only in rows that want any."""

    n_wanted: Tensor
    """`(rows,)` int32: how many, at most `N_LANES`; 0 lets a row be sampled instead."""
    logprobs: Tensor
    """`(rows, N_LANES)` float32: their log-probabilities, in any order."""
    tokens: Tensor
    """`(rows, N_LANES)` int32."""

    @classmethod
    def none(cls, n_rows: int, device: torch.device) -> "Candidates":
        """Return those of rows that want none."""
        return cls(
            n_wanted=torch.zeros(n_rows, dtype=torch.int32, device=device),
            logprobs=torch.zeros((n_rows, N_LANES), device=device),
            tokens=torch.zeros((n_rows, N_LANES), dtype=torch.int32, device=device),
        )


class FusedSampler:
    """Samples with one checkpoint's rules, and updates the tensors that hold the state of every row."""

    def __init__(self, checkpoint: Checkpoint, state: RuleState, tokens: Tensor, positions: Tensor) -> None:
        """Keep the tensors, which have one entry for each row.

        Args:
            state: what the rules know of each row.
            tokens: `(rows,)` int64: the last token of each row.
            positions: `(rows,)` int64: the position of this token.
        """
        self._model = checkpoint.model
        self._tokenizer = checkpoint.tokenizer
        generation = checkpoint.generation
        latest = generation.max_initial_timestamp_index
        self._last_initial_time = self._model.vocab_size if latest is None else self._tokenizer.first_timestamp + latest
        self._bans = _ban_flags(
            self._model.vocab_size, generation.suppress_tokens, generation.begin_suppress_tokens
        ).to(tokens.device)
        self._state = state
        self._tokens = tokens
        self._positions = positions
        self.candidates = Candidates.none(len(tokens), tokens.device)
        """The likeliest next tokens of the slots that want them, after each call."""

    def __call__(self, logits: Tensor) -> Tensor:
        """Sample the likeliest token that the rules allow, for each of the first rows; or find its candidates.

        Args:
            logits: `(rows, vocab_size)` float32. They are not changed.

        Returns:
            `(2, rows)` float32: the tokens, and their log-probabilities.
        """
        return self._launch(logits, self._state, self._tokens, self._positions, self.candidates)

    def sample_apart(self, logits: Tensor, state: RuleState) -> Tensor:
        """Do the same for rows that are no slots. `state`, what the rules know of each, is moved on by its token."""
        tokens, positions, n_wanted = torch.zeros((3, len(logits)), dtype=torch.long, device=logits.device)
        apart = replace(self.candidates, n_wanted=n_wanted.to(torch.int32))
        return self._launch(logits, state, tokens, positions, apart)

    def find_candidates(self, logits: Tensor, state: RuleState, n_wanted: Sequence[int]) -> Candidates:
        """Find the likeliest next tokens of rows that are no slots.

        Args:
            logits: `(rows, vocab_size)` float32. They are not changed.
            state: what the rules know of each row.
            n_wanted: how many to find in each row.
        """
        found = Candidates.none(len(logits), logits.device)
        found.n_wanted.copy_(to_device(n_wanted, logits.device))
        tokens, positions = torch.zeros((2, len(logits)), dtype=torch.long, device=logits.device)
        self._launch(logits, state, tokens, positions, found)
        return found

    def start(self, sampled: Tensor, state: RuleState, drafted: Tensor, prompts: Tensor) -> None:
        """Let slots run from what was sampled after their prompts, without the host: it need not know the tokens yet.

        Args:
            sampled: `(2, places)`, as `sample_apart` returned it for the places after the prompts and draft tokens.
            state: what the rules know of these places since then.
            drafted: `(places,)` int64: the draft token that follows each place, any number after the last one.
            prompts: `(4, prompts)` int64: the slot, the first place, and the numbers of draft and of prompt tokens.
        """
        own = self._state
        _start[(prompts.shape[1],)](
            sampled,
            drafted,
            state.with_timestamps.view(torch.int8),
            state.last_is_time.view(torch.int8),
            state.second_last_is_time.view(torch.int8),
            state.last_time,
            *prompts,
            own.with_timestamps.view(torch.int8),
            own.is_at_begin.view(torch.int8),
            own.last_is_time.view(torch.int8),
            own.second_last_is_time.view(torch.int8),
            own.last_time,
            self._tokens,
            self._positions,
        )

    def _launch(
        self, logits: Tensor, state: RuleState, tokens: Tensor, positions: Tensor, candidates: Candidates
    ) -> Tensor:
        rows, n_tokens = logits.shape
        out = torch.empty((2, rows), device=logits.device)
        _sample[(rows,)](
            logits,
            self._bans,
            state.with_timestamps.view(torch.int8),
            state.is_at_begin.view(torch.int8),
            state.last_is_time.view(torch.int8),
            state.second_last_is_time.view(torch.int8),
            state.last_time,
            tokens,
            positions,
            out,
            candidates.n_wanted,
            candidates.logprobs,
            candidates.tokens,
            rows,
            self._tokenizer.eot,
            self._tokenizer.first_timestamp,
            self._last_initial_time,
            self._model.max_target_positions - 1,
            N_TOKENS=n_tokens,
            BLOCK=_BLOCK,
            LANES=N_LANES,
            num_warps=8,
        )
        return out


def _ban_flags(vocab_size: int, banned: Sequence[int], banned_at_begin: Sequence[int]) -> Tensor:
    """Return the flags of every token, `_BANNED` and `_BANNED_AT_BEGIN`: `(vocab_size,)` int8."""
    flags = torch.zeros(vocab_size, dtype=torch.int8)
    flags[list(banned)] |= _BANNED
    flags[list(banned_at_begin)] |= _BANNED_AT_BEGIN
    return flags
