"""Beam search on the GPU: which beams of a search go on with which tokens, and what each takes over from another.

`_decide` does what `BeamSearch.advance` in engine/decoding/beam_search.py does, with the same sums, and must change
together with it; the tests compare the two. One program decides one search. A beam that goes on keeps the place of its
parent if it is the likeliest of its parent's, so that no place is written that another beam still reads.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from tutti_server.engine.decoding.followed_search import N_LANES, N_NUMBERS, NOT_ENDED
from tutti_server.engine.decoding.logit_rules import RuleState

_COPIED = 512
"""Numbers that a program copies at a time."""
_NAMES = ["AT_BEGIN", "LAST_IS_TIME", "SECOND_LAST_IS_TIME", "LAST_TIME", "MEMBERS", "TOKENS", "POSITIONS", "OUT"]
"""Arguments of any address. Triton would compile a kernel for each kind of addresses."""


@triton.jit(do_not_specialize=["eot", "first_time"], do_not_specialize_on_alignment=_NAMES)
def _decide(  # noqa: PLR0915
    MEMBERS,
    LOGPROBS,
    NEXT_TOKENS,
    SUMS,
    COMMON,
    N_ENDED,
    IS_OVER,
    N_WANTED,
    BEGINS,
    MAX_NEW,
    TOKENS,
    POSITIONS,
    AT_BEGIN,
    LAST_IS_TIME,
    SECOND_LAST_IS_TIME,
    LAST_TIME,
    SOURCES,
    COPIED_FROM,
    OUT,
    eot,
    first_time,
    LANES: tl.constexpr,
    NO_END: tl.constexpr,
):
    """Let the likeliest hypotheses of one search go on."""
    lane = tl.arange(0, LANES)
    members = MEMBERS + tl.program_id(0) * LANES
    slots = tl.load(members + lane)
    is_beam = slots >= 0
    slots = tl.where(is_beam, slots, 0)
    n_beams = tl.sum(is_beam.to(tl.int32), 0)
    owner = tl.load(members)
    out = OUT + tl.program_id(0) * (1 + 4 * LANES)
    tl.store(SOURCES + slots, tl.full([LANES], -1, tl.int64), mask=is_beam)
    if tl.load(IS_OVER + owner) != 0:
        tl.store(out, 1.0)
        return

    is_candidate = is_beam[:, None] & (lane[None, :] <= n_beams)
    places = slots[:, None] * LANES + lane[None, :]
    logprobs = tl.load(LOGPROBS + places, mask=is_candidate, other=0.0)
    tokens = tl.load(NEXT_TOKENS + places, mask=is_candidate, other=0)
    sums = tl.load(SUMS + slots, mask=is_beam, other=0.0)[:, None] + logprobs.to(tl.float64)
    # What was chosen already is below all that may still be chosen.
    scores = tl.where(is_candidate, tl.maximum(sums, -1e300), float("-inf"))
    index = lane[:, None] * LANES + lane[None, :]

    n_ended, n_wanted = tl.load(N_ENDED + owner), tl.load(N_WANTED + owner)
    end_logprobs = tl.full([LANES], NO_END, tl.float32)
    kept = tl.zeros([LANES], tl.int32)
    parents = lane
    own_tokens, own_logprobs = tl.zeros([LANES], tl.int32), tl.zeros([LANES], tl.float32)
    own_sums = tl.zeros([LANES], tl.float64)
    waiting_parents, waiting_tokens = tl.zeros([LANES], tl.int32), tl.zeros([LANES], tl.int32)
    waiting_logprobs, waiting_sums = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float64)
    n_chosen, n_waiting = tl.zeros([], tl.int32), tl.zeros([], tl.int32)
    while n_chosen < n_beams:
        best = tl.max(tl.max(scores, 1), 0)
        at = tl.min(tl.min(tl.where(scores == best, index, LANES * LANES), 1), 0)
        is_it = index == at
        parent = at // LANES
        token = tl.sum(tl.sum(tl.where(is_it, tokens, 0), 1), 0)
        logprob = tl.sum(tl.sum(tl.where(is_it, logprobs, 0.0), 1), 0)
        total = tl.sum(tl.sum(tl.where(is_it, sums, 0.0), 1), 0)
        scores = tl.where(is_it, float("-inf"), scores)
        is_end = token == eot
        counts = is_end & (n_ended < n_wanted)
        end_logprobs = tl.where((lane == parent) & counts, logprob, end_logprobs)
        n_ended += counts.to(tl.int32)
        is_taken = tl.sum(tl.where(lane == parent, kept, 0), 0)
        keeps_place = (is_end == 0) & (is_taken == 0)
        waits = (is_end == 0) & (is_taken != 0)
        here = (lane == parent) & keeps_place
        own_tokens = tl.where(here, token, own_tokens)
        own_logprobs = tl.where(here, logprob, own_logprobs)
        own_sums = tl.where(here, total, own_sums)
        kept = tl.where(here, 1, kept)
        there = (lane == n_waiting) & waits
        waiting_parents = tl.where(there, parent, waiting_parents)
        waiting_tokens = tl.where(there, token, waiting_tokens)
        waiting_logprobs = tl.where(there, logprob, waiting_logprobs)
        waiting_sums = tl.where(there, total, waiting_sums)
        n_waiting += waits.to(tl.int32)
        n_chosen += 1 - is_end.to(tl.int32)
    # The others take the places of beams that nobody goes on from.
    for number in range(0, n_waiting):
        place = tl.min(tl.where(is_beam & (kept == 0), lane, LANES), 0)
        here, it = lane == place, lane == number
        parents = tl.where(here, tl.sum(tl.where(it, waiting_parents, 0), 0), parents)
        own_tokens = tl.where(here, tl.sum(tl.where(it, waiting_tokens, 0), 0), own_tokens)
        own_logprobs = tl.where(here, tl.sum(tl.where(it, waiting_logprobs, 0.0), 0), own_logprobs)
        own_sums = tl.where(here, tl.sum(tl.where(it, waiting_sums, 0.0), 0), own_sums)
        kept = tl.where(here, 1, kept)

    # Everything that a beam takes over is read before anything is written.
    parent_slots = tl.load(members + parents, mask=is_beam, other=0)
    n_run = (tl.load(POSITIONS + owner) - tl.load(BEGINS + owner)).to(tl.int32)
    common = tl.load(COMMON + parent_slots[:, None] * LANES + parents[None, :])
    common = tl.where(parents[:, None] == parents[None, :], n_run, common)
    n_same = tl.load(COMMON + slots * LANES + parents)
    was_at_begin = tl.load(AT_BEGIN + parent_slots)
    was_time = tl.load(LAST_IS_TIME + parent_slots)
    before = tl.load(LAST_TIME + parent_slots)
    begin = tl.load(BEGINS + owner)
    is_over = (n_ended >= n_wanted) | (n_run + 1 >= tl.load(MAX_NEW + owner))
    tl.debug_barrier()
    moves = is_beam & (parents != lane) & (is_over == 0)
    tl.store(SOURCES + slots, tl.where(moves, parent_slots, -1), mask=is_beam)
    tl.store(COPIED_FROM + slots, (begin + n_same).to(tl.int32), mask=is_beam)
    tl.store(COMMON + slots[:, None] * LANES + lane[None, :], common, mask=is_beam[:, None])
    tl.store(SUMS + slots, own_sums, mask=is_beam)
    tl.store(TOKENS + slots, own_tokens.to(tl.int64), mask=is_beam)
    is_time = own_tokens >= first_time
    tl.store(SECOND_LAST_IS_TIME + slots, ((was_time != 0) | (was_at_begin != 0)).to(tl.int8), mask=is_beam)
    tl.store(AT_BEGIN + slots, tl.zeros([LANES], tl.int8), mask=is_beam)
    tl.store(LAST_IS_TIME + slots, is_time.to(tl.int8), mask=is_beam)
    tl.store(LAST_TIME + slots, tl.where(is_time, own_tokens.to(tl.int64), before), mask=is_beam)
    tl.store(N_ENDED + owner, n_ended)
    tl.store(IS_OVER + owner, is_over.to(tl.int32))
    tl.store(out, is_over.to(tl.float32))
    tl.store(out + 1 + lane, parents.to(tl.float32))
    tl.store(out + 1 + LANES + lane, own_tokens.to(tl.float32))
    tl.store(out + 1 + 2 * LANES + lane, own_logprobs)
    tl.store(out + 1 + 3 * LANES + lane, end_logprobs)


@triton.jit(do_not_specialize_on_alignment=["MEMBERS", "POSITIONS"])
def _copy(
    CACHE,
    MEMBERS,
    POSITIONS,
    SOURCES,
    COPIED_FROM,
    n_slots,
    n_heads,
    n_positions,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
):
    """Copy one layer's keys, or values, of the tokens that a beam takes over from its parent."""
    slot = tl.load(MEMBERS + tl.program_id(0))
    if slot < 0:
        return
    source = tl.load(SOURCES + slot)
    if source < 0:
        return
    begin, end = tl.load(COPIED_FROM + slot), tl.load(POSITIONS + slot)
    base = CACHE + tl.program_id(1).to(tl.int64) * n_slots * n_heads * n_positions * D
    n_numbers = (end - begin).to(tl.int32) * D
    numbers = tl.arange(0, BLOCK)
    for head in range(0, n_heads):
        into = base + ((slot * n_heads + head) * n_positions + begin) * D
        out_of = base + ((source * n_heads + head) * n_positions + begin) * D
        for first in range(0, n_numbers, BLOCK):
            is_inside = first + numbers < n_numbers
            tl.store(into + first + numbers, tl.load(out_of + first + numbers, mask=is_inside), mask=is_inside)


@dataclass(frozen=True, slots=True)
class SearchTensors:
    """What the kernels know of searches: an entry for each slot. What a whole search has is that of its first slot."""

    logprobs: Tensor
    """`(rows, N_LANES)` float32: the log-probabilities of the likeliest next tokens of a beam, in any order."""
    next_tokens: Tensor
    """`(rows, N_LANES)` int32: these tokens."""
    sums: Tensor
    """`(rows,)` float64: the log-probability of a beam."""
    common: Tensor
    """`(rows, N_LANES)` int32: how many of its tokens a beam has in common with each beam of its search."""
    n_ended: Tensor
    """`(rows,)` int32: the hypotheses of a search that have ended."""
    is_over: Tensor
    """`(rows,)` int32: whether a search is over."""
    limits: Tensor
    """`(3, rows)` int64: the hypotheses that are to end, the position of the first token, the most tokens to add."""
    sources: Tensor
    """`(rows,)` int64: the slot from which a beam takes over tokens; -1 for none."""
    copied_from: Tensor
    """`(rows,)` int32: the position of the first token that it takes over."""

    @classmethod
    def blank(cls, logprobs: Tensor, next_tokens: Tensor) -> "SearchTensors":
        """Return those of slots without searches, whose likeliest next tokens will be in these tensors."""
        n_rows, device = len(logprobs), logprobs.device
        return cls(
            logprobs=logprobs,
            next_tokens=next_tokens,
            sums=torch.zeros(n_rows, dtype=torch.float64, device=device),
            common=torch.zeros((n_rows, N_LANES), dtype=torch.int32, device=device),
            n_ended=torch.zeros(n_rows, dtype=torch.int32, device=device),
            is_over=torch.zeros(n_rows, dtype=torch.int32, device=device),
            limits=torch.zeros((3, n_rows), dtype=torch.long, device=device),
            sources=torch.full((n_rows,), -1, dtype=torch.long, device=device),
            copied_from=torch.zeros(n_rows, dtype=torch.int32, device=device),
        )


def decide(
    members: Tensor,
    searches: SearchTensors,
    tokens: Tensor,
    positions: Tensor,
    rules: RuleState,
    *,
    eot: int,
    first_time: int,
) -> Tensor:
    """Let the likeliest hypotheses of every search go on: their tokens become the next input of their slots.

    Args:
        members: `(searches, N_LANES)` int64: the slots of the beams, and then -1.
        searches: the likeliest next tokens of every beam, and what is known of the searches.
        tokens: `(rows,)`: the last token of each slot.
        positions: `(rows,)`: the position of the token that is added.
        rules: what the rules know of each slot, before the token that is added.

    Returns:
        `(searches, N_NUMBERS)` float32: what `FollowedSearch.follow` takes.
    """
    out = torch.empty((len(members), N_NUMBERS), device=members.device)
    _decide[(len(members),)](
        members,
        searches.logprobs,
        searches.next_tokens,
        searches.sums,
        searches.common,
        searches.n_ended,
        searches.is_over,
        *searches.limits,
        tokens,
        positions,
        rules.is_at_begin.view(torch.int8),
        rules.last_is_time.view(torch.int8),
        rules.second_last_is_time.view(torch.int8),
        rules.last_time,
        searches.sources,
        searches.copied_from,
        out,
        eot,
        first_time,
        LANES=N_LANES,
        NO_END=NOT_ENDED,
        num_warps=1,
    )
    return out


def copy_tokens(cache: Tensor, members: Tensor, searches: SearchTensors, positions: Tensor) -> None:
    """Copy what `decide` has noted, in a contiguous `(layers, 2, slots, heads, positions, head_dim)`."""
    n_layers, _, n_slots, n_heads, n_positions, head_dim = cache.shape
    _copy[(members.numel(), 2 * n_layers)](
        cache,
        members,
        positions,
        searches.sources,
        searches.copied_from,
        n_slots,
        n_heads,
        n_positions,
        BLOCK=_COPIED,
        D=head_dim,
        num_warps=4,
    )
