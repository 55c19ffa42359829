"""Decodes the beams of searches, each in a slot of its own: their next tokens, and what the caches hold of them.

The search itself is in `engine/decoding/beam_search.py`.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tutti_server.engine.api import MAX_BEAM_SIZE, SAMPLE_RATE
from tutti_server.engine.decoding.beam_search import BeamSearch, Move, SampledToken
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.slot_states import SlotStates
from tutti_server.engine.model.host_transfer import HostRows, HostTransfer, to_device
from tutti_server.engine.model.kv_cache import KVCache
from tutti_server.engine.model.log_mel import STATE_SAMPLES

N_CANDIDATES = MAX_BEAM_SIZE + 1
"""The likeliest next tokens that are looked for in every row. The number never depends on the beams of a neighbour."""


class HostBeams:
    """The slots of all beams, where the host chooses their tokens.

    The first slot of a search is that of its window; the others borrow the window.
    """

    def __init__(self, states: SlotStates, cache: KVCache, transfer: HostTransfer) -> None:
        self._states = states
        self._cache = cache
        self._transfer = transfer

    def find_candidates(self, logits: Tensor) -> HostRows:
        """Find the likeliest next tokens, and start to copy them to the host.

        Args:
            logits: `(rows, vocab_size)` under all rules.

        Returns:
            For each row, `N_CANDIDATES` log-probabilities, the highest first, and then as many token ids.
        """
        best = logits.topk(min(N_CANDIDATES, logits.shape[1]), dim=-1)
        logprobs = best.values - torch.logsumexp(logits, dim=-1, keepdim=True)
        return self._transfer.start_copy_to_host(torch.cat([logprobs, best.indices.float()], dim=1).T)

    def begin(
        self, slots: Sequence[int], prompts: Sequence[Prompt], logits: Tensor, peaks: Sequence[Tensor] = ()
    ) -> None:
        """Begin the searches after a prefill: choose the first token of every beam, and share out window and prompt.

        Args:
            slots: the slots of the prefill. Those without a search stay as they are.
            logits: `(slots, vocab_size)` under all rules, after each prompt.
            peaks: what `SlotStates.attention_peaks` gives for each slot, if any wants attention peaks.
        """
        rows = [row for row, slot in enumerate(slots) if slot in self._states.searches]
        if not rows:
            return
        on_device = to_device(rows, logits.device)
        found = self.find_candidates(logits[on_device]).read()
        states = zip(*(column[on_device].tolist() for column in peaks), strict=True) if peaks else [()] * len(rows)
        for row, numbers, state in zip(rows, found, states, strict=True):
            search, n_prompt = self._states.searches[slots[row]], len(prompts[row].tokens)
            search.advance([_candidates(numbers, peak_s(*state))])
            owner, *others = search.slots
            self._cache.lend(owner, others)
            self._cache.copy_tokens(others, [owner] * len(others), slice(0, n_prompt))

    def advance(self, searches: Iterable[BeamSearch], found: HostRows, peaks_s: Sequence[float | None] | None) -> None:
        """Go on with every search after a step.

        Args:
            searches: the searches whose beams the step decoded, in the order in which it was launched.
            found: what `find_candidates` returned for their slots.
            peaks_s: the attention peak of each slot in seconds, if any was asked for.
        """
        rows = iter(found.read())
        slots: list[int] = []
        parents: list[int] = []
        tokens: list[int] = []
        for search in searches:
            candidates = [_candidates(next(rows), peaks_s[slot] if peaks_s else None) for slot in search.slots]
            moves = search.advance(candidates)
            if search.is_over:
                continue
            self._copy(search, moves)
            parent_of = {move.beam: move.parent for move in moves}
            slots += search.slots
            parents += [search.slots[parent_of.get(beam, beam)] for beam in range(len(search.slots))]
            tokens += [beam.sampled[-1].token for beam in search.beams]
        if slots:
            self._states.move_beams(slots, parents, tokens)

    def end(self, slot: int) -> None:
        """Let the beams of a window's search give its window back, if it has one."""
        search = self._states.searches.get(slot)
        for other in search.slots[1:] if search else ():
            self._cache.forget(other)

    def _copy(self, search: BeamSearch, moves: Sequence[Move]) -> None:
        """Copy what beams that move take over from their parents: the tokens from the first that differs on."""
        if not moves:
            return
        # The last token of each beam stands at this position, and has not been run yet.
        end = self._states.running[search.slots[0]]
        begin = end - (len(search.beams[0].sampled) - 1) + min(move.n_same for move in moves)
        into = [search.slots[move.beam] for move in moves]
        self._cache.copy_tokens(into, [search.slots[move.parent] for move in moves], slice(begin, end))


def _candidates(row: Sequence[float], peak_s: float | None = None) -> list[SampledToken]:
    half = len(row) // 2
    return [SampledToken(int(token), logprob, peak_s) for logprob, token in zip(row[:half], row[half:], strict=True)]


def peak_s(state: float = -1) -> float | None:
    """Return the time of an attention peak in seconds, from what `SlotStates.attention_peaks` gives."""
    return None if state < 0 else state * STATE_SAMPLES / SAMPLE_RATE
