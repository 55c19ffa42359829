"""Beam search over made-up probabilities."""

from tutti_server.engine.api import Sampling
from tutti_server.engine.decoding.beam_search import BeamSearch, Hypothesis, SampledToken

EOT = 50


def candidates(*logprobs: tuple[int, float]) -> list[SampledToken]:
    """The likeliest next tokens of one beam."""
    return [SampledToken(token, logprob) for token, logprob in logprobs]


def result_of(search: BeamSearch) -> list[int]:
    return [sampled.token for sampled in search.result]


def test_a_search_that_only_repeats_itself_ends() -> None:
    """Greedy decoding stops at a repetition, and so do beams when no other one is left."""
    search = BeamSearch(Sampling(beam_size=2), eot=EOT, max_tokens=200)
    step = candidates((3, -0.1), (4, -0.1), (5, -9))
    search.advance([step])
    for _ in range(60):
        if search.is_over:
            break
        search.beams = [Hypothesis((*beam.sampled, beam.sampled[0])) for beam in search.beams]
    assert search.is_over and len(search.beams[0].sampled) == 24
    assert set(result_of(search)) in ({3}, {4})


def test_an_unfinished_text_that_is_the_best_ends_with_the_search() -> None:
    """With less patience than beams: one other hypothesis has ended."""
    search = BeamSearch(Sampling(beam_size=2, patience=0.5), eot=EOT, max_tokens=50)
    search.advance([candidates((1, -0.1), (2, -2.5), (EOT, -4.0))])
    assert not search.is_over
    search.advance([candidates((3, -0.1), (EOT, -3.0), (4, -5)), candidates((EOT, -0.5), (5, -2), (6, -3))])
    assert search.is_over and result_of(search) == [1, 3, EOT]


def test_a_search_can_begin_in_the_middle() -> None:
    """What was sampled before counts towards length and likelihood, but is not found again."""
    before = candidates((1, -4.0), (2, -4.0))
    search = BeamSearch(Sampling(beam_size=2), eot=EOT, max_tokens=10, begun=before)
    search.advance([candidates((EOT, -0.5), (5, -0.6), (7, -9))])
    search.advance([candidates((EOT, -0.2), (8, -1), (9, -2)), candidates((EOT, -8), (8, -9), (9, -9))])
    # Of all its tokens, the longer one is likelier for each: -8.8 / 3 against -8.5 / 2. Of the new ones it is not.
    assert result_of(search) == [5, EOT]
    longest = BeamSearch(Sampling(beam_size=2), eot=EOT, max_tokens=3, begun=before)
    longest.advance([candidates((5, -0.1), (6, -0.5), (7, -9))])
    assert result_of(longest) == [5]
