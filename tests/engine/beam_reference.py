"""The reference of beam search: one window, every beam run from its first token in each step, by the book.

Source: openai/whisper, whisper/decoding.py, `BeamSearchDecoder` and `MaximumLikelihoodRanker`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.modeling_outputs import BaseModelOutput

from tests.engine.reference import HotwordBonus, Reference
from tutti_server.engine.decoding.repetition import repeated_tokens


@dataclass(frozen=True, slots=True)
class Searched:
    """What a beam search found."""

    tokens: list[int]
    """The forced prefix and the sampled tokens of the best hypothesis, without the end token."""
    is_ended: bool
    """The end token ended it, not a limit."""
    margin: float
    """How much less the second best hypothesis scores, and how close a choice was in any step."""


@dataclass(frozen=True, slots=True)
class Search:
    """A beam search by the reference."""

    reference: Reference
    states: BaseModelOutput
    control: Sequence[int]
    timestamps: bool
    max_tokens: int
    beam_size: int
    patience: float = 1.0
    length_penalty: float | None = None
    prefix: tuple[int, ...] = ()
    hotwords: tuple[str, ...] = ()

    @torch.inference_mode()
    def run(self) -> Searched:
        """Search until enough hypotheses have ended, all repeat themselves or the limit is reached."""
        eot = self.reference.model.config.eos_token_id
        n_wanted = round(self.beam_size * self.patience)
        beams: dict[tuple[int, ...], float] = {self.prefix: 0.0}
        ended: dict[tuple[int, ...], float] = {}
        margin = float("inf")
        while len(ended) < n_wanted and len(next(iter(beams))) < self.max_tokens:
            scores = {
                (*tokens, token): total + logprob
                for tokens, total in beams.items()
                for token, logprob in self._next(tokens)
            }
            beams = {}
            ranked = sorted(scores, key=lambda each: scores[each], reverse=True)
            for place, tokens in enumerate(ranked):
                if tokens[-1] != eot:
                    beams[tokens] = scores[tokens]
                elif len(ended) < n_wanted:
                    ended[tokens] = scores[tokens]
                if len(beams) == self.beam_size:
                    if place + 1 < len(ranked):
                        margin = min(margin, scores[tokens] - scores[ranked[place + 1]])
                    break
            if all(self._repeats(tokens) for tokens in beams):
                break
        for tokens in sorted(beams, key=lambda each: beams[each], reverse=True):
            if len(ended) < self.beam_size:
                ended[(*tokens, eot)] = beams[tokens]
        best, *others = sorted(ended, key=lambda each: self._rank(each, ended[each]), reverse=True)
        if others:
            margin = min(margin, self._rank(best, ended[best]) - self._rank(others[0], ended[others[0]]))
        return Searched(list(best[:-1]), best[:-1] not in beams, margin)

    def _next(self, tokens: tuple[int, ...]) -> list[tuple[int, float]]:
        """The likeliest next tokens, one more than there are beams, with their log-probabilities."""
        ids = torch.tensor([[*self.control, *tokens]])
        begin = len(self.control)
        words = self.reference.encode_hotwords(self.hotwords, self.control)
        suppressing, times = self.reference.processors(begin, self.timestamps)
        logits = self.reference.model(encoder_outputs=self.states, decoder_input_ids=ids).logits[:, -1]
        for processor in (HotwordBonus(words, begin), *suppressing, *times):
            logits = processor(ids, logits)
        values, indices = logits.log_softmax(dim=-1)[0].topk(self.beam_size + 1)
        return list(zip(indices.tolist(), values.tolist(), strict=True))

    def _rank(self, tokens: tuple[int, ...], logprob: float) -> float:
        n_sampled = len(tokens) - len(self.prefix) - 1
        if self.length_penalty is None:
            return logprob / max(1, n_sampled)
        return logprob / float(((5 + n_sampled) / 6) ** self.length_penalty)

    def _repeats(self, tokens: tuple[int, ...]) -> bool:
        eot = self.reference.model.config.eos_token_id
        return tokens[-1] < eot and repeated_tokens([token for token in tokens if token < eot]) > 0
