"""Tokens are drawn as the plain formula says, and a row's draws are its own."""

from functools import partial

import pytest
import torch

from tutti_server.engine.decoding.sampling import Draw, Sampler

INF = float("inf")
CPU = torch.device("cpu")


def plain(logits: list[float], draw: Draw) -> int:
    """The largest of `logit / temperature - log(e)`, where the `e` are exponential."""
    generator = torch.Generator().manual_seed(draw.seed)
    noise = torch.empty(len(logits)).exponential_(generator=generator).log().tolist()
    keys = [logit / draw.temperature - each for logit, each in zip(logits, noise, strict=True)]
    return keys.index(max(keys))


def test_without_a_temperature_the_likeliest_token_comes_with_its_log_probability() -> None:
    """Forbidden tokens have no part in the sum."""
    logits = torch.tensor([[1.0, 3.0, -INF], [0.0, -INF, -INF]])
    tokens, logprobs = Sampler(CPU).sample([0, 1], logits)
    assert tokens.tolist() == [1, 0]
    torch.testing.assert_close(logprobs, torch.log_softmax(logits, -1).amax(-1))


@pytest.mark.parametrize("seed", range(20))
def test_a_draw_is_that_of_the_plain_formula(seed: int) -> None:
    """The log-probability is the model's own, without the temperature; greedy neighbours are left alone."""
    torch.manual_seed(seed)
    logits = 3 * torch.randn(3, 12)
    draw = Draw(0.7, seed)
    sampler = Sampler(CPU)
    sampler.begin(5, draw)
    before = logits.clone()
    tokens, logprobs = sampler.sample([4, 5, 6], logits)
    assert tokens.tolist() == [logits[0].argmax(), plain(logits[1].tolist(), draw), logits[2].argmax()]
    torch.testing.assert_close(logprobs, torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0])
    assert torch.equal(logits, before)


def test_draws_follow_the_softmax_at_the_temperature() -> None:
    """Four thousand draws differ from it by less than four standard deviations."""
    logits, temperature, n = torch.tensor([[0.0, 1.0, 2.0, -INF]]), 0.8, 4000
    sampler = Sampler(CPU)
    sampler.begin(0, Draw(temperature, seed=1))
    counts = torch.zeros(4)
    for _ in range(n):
        counts[sampler.sample([0], logits)[0]] += 1
    wanted = (logits[0] / temperature).softmax(-1)
    deviation = (n * wanted * (1 - wanted)).sqrt().clamp_min(1e-9)
    assert ((counts - n * wanted).abs() <= 4 * deviation).all()
    assert counts[3] == 0


def test_neighbours_do_not_change_a_rows_draws() -> None:
    """The same seed draws the same tokens in any row, among any others; another seed draws others."""
    logits = torch.randn(40, 50, generator=torch.Generator().manual_seed(3))

    def draws(seed: int, others: int, row: int) -> list[int]:
        sampler = Sampler(CPU)
        for other in range(others):
            sampler.begin(100 + other, Draw(1.0, other))
        sampler.begin(7, Draw(0.9, seed))
        slots = [100 + other for other in range(others)]
        slots.insert(row, 7)
        return [int(sampler.sample(slots, step.repeat(len(slots), 1))[0][row]) for step in logits]

    assert draws(1, others=0, row=0) == draws(1, others=5, row=3)
    assert draws(1, others=0, row=0) != draws(2, others=0, row=0)


def test_a_slot_forgets_its_draw() -> None:
    """Freed, or begun anew without a temperature, it is greedy."""
    logits = torch.tensor([[0.0, 0.1]])
    sampler = Sampler(CPU)
    for forget in (partial(sampler.end, 0), partial(sampler.begin, 0, Draw())):
        sampler.begin(0, Draw(2.0, 1))
        forget()
        assert all(sampler.sample([0], logits)[0].item() == 1 for _ in range(20))
