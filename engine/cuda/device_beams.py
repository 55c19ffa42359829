"""Decodes the beams of searches on the GPU, which decides alone how they go on: steps are launched ahead of the host.

`engine/host_beams.py` does the same where the host decides, on a CPU. The kernels are in `kernels/beams.py`.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.kernels.beams import SearchTensors, copy_tokens, decide
from tutti_server.engine.decoding.beam_search import BeamSearch
from tutti_server.engine.decoding.followed_search import N_LANES, FollowedSearch, PeaksS
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.slot_states import SlotStates
from tutti_server.engine.model.host_transfer import HostRows, HostTransfer, to_device
from tutti_server.engine.model.kv_cache import KVCache


class DeviceBeams:
    """The slots of all beams, where the GPU chooses their tokens.

    The first slot of a search is that of its window; the others borrow the window.
    """

    def __init__(self, states: SlotStates, cache: KVCache, sampler: FusedSampler, transfer: HostTransfer) -> None:
        self._states = states
        self._cache = cache
        self._sampler = sampler
        self._transfer = transfer
        found = sampler.candidates
        self._tensors = SearchTensors.blank(found.logprobs, found.tokens)
        self._launched: tuple[BeamSearch, ...] = ()
        """The searches of which the device knows the slots."""
        self._members = self._tensors.sources[:0].view(0, N_LANES)

    def begin(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        logits: Tensor,
        *,
        are_ruled: bool,
    ) -> HostRows | None:
        """Begin the searches after a prefill: choose the first token of every beam, and share out window and prompt.

        Args:
            slots: the slots of the prefill. Those without a search stay as they are.
            logits: `(slots, vocab_size)`, after each prompt.
            are_ruled: whether the rules have been applied to them.

        Returns:
            What was decided for each search, in the order of the slots; `None` where there is none.
        """
        rows = [row for row, slot in enumerate(slots) if slot in self._states.searches]
        if not rows:
            return None
        searches, own_prompts = [self._states.searches[slots[row]] for row in rows], [prompts[row] for row in rows]
        device = logits.device
        owners, on_device = to_device([[search.slots[0] for search in searches], rows], device)
        own_logits, tensors = logits[on_device], self._tensors
        n_wanted = [search.n_candidates for search in searches]
        if are_ruled:
            self._find(owners, own_logits, max(n_wanted))
        else:
            state = self._states.rules_after(own_prompts, [prompt.prefix for prompt in own_prompts])
            found = self._sampler.find_candidates(own_logits, state, n_wanted)
            tensors.logprobs[owners], tensors.next_tokens[owners] = found.logprobs, found.tokens
        for search in searches:
            owner, *others = search.slots
            self._cache.lend(owner, others)
        members = _members(searches, device)
        own = self._set(searches, own_prompts)
        copy_tokens(self._cache.self_attention, members, tensors, self._states.positions)
        return self._decide(members, own)

    def _set(self, searches: Sequence[BeamSearch], prompts: Sequence[Prompt]) -> Tensor:
        """Set what the device knows of searches before the first decision, and return the slots of their beams."""
        states, tensors = self._states, self._tensors
        slots = [slot for search in searches for slot in search.slots]
        prompt_of = [prompt for search, prompt in zip(searches, prompts, strict=True) for _ in search.slots]
        begins = [len(prompt.tokens) for prompt in prompt_of]
        owners = [search for search in searches for _ in search.slots]
        sums = [
            search.beams[0].logprob if beam == 0 else -np.inf
            for search in searches
            for beam in range(len(search.slots))
        ]
        columns = to_device(
            [
                slots,
                begins,
                [search.n_wanted for search in owners],
                begins,
                [search.max_new for search in owners],
                # The bits of numbers with a fraction.
                np.array(sums).view(np.int64).tolist(),
                [search.slots[0] if beam else -1 for search in searches for beam in range(len(search.slots))],
            ],
            tensors.sums.device,
        )
        rows = columns[0]
        states.positions[rows] = columns[1]
        tensors.limits[:, rows] = columns[2:5]
        tensors.sums[rows] = columns[5].view(torch.float64)
        # The other beams take over the whole prompt from the first.
        tensors.sources[rows] = columns[6]
        tensors.copied_from[rows] = 0
        tensors.n_ended[rows] = 0
        tensors.is_over[rows] = 0
        tensors.common[rows] = 0
        states.rule_state.store(rows, states.rules_after(prompt_of, [prompt.prefix for prompt in prompt_of]))
        states.running.update(zip(slots, begins, strict=True))
        return rows

    def step(self, searches: tuple[BeamSearch, ...], logits: Tensor | None) -> HostRows:
        """Let every search go on after a step, whose tokens were sampled.

        Args:
            logits: `(rows, vocab_size)` under all rules; `None` if the sampler has found the candidates.

        Returns:
            What was decided for each search.
        """
        slots = self._states.beam_rows
        if logits is not None:
            self._find(slots, logits[slots], max(search.n_candidates for search in searches))
        return self._decide(self._members, slots)

    def update(self, searches: tuple[BeamSearch, ...]) -> None:
        """Tell the device the slots of all searches, if they have changed. Call it before a step is sampled."""
        if searches == self._launched:
            return
        self._launched = searches
        device, n_rows = self._tensors.sums.device, len(self._tensors.sums)
        n_wanted = [0] * n_rows
        for search in searches:
            for slot in search.slots:
                n_wanted[slot] = search.n_candidates
        self._sampler.candidates.n_wanted.copy_(to_device(n_wanted, device))
        self._members = _members(searches, device)

    def follow(self, searches: Iterable[BeamSearch], found: HostRows, peaks_s: PeaksS | None) -> None:
        """Take over on the host what a step has decided.

        Args:
            searches: the searches of the step, in the order in which it was launched.
            found: what `begin` or `step` returned.
            peaks_s: the attention peaks of the step, if any were asked for.
        """
        for search, decided in zip(searches, found.array(), strict=True):
            # Otherwise the search ended while this step was in flight.
            if not search.is_over:
                assert isinstance(search, FollowedSearch)
                search.follow(decided, peaks_s)

    def _find(self, slots: Tensor, logits: Tensor, n_wanted: int) -> None:
        """Find the likeliest next tokens in logits under all rules."""
        best = logits.topk(n_wanted, dim=-1)
        self._tensors.logprobs[slots, :n_wanted] = best.values - torch.logsumexp(logits, dim=-1, keepdim=True)
        self._tensors.next_tokens[slots, :n_wanted] = best.indices.to(torch.int32)

    def _decide(self, members: Tensor, slots: Tensor) -> HostRows:
        states, tensors = self._states, self._tensors
        decided = decide(
            members,
            tensors,
            states.tokens,
            states.positions,
            states.rule_state,
            eot=states.eot,
            first_time=states.first_timestamp,
        )
        copy_tokens(self._cache.self_attention, members, tensors, states.positions)
        if states.hotwords.are_any:
            sources = tensors.sources[slots]
            states.move_hotwords(slots, torch.where(sources < 0, slots, sources), states.tokens[slots])
        return self._transfer.start_copy_to_host(decided)


def _members(searches: Iterable[BeamSearch], device: torch.device) -> Tensor:
    """The slots of the beams of each search, `(searches, N_LANES)`."""
    rows = [[*search.slots, *([-1] * (N_LANES - len(search.slots)))] for search in searches]
    return to_device(rows, device).view(-1, N_LANES)
