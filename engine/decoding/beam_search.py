"""Beam search: keeps the likeliest beginnings of a window's text, its beams, and extends all of them. Plain Python.

The runner decodes each beam in a slot of its own, and asks for the likeliest next tokens of each.

Source: openai/whisper, whisper/decoding.py, `BeamSearchDecoder` and `MaximumLikelihoodRanker`. One thing differs: a
search of which every beam repeats itself ends, as greedy decoding does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from tutti_server.engine.api import Sampling
from tutti_server.engine.decoding.repetition import repeated_tokens


class SampledToken(NamedTuple):
    """One sampled token. Every row of every step makes one, and a named tuple takes half as long as a dataclass."""

    token: int
    logprob: float
    attention_peak_s: float | None = None
    """The time in the window at which the attention of the alignment heads has its peak, in seconds.

    `None` unless attention peaks were asked for.
    """


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The tokens sampled after the prompt, and how likely all of them together are."""

    sampled: tuple[SampledToken, ...] = ()
    logprob: float = 0.0
    """The sum of their log-probabilities."""

    @property
    def tokens(self) -> list[int]:
        """The sampled tokens by their ids."""
        return [each.token for each in self.sampled]

    def plus(self, sampled: SampledToken) -> "Hypothesis":
        """Return the hypothesis that goes on with one more token."""
        return Hypothesis((*self.sampled, sampled), self.logprob + sampled.logprob)


@dataclass(frozen=True, slots=True)
class Move:
    """A beam that goes on from the tokens of another beam: what the caches hold of these is to be copied."""

    beam: int
    """The beam, by its index."""
    parent: int
    """The beam whose tokens it takes over."""
    n_same: int
    """The number of sampled tokens, from the first on, that both beams had in common already."""


class BeamSearch:
    """One search. `advance` gets the likeliest next tokens of every beam until `is_over`; `result` is what counts."""

    def __init__(
        self,
        options: Sampling,
        *,
        eot: int,
        max_tokens: int,
        prefix: Sequence[int] = (),
        slots: Sequence[int] = (),
        begun: Sequence[SampledToken] = (),
    ) -> None:
        """Begin with one beam.

        Args:
            options: how many beams it has, and what else it looks for.
            eot: the end token. Tokens below it are text.
            max_tokens: the most tokens of a hypothesis, the forced prefix included and the end token left out.
            slots: the slot of every beam; the first slot holds the window.
            begun: the tokens that were sampled after the prefix before the search began. All hypotheses have them.
        """
        self.options = options
        self.n_wanted = round(options.beam_size * options.patience)
        """The number of hypotheses that must end before the search does."""
        self.slots = tuple(slots)
        self.beams: list[Hypothesis] = [Hypothesis(tuple(begun), sum(each.logprob for each in begun))]
        """The hypotheses that go on, in the order of their slots. After the first `advance` there are `beam_size`."""
        self.ended: list[Hypothesis] = []
        """The hypotheses that have ended, with their end tokens."""
        self._eot = eot
        self._n_begun = len(begun)
        self._prefix_text = [token for token in prefix if token < eot]
        self.max_new = max_tokens - len(prefix) - len(begun)
        """The most tokens that the search may add to those it began with."""

    @property
    def n_candidates(self) -> int:
        """The number of next tokens that `advance` takes for each beam: one of them may be the end token."""
        return self.options.beam_size + 1

    @property
    def is_over(self) -> bool:
        """Whether the search has found enough, cannot go on, or only repeats itself."""
        if len(self.ended) >= self.n_wanted or len(self.beams[0].sampled) >= self._n_begun + self.max_new:
            return True
        return all(self._repeats(beam.tokens) for beam in sorted(self.beams, key=attrgetter("logprob"), reverse=True))

    @property
    def result(self) -> tuple[SampledToken, ...]:
        """The tokens that the search found: those of the best hypothesis, with an end token unless it was cut.

        Nothing before `is_over`.
        """
        if not self.is_over:
            return ()
        n_missing = max(0, self.options.beam_size - len(self.ended))
        unfinished = sorted(self.beams, key=attrgetter("logprob"), reverse=True)[:n_missing]
        found = max([*self.ended, *unfinished], key=self._score_of).sampled[self._n_begun :]
        return self._with_end(found, len(self.ended))

    def _with_end(self, found: tuple[SampledToken, ...], n_ended: int) -> tuple[SampledToken, ...]:
        """The tokens of a hypothesis, with an end token where the search ended because enough others had ended.

        Only with a patience below 1 are these fewer than the beams, so that an unfinished one may be the best.
        """
        is_cut = n_ended < self.n_wanted or len(found) >= self.max_new
        is_whole = is_cut or (found and found[-1].token == self._eot)
        return found if is_whole else (*found, SampledToken(self._eot, 0.0))

    def advance(self, candidates: Sequence[Sequence[SampledToken]]) -> list[Move]:
        """Go on with the likeliest hypotheses, each of them a beam and one of its next tokens.

        Args:
            candidates: of each beam the likeliest `n_candidates` next tokens.

        Returns:
            The beams that go on from another beam than they were. All of them move at the same time.
        """
        extended = [
            (beam.plus(sampled), parent)
            for parent, (beam, own) in enumerate(zip(self.beams, candidates, strict=True))
            for sampled in own[: self.n_candidates]
        ]
        chosen: list[tuple[Hypothesis, int]] = []
        for hypothesis, parent in sorted(extended, key=lambda each: each[0].logprob, reverse=True):
            if hypothesis.sampled[-1].token != self._eot:
                chosen.append((hypothesis, parent))
            elif len(self.ended) < self.n_wanted:
                self.ended.append(hypothesis)
            if len(chosen) == self.options.beam_size:
                break
        before = self.beams
        placed = _place(chosen)
        self.beams = [hypothesis for hypothesis, _ in placed]
        return [
            Move(beam, parent, _n_same(before[beam], before[parent]) if beam < len(before) else 0)
            for beam, (_, parent) in enumerate(placed)
            if beam != parent
        ]

    def _score(self, logprob: float, n_tokens: int) -> float:
        """How good a hypothesis is, whatever its length, from its log-probability and its tokens but the end token."""
        penalty = self.options.length_penalty
        if penalty is None:
            return logprob / max(1, n_tokens)
        return logprob / float(((5 + n_tokens) / 6) ** penalty)

    def _score_of(self, hypothesis: Hypothesis) -> float:
        n_tokens = len(hypothesis.sampled) - (hypothesis.sampled[-1].token == self._eot)
        return self._score(hypothesis.logprob, n_tokens)

    def _repeats(self, tokens: Sequence[int]) -> bool:
        if not tokens or tokens[-1] >= self._eot:
            return False
        return bool(repeated_tokens([*self._prefix_text, *(token for token in tokens if token < self._eot)]))


def _place(chosen: Sequence[tuple[Hypothesis, int]]) -> list[tuple[Hypothesis, int]]:
    """Order hypotheses, each with its parent, so that as many as possible take the place of their parent."""
    places: list[tuple[Hypothesis, int] | None] = [None] * len(chosen)
    others: list[tuple[Hypothesis, int]] = []
    for each in chosen:
        if places[each[1]] is None:
            places[each[1]] = each
        else:
            others.append(each)
    rest = iter(others)
    return [next(rest) if each is None else each for each in places]


def _n_same(one: Hypothesis, other: Hypothesis) -> int:
    """Return the number of tokens that two hypotheses of the same length have in common before they first differ."""
    pairs = enumerate(zip(one.sampled, other.sampled, strict=True))
    return next((at for at, (a, b) in pairs if a.token != b.token), len(one.sampled))
