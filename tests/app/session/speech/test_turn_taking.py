"""How sure the session is that a speaker has finished, and how long it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.session.messages.commands import Endpointing
from tutti_server.app.session.speech.turn_taking import (
    WEIGHTS,
    PauseEvidence,
    confidence_of,
    find_features,
    required_silence_ms,
)

PROBABILITIES = st.floats(0.0, 1.0)


def confidence(text: str, language: str | None = "en", logprob: float | None = -0.05) -> float:
    return confidence_of(PauseEvidence(text=text, language=language, last_text_logprob=logprob))


def wait_ms(text: str, language: str | None = "en", logprob: float | None = -0.05) -> int:
    return required_silence_ms(confidence(text, language, logprob), Endpointing())


@pytest.mark.parametrize("text", [" Yes.", " What time do you close on Sunday?", " はい。"])
def test_a_complete_sentence_ends_early(text: str) -> None:
    assert wait_ms(text) < 300


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (" I went home and", "en"),
        (" My number is", "en"),
        (" Um", "en"),
        (" Ich komme, wenn", "de"),
        (" Je voudrais", "fr"),
        (" Mi número es...", "es"),
        (" My number is four one five", "en"),
        (" My number is 415", "en"),
        (" It is spelled K O", "en"),
        ("", None),
    ],
)
def test_an_unfinished_phrase_waits_longer_than_usual(text: str, language: str) -> None:
    assert wait_ms(text, language) > 700


def test_punctuation_is_weaker_evidence_inside_numbers_and_codes() -> None:
    """A model closes every group of digits with a full stop; a sentence that ends in one number is no such group."""
    assert wait_ms(" We eat at seven.") < wait_ms(" The code is four seven.") - 150
    assert wait_ms(" This is Peter.") < wait_ms(" That is P E.") - 200


def test_a_long_number_is_more_likely_complete() -> None:
    digits = " four one five five five five zero one nine nine"
    assert confidence(f" It is{digits}.") > confidence(" It is four one five.") + 0.2


def test_doubtful_punctuation_waits_longer() -> None:
    """The model's probability of the full stop counts; one that was forced is as sure as usual."""
    assert confidence(" I called.", logprob=-0.03) > confidence(" I called.", logprob=-0.4) + 0.1
    assert confidence(" I called.", logprob=-0.4) < confidence(" I called.", logprob=None) < confidence(" I called.")


def test_dots_and_commas_do_not_close_a_sentence() -> None:
    for ending in ("...", "…", ",", " -"):
        assert confidence(f" I called{ending}") < confidence(" I called") < confidence(" I called.")


def test_a_text_that_the_model_doubts_is_no_evidence() -> None:
    """The usual silence holds then, whatever the text is; in between, it counts in part."""
    for text in (" Yes.", " My number is"):
        sure, half, doubtful = (
            confidence_of(PauseEvidence(text=text, language="en", avg_logprob=logprob))
            for logprob in (-0.3, -0.6, -0.9)
        )
        assert doubtful == 0.5 and required_silence_ms(doubtful, Endpointing()) == 500
        assert abs(sure - 0.5) > abs(half - 0.5) > 0.05


def test_a_language_without_lists_is_judged_by_its_punctuation() -> None:
    assert wait_ms(" Dzwonię jutro.", "pl") < 300
    assert wait_ms(" Dzwonię", "pl") > 700


@given(
    text=st.text("aB 1.,?!-…\n'é中。はा😀"),
    language=st.sampled_from([None, "en", "pl"]),
    logprob=st.none() | st.floats(-50.0, 0.0),
)
def test_every_text_has_a_confidence(text: str, language: str | None, logprob: float | None) -> None:
    evidence = PauseEvidence(text=text, language=language, last_text_logprob=logprob)
    assert set(find_features(evidence)) == set(WEIGHTS)
    assert 0.0 < confidence_of(evidence) < 1.0


@given(text=st.sampled_from([" Yes.", " My number is", ""]), one=PROBABILITIES, other=PROBABILITIES)
def test_a_model_of_the_audio_is_a_second_witness(text: str, one: float, other: float) -> None:
    """A higher probability never lowers the confidence, 0.5 leaves it as it is, and no value settles it alone."""
    lower, higher, even = (
        confidence_of(PauseEvidence(text=text, audio_probability=each))
        for each in (min(one, other), max(one, other), 0.5)
    )
    assert 0.0 < lower <= higher < 1.0
    assert even == pytest.approx(confidence_of(PauseEvidence(text=text)))


@given(one=PROBABILITIES, other=PROBABILITIES, threshold=PROBABILITIES, silence_ms=st.integers(0, 5000))
def test_more_confidence_never_waits_longer(one: float, other: float, threshold: float, silence_ms: int) -> None:
    """The silence stays within the client's bounds, also where `silence_ms` lies outside them."""
    endpointing = Endpointing(mode="adaptive", silence_ms=silence_ms, end_confidence=threshold)
    least, most = (required_silence_ms(each, endpointing) for each in (max(one, other), min(one, other)))
    assert 160 <= least <= most <= 1500


def test_the_threshold_decides_what_the_usual_silence_needs() -> None:
    for threshold in (0.3, 0.5, 0.9):
        endpointing = Endpointing(mode="adaptive", end_confidence=threshold)
        assert [required_silence_ms(each, endpointing) for each in (0.0, threshold, 1.0)] == [1500, 500, 160]
