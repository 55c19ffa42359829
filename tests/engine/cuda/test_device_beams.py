"""Searches that the GPU decides, against those that the host decides. Without a GPU, Triton's interpreter runs them."""

import random

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from tutti_server.engine.cuda.fused_sampling import FusedSampler
from tutti_server.engine.cuda.kernels.beams import SearchTensors, copy_tokens, decide
from tutti_server.engine.decoding.beam_search import BeamSearch, SampledToken, SearchOptions
from tutti_server.engine.decoding.followed_search import N_LANES, NOT_ENDED, REPEAT_STEPS, FollowedSearch
from tutti_server.engine.decoding.logit_rules import RuleState, make_rules
from tutti_server.engine.model.random_weights import random_checkpoint

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EOT, FIRST_TIME = 50, 60
N_ROWS, N_POSITIONS = 16, 48


class Device:
    """The slots of searches, with a cache in which each token is kept at its position."""

    def __init__(self) -> None:
        blank = torch.zeros((N_ROWS, N_LANES), device=DEVICE)
        self.tensors = SearchTensors.blank(blank, blank.int())
        self.tokens = torch.zeros(N_ROWS, dtype=torch.long, device=DEVICE)
        self.positions = torch.zeros(N_ROWS, dtype=torch.long, device=DEVICE)
        self.rules = RuleState.begin([()] * N_ROWS, [True] * N_ROWS, FIRST_TIME, DEVICE)
        self.cache = torch.zeros((2, 2, N_ROWS, 2, N_POSITIONS, 16), device=DEVICE)

    def begin(self, search: BeamSearch, begin: int) -> None:
        own = list(search.slots)
        limits = [search.options.n_wanted, begin, search.max_new]
        self.tensors.limits[:, own] = torch.tensor(limits, device=DEVICE)[:, None]
        self.tensors.sums[own] = -torch.inf
        self.tensors.sums[own[0]] = search.beams[0].logprob
        self.positions[own] = begin

    def run(self) -> None:
        """Run the last token of every slot: its key and value come to its position."""
        for slot in range(N_ROWS):
            self.cache[:, :, slot, :, self.positions[slot]] = float(self.tokens[slot])
        self.positions += 1

    def decide(self, members: torch.Tensor) -> np.ndarray:
        decided = decide(members, self.tensors, self.tokens, self.positions, self.rules, eot=EOT, first_time=FIRST_TIME)
        copy_tokens(self.cache, members, self.tensors, self.positions)
        return decided.cpu().numpy()


def candidates_of(rng: random.Random, n: int) -> list[SampledToken]:
    """The likeliest next tokens of a beam. Some are nearly as likely as those of other beams, and some ends."""
    tokens = rng.sample([*range(12), *range(FIRST_TIME, FIRST_TIME + 3), EOT, EOT + 1], n)
    logprobs = sorted((float(np.float32(-rng.choice([0.5, 1, 2, 5]) * rng.random())) for _ in range(n)), reverse=True)
    return [SampledToken(token, logprob) for token, logprob in zip(tokens, logprobs, strict=True)]


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.nightly
def test_searches_go_on_as_the_host_would_let_them(seed: int) -> None:
    """Two searches of different sizes: beams, sums, ends, rules and copied tokens, up to each one's end."""
    rng, device = random.Random(seed), Device()
    begun = [SampledToken(7, -0.25), SampledToken(8, -0.5)]
    options = [SearchOptions(beam_size=5, patience=rng.choice([0.6, 1.0, 2.0])), SearchOptions(beam_size=2 + seed)]
    slots, begins = [(3, 1, 9, 4, 12), (0, 2, 5, 6, 7)[: 2 + seed]], (4, 11)
    hosts = [
        BeamSearch(each, eot=EOT, max_tokens=14, slots=own, begun=before)
        for each, own, before in zip(options, slots, ((), begun), strict=True)
    ]
    followed = [
        FollowedSearch(each, eot=EOT, max_tokens=14, slots=own, begun=before)
        for each, own, before in zip(options, slots, ((), begun), strict=True)
    ]
    for search, begin in zip(hosts, begins, strict=True):
        device.begin(search, begin)
    members = torch.tensor([[*own, *([-1] * (N_LANES - len(own)))] for own in slots], device=DEVICE)
    ended: list[tuple[int, int]] = []
    while not all(search.is_over for search in hosts):
        for search in hosts:
            found = [candidates_of(rng, search.n_candidates) for _ in search.beams]
            for slot, own in zip(search.slots, found, strict=False):
                device.tensors.next_tokens[slot, : len(own)] = torch.tensor([each.token for each in own])
                device.tensors.logprobs[slot, : len(own)] = torch.tensor([each.logprob for each in own])
            if not search.is_over:
                search.advance(found)
        decided = device.decide(members)
        for number, (search, other, begin) in enumerate(zip(hosts, followed, begins, strict=True)):
            assert bool(decided[number, 0]) == search.is_over
            if other.is_over:
                continue
            other.follow(decided[number])
            n_run = int(device.positions[search.slots[0]]) - begin
            new = [beam.tokens[-n_run - 1 :] for beam in search.beams]
            assert device.tokens[list(search.slots)].tolist() == [beam[-1] for beam in new]
            assert device.tensors.sums[list(search.slots)].tolist() == [beam.logprob for beam in search.beams]
            assert other.is_over == search.is_over
            if search.is_over:
                ended.append((number, len(search.ended)))
                assert other.result == search.result
                continue
            for slot, tokens in zip(search.slots, new, strict=True):
                kept = device.cache[:, :, slot, :, begin : begin + len(tokens) - 1]
                assert (kept == torch.tensor(tokens[:-1], device=DEVICE)[:, None]).all()
                state = RuleState.begin([tuple(tokens)], [True], FIRST_TIME, DEVICE)
                for name in ("is_at_begin", "last_is_time", "last_time"):
                    assert getattr(device.rules, name)[slot] == getattr(state, name)[0]
        device.run()
    assert len(ended) == 2


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
    search = FollowedSearch(SearchOptions(beam_size=2), eot=EOT, max_tokens=200, slots=(0, 1))
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
