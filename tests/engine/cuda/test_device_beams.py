"""Searches that the GPU decides, against those that the host decides. Without a GPU, Triton's interpreter runs them."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from tutti_server.engine.api import Sampling
from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.decoding.followed_search import N_LANES, NOT_ENDED, REPEAT_STEPS, FollowedSearch
from tutti_server.engine.decoding.logit_rules import RuleState, make_rules
from tutti_server.engine.model.random_weights import random_checkpoint

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EOT = 50


@torch.inference_mode()
def test_the_likeliest_tokens_are_those_under_the_rules() -> None:
    """Rows that want candidates get them, and stay as they are; the others are sampled as ever."""
    checkpoint = random_checkpoint("random:tiny")
    first, eot = checkpoint.tokenizer.first_timestamp, checkpoint.tokenizer.eot
    histories: list[tuple[int, ...]] = [(), (first, 5, first + 9), (5, eot)]
    logits = 3 * torch.randn(len(histories), checkpoint.model.vocab_size, generator=torch.Generator().manual_seed(1))
    logits[1, first + 20] += 30
    logits = logits.to(DEVICE)
    state = RuleState.begin(histories, [True, True, False], first, DEVICE)
    tokens, positions = torch.zeros((2, len(histories)), dtype=torch.long, device=DEVICE)
    sampler = FusedSampler(checkpoint, state, tokens, positions)
    n_wanted = [3, 11, 0]
    sampler.candidates.n_wanted.copy_(torch.tensor(n_wanted))
    ruled = logits.clone()
    for rule in make_rules(checkpoint, DEVICE):
        rule.apply(ruled, state)
    before = state.select(slice(0, len(histories)))
    before = RuleState(**{name: getattr(before, name).clone() for name in before.__slots__})
    sampled = sampler(logits)
    apart = sampler.find_candidates(logits, before, [6] * len(histories))
    for row, n in enumerate(n_wanted):
        best = ruled[row].log_softmax(-1).topk(max(n, 6))
        for found, count in ((sampler.candidates, n), (apart, 6)):
            order = found.logprobs[row, :count].argsort(descending=True)
            assert found.tokens[row, :count][order].tolist() == best.indices[:count].tolist()
            torch.testing.assert_close(found.logprobs[row, :count][order], best.values[:count], atol=1e-5, rtol=1e-5)
        assert sampled[0, row] == best.indices[0]
        assert tokens[row] == (0 if n else best.indices[0])
        assert state.last_time[row] == (before if n else state).last_time[row]
        assert positions[row] == 1


def test_a_search_that_repeats_itself_is_over() -> None:
    """Both beams say the same word over and over; that is seen within a few tokens."""
    search = FollowedSearch(Sampling(beam_size=2), eot=EOT, max_tokens=200, slots=(0, 1))
    decided = np.zeros((1 + 4 * N_LANES,), np.float32)
    decided[1 : 1 + N_LANES] = range(N_LANES)
    decided[1 + N_LANES : 1 + 2 * N_LANES] = 5
    decided[-N_LANES:] = NOT_ENDED
    first = decided.copy()
    first[1 : 1 + N_LANES] = 0
    search.follow(first)
    n_steps = 1
    while not search.is_over:
        search.follow(decided)
        n_steps += 1
    assert 24 <= n_steps < 24 + REPEAT_STEPS
    assert [each.token for each in search.result] == [5] * n_steps
