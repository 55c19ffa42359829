"""Tokens are drawn as the plain formula says, and a row's draws are its own."""

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


@pytest.mark.parametrize("seed", range(6))
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
    sampler.end(5)
    assert sampler.sample([5], logits[1:2])[0] == logits[1].argmax(), "the next window in the slot is greedy"
