"""Word latencies of captions: every number of small made-up sessions is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.captions import Caption, PrefixAligner, SpokenWord, WordLatencies, measure_words, spoken_words
from benchmarks.recordings import ReferenceUtterance
from benchmarks.scoring import matches

STARTED_AT = 100.0
SPOKEN = [SpokenWord("a", 0.0, 1.0), SpokenWord("b", 1.0, 2.0), SpokenWord("the", 2.0, 3.0), SpokenWord("c", 3.0, 4.0)]
LETTERS = st.lists(st.sampled_from("abc"), max_size=8)


def captions(*texts: tuple[float, str, str]) -> list[Caption]:
    return [Caption(STARTED_AT + at, shown, stable) for at, shown, stable in texts]


def test_a_word_is_seen_shown_for_good_and_stable() -> None:
    """It is shown for good only after its last loss, and stable once the server says so."""
    seen = captions((1.5, "A", ""), (2.0, "", ""), (2.5, "A b", "A"), (5.0, "a b the c", "a b the c"))
    latencies = measure_words(seen, SPOKEN, STARTED_AT)
    assert latencies.seen_s == pytest.approx([0.5, 0.5, 2.0, 1.0])
    assert latencies.shown_s == pytest.approx([1.5, 0.5, 2.0, 1.0])
    assert latencies.stable_s == pytest.approx([1.5, 3.0, 2.0, 1.0])
    assert (latencies.n_revised, latencies.n_taken_back) == (1, 0)


def test_a_word_that_never_arrives_is_infinitely_late() -> None:
    """It is not left out of the figures."""
    latencies = measure_words(captions((5.0, "a b c", "a")), SPOKEN, STARTED_AT)
    assert latencies.shown_s == [4.0, 3.0, math.inf, 1.0]
    assert latencies.stable_s == [4.0, math.inf, math.inf, math.inf]


def test_a_word_that_has_not_begun_is_not_there() -> None:
    """A stray "c" at the beginning does not stand for the one at the end."""
    latencies = measure_words(captions((0.8, "c", ""), (5.0, "a b the c", "")), SPOKEN, STARTED_AT)
    assert latencies.seen_s[3] == 1.0


def test_stable_text_taken_back_is_counted() -> None:
    latencies = measure_words(captions((3.0, "a be", "a be"), (4.0, "a bee", "a bee")), SPOKEN, STARTED_AT)
    assert latencies.n_taken_back == 1


def test_latencies_add_up() -> None:
    total = WordLatencies(seen_s=[1.0], shown_s=[2.0], stable_s=[3.0], n_revised=1)
    total.add(WordLatencies(seen_s=[4.0], shown_s=[5.0], stable_s=[6.0], n_revised=2, n_taken_back=1))
    expected = {"seen_s": [1.0, 4.0], "shown_s": [2.0, 5.0], "stable_s": [3.0, 6.0]}
    assert total == WordLatencies(**expected, n_revised=3, n_taken_back=1)


def test_of_equal_places_the_earlier_is_taken() -> None:
    """The last word of a text that grows is not at once the last one of what was said."""
    aligner = PrefixAligner("a b the c d the".split())
    assert aligner.align("a b the".split(), 6) == [0, 1, 2]
    assert aligner.align("a b the c d the".split(), 6) == [0, 1, 2, 3, 4, 5]
    assert aligner.align("a d".split(), 6) == [0, 4]
    assert aligner.align([], 6) == []


@given(LETTERS, st.lists(LETTERS, max_size=5))
def test_texts_are_aligned_whatever_came_before(reference: list[str], texts: list[list[str]]) -> None:
    """The kept table gives what a new one would, and as few errors as an alignment without it."""
    kept = PrefixAligner(reference)
    for text in texts:
        found = kept.align(text, len(reference))
        assert found == PrefixAligner(reference).align(text, len(reference))
        assert len(found) <= sum(word in text for word in reference)
        if reference == text:
            assert len(found) == len(matches(reference, text))


def test_words_lie_in_the_spans_of_speech() -> None:
    """Letters are spread over the spans only; a word begins where the one before it ends."""
    utterances = (ReferenceUtterance("aa bb cccc", ((0.0, 1.0), (5.0, 6.0))),)
    found = spoken_words(utterances)
    assert [each.word for each in found] == ["aa", "bb", "cccc"]
    assert [each.start_s for each in found] == pytest.approx([0.0, 0.5, 1.0])
    assert [each.end_s for each in found] == pytest.approx([0.5, 1.0, 6.0])
