"""A beam search that a GPU decides, as `engine/cuda/device_beams.py` does: the host only follows it, a step behind.

It keeps what the GPU says of each step, and finds what `BeamSearch` would find when the search is over. One thing
differs: whether every beam repeats itself is asked now and then, not at every step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import Sampling
from tutti_server.engine.decoding.beam_search import BeamSearch, SampledToken
from tutti_server.engine.decoding.repetition import MIN_TOKENS

PeaksS = Sequence[float | None] | Mapping[int, float | None]
"""The attention peak of each slot in seconds."""
N_LANES = 16
"""Places for the beams of a search, and for the next tokens of a beam: a power of two above the most beams."""
N_NUMBERS = 1 + 4 * N_LANES
"""Numbers that the GPU says of a search after a step: those of `FollowedSearch.follow`."""
NOT_ENDED = 1.0
"""Stands for the log-probability of the end token where a beam has not ended: none is above 0."""
REPEAT_STEPS = 8
"""The beams are asked whether they repeat themselves whenever they have grown by this many tokens."""


class FollowedSearch(BeamSearch):
    """One search. `follow` gets what the GPU has decided after each step, until `is_over`; `result` is what counts."""

    def __init__(self, options: Sampling, **others: Any) -> None:
        super().__init__(options, **others)
        self._steps: list[tuple[NDArray[np.float32], Sequence[float | None] | None]] = []
        self._is_over = False

    @property
    def result(self) -> tuple[SampledToken, ...]:
        """The tokens that the search found. Nothing before `is_over`."""
        return self._find_best() if self._is_over else ()

    @property
    def is_over(self) -> bool:
        """Whether the search has found enough, cannot go on, or only repeats itself."""
        return self._is_over

    def follow(self, decided: NDArray[np.float32], peaks_s: PeaksS | None = None) -> None:
        """Take over what was decided after a step.

        Args:
            decided: `(N_NUMBERS,)`: whether the search is over; and for each lane the beam that its beam goes on from,
                the token that it adds, the log-probability of this token, and that of the end token of the beam that it
                was, if this one has ended here, or `NOT_ENDED`.
            peaks_s: the attention peaks of the step, if any were asked for.
        """
        self._steps.append((decided, [peaks_s[slot] for slot in self.slots] if peaks_s else None))
        n_tokens = self._n_begun + len(self._steps)
        may_repeat = n_tokens >= MIN_TOKENS and n_tokens % REPEAT_STEPS == 0
        self._is_over = bool(decided[0]) or (may_repeat and self._all_repeat())

    def _all_repeat(self) -> bool:
        """Return whether every beam repeats itself. Mostly the first one tells."""
        begun = [each.token for each in self.beams[0].sampled]
        paths = (self._path(len(self._steps), beam) for beam in range(self.options.beam_size))
        return all(self._repeats([*begun, *(token for token, *_ in path)]) for path in paths)

    def _path(self, n_steps: int, beam: int) -> list[tuple[int, float, float | None]]:
        """Return what a beam had added after some steps: tokens, log-probabilities and attention peaks."""
        path: list[tuple[int, float, float | None]] = []
        for decided, peaks_s in reversed(self._steps[:n_steps]):
            parent = int(decided[1 + beam])
            peak_s = peaks_s[parent] if peaks_s else None
            path.append((int(decided[1 + N_LANES + beam]), float(decided[1 + 2 * N_LANES + beam]), peak_s))
            beam = parent
        return path[::-1]

    def _find_best(self) -> tuple[SampledToken, ...]:
        """Find the best hypothesis: of those that have ended, and of the likeliest beams if too few have."""
        n_beams = self.options.beam_size
        best_score, best = -math.inf, (0, 0, NOT_ENDED)
        sums, n_ended = [self.beams[0].logprob], 0
        steps = np.stack([decided for decided, _ in self._steps])[:, 1:].reshape(-1, 4, N_LANES)[:, :, :n_beams]
        for n_steps, (parents, _, logprobs, end_logprobs) in enumerate(steps.tolist()):
            for beam, end_logprob in enumerate(end_logprobs[: len(sums)]):
                if end_logprob < NOT_ENDED:
                    n_ended += 1
                    score = self._score(sums[beam] + end_logprob, self._n_begun + n_steps)
                    if score > best_score:
                        best_score, best = score, (n_steps, beam, end_logprob)
            sums = [sums[int(parent)] + logprob for parent, logprob in zip(parents, logprobs, strict=True)]
        unfinished = sorted(range(n_beams), key=sums.__getitem__, reverse=True)[: max(0, n_beams - n_ended)]
        for beam in unfinished:
            score = self._score(sums[beam], self._n_begun + len(steps))
            if score > best_score:
                best_score, best = score, (len(steps), beam, NOT_ENDED)
        n_steps, beam, end_logprob = best
        found = [SampledToken(*each) for each in self._path(n_steps, beam)]
        if end_logprob < NOT_ENDED:
            peaks_s = self._steps[n_steps][1]
            found.append(SampledToken(self._eot, end_logprob, peaks_s[beam] if peaks_s else None))
        return self._with_end(tuple(found), n_ended)
