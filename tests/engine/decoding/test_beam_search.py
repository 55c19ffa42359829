"""Beam search over made-up probabilities."""

import pytest

from tutti_server.engine.decoding.beam_search import BeamSearch, Hypothesis, Move, SampledToken, SearchOptions

EOT = 50


def candidates(*logprobs: tuple[int, float]) -> list[SampledToken]:
    """The likeliest next tokens of one beam."""
    return [SampledToken(token, logprob) for token, logprob in logprobs]


def tokens_of(search: BeamSearch) -> list[list[int]]:
    return [beam.tokens for beam in search.beams]


def result_of(search: BeamSearch) -> list[int]:
    return [sampled.token for sampled in search.result]


def begun(beam_size: int = 2, *, max_tokens: int = 10, **options: float) -> BeamSearch:
    """A search after its first token: beams that begin with 1, 2, …; the first is the likeliest."""
    search = BeamSearch(SearchOptions(beam_size=beam_size, **options), eot=EOT, max_tokens=max_tokens)
    search.advance([candidates(*((1 + place, -1.0 - place) for place in range(beam_size + 1)))])
    return search


def test_beams_begin_with_the_likeliest_tokens() -> None:
    """The first step makes as many beams as were asked for."""
    assert tokens_of(begun(3)) == [[1], [2], [3]]


def test_the_likeliest_continuations_go_on() -> None:
    """A beam whose continuations are all less likely ends, and the slot goes to another child of the better one."""
    search = begun()
    moves = search.advance([candidates((5, -0.1), (6, -0.2), (7, -9)), candidates((8, -3), (9, -4), (10, -5))])
    assert tokens_of(search) == [[1, 5], [1, 6]]
    assert moves == [Move(beam=1, parent=0, n_same=0)]


def test_children_keep_the_place_of_their_parent() -> None:
    """Nothing moves where each beam has one child, whichever of them is likelier now."""
    search = begun()
    moves = search.advance([candidates((5, -3), (6, -8), (7, -9)), candidates((8, -0.1), (9, -8), (10, -9))])
    assert tokens_of(search) == [[1, 5], [2, 8]]
    assert moves == []


def test_a_move_tells_what_both_beams_had_in_common() -> None:
    """Only tokens from the first that differs on need to be copied."""
    search = begun()
    search.advance([candidates((5, -0.1), (6, -0.2), (7, -9)), candidates((8, -3), (9, -4), (10, -5))])
    moves = search.advance([candidates((5, -0.1), (6, -0.2), (7, -9)), candidates((8, -3), (9, -4), (10, -5))])
    assert tokens_of(search) == [[1, 5, 5], [1, 5, 6]]
    assert moves == [Move(beam=1, parent=0, n_same=1)]


def test_an_end_that_is_likely_leaves_room_for_another_beam() -> None:
    """Ended hypotheses do not count as beams."""
    search = begun()
    search.advance([candidates((EOT, -0.1), (6, -0.2), (7, -0.3)), candidates((8, -3), (9, -4), (10, -5))])
    assert tokens_of(search) == [[1, 7], [1, 6]] or tokens_of(search) == [[1, 6], [1, 7]]
    assert [hypothesis.tokens for hypothesis in search.ended] == [[1, EOT]]
    assert not search.is_over


@pytest.mark.parametrize(("patience", "n_wanted"), [(0.5, 1), (1.0, 2), (1.5, 3), (2.0, 4)])
def test_patience_says_how_many_must_end(patience: float, n_wanted: int) -> None:
    """A search ends when `beam_size` times `patience` hypotheses have."""
    search = begun(patience=patience)
    ending = candidates((EOT, -0.1), (6, -0.2), (7, -0.3))
    for n_ended in range(1, n_wanted + 1):
        assert not search.is_over
        search.advance([ending, candidates((8, -30), (9, -40), (10, -50))])
        assert len(search.ended) == n_ended
    assert search.is_over


@pytest.mark.parametrize(("penalty", "best"), [(None, [1, 5, EOT]), (0.0, [2, EOT]), (5.0, [1, 5, EOT])])
def test_length_penalty_decides_between_short_and_long(penalty: float | None, best: list[int]) -> None:
    """Without a penalty the shorter text is likelier; the mean per token, or a high penalty, prefers the longer."""
    search = begun()
    search.options = SearchOptions(beam_size=2, length_penalty=penalty)
    search.beams = [Hypothesis(), Hypothesis()]
    search.ended = [
        Hypothesis(tuple(candidates((2, -1.0), (EOT, -1.0))), -2.0),
        Hypothesis(tuple(candidates((1, -1.0), (5, -1.0), (EOT, -0.5))), -2.5),
    ]
    assert result_of(search) == best


def test_a_limit_ends_the_search_with_the_likeliest_beam() -> None:
    """At the limit, beams that have not ended count too, as far as too few have."""
    search = begun(max_tokens=2)
    assert result_of(search) == []
    search.advance([candidates((5, -0.1), (6, -0.2), (7, -9)), candidates((8, -3), (9, -4), (10, -5))])
    assert search.is_over
    assert result_of(search) == [1, 5]


def test_a_search_that_only_repeats_itself_ends() -> None:
    """Greedy decoding stops at a repetition, and so do beams when no other one is left."""
    search = BeamSearch(SearchOptions(beam_size=2), eot=EOT, max_tokens=200)
    step = candidates((3, -0.1), (4, -0.1), (5, -9))
    search.advance([step])
    for _ in range(60):
        if search.is_over:
            break
        search.beams = [Hypothesis((*beam.sampled, beam.sampled[0])) for beam in search.beams]
    assert search.is_over and len(search.beams[0].sampled) == 24
    assert set(result_of(search)) in ({3}, {4})


def test_a_search_can_begin_in_the_middle() -> None:
    """What was sampled before counts towards length and likelihood, but is not found again."""
    before = candidates((1, -4.0), (2, -4.0))
    search = BeamSearch(SearchOptions(beam_size=2), eot=EOT, max_tokens=10, begun=before)
    search.advance([candidates((EOT, -0.5), (5, -0.6), (7, -9))])
    search.advance([candidates((EOT, -0.2), (8, -1), (9, -2)), candidates((EOT, -8), (8, -9), (9, -9))])
    # Of all its tokens, the longer one is likelier for each: -8.8 / 3 against -8.5 / 2. Of the new ones it is not.
    assert result_of(search) == [5, EOT]
    longest = BeamSearch(SearchOptions(beam_size=2), eot=EOT, max_tokens=3, begun=before)
    longest.advance([candidates((5, -0.1), (6, -0.5), (7, -9))])
    assert result_of(longest) == [5]
