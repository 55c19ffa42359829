"""The language of a window, by the detector's probabilities and by what is known already."""

from tutti_server.engine.decoding.language import choose_language, other_language


def test_without_a_bias_the_likeliest_language_is_taken() -> None:
    """Also where all of many candidates are unlikely."""
    assert choose_language({"en": 0.01, "de": 0.03, "nl": 0.02}, {}) == "de"


def test_the_odds_of_one_window_are_bounded() -> None:
    """A bias of 3 is the odds of 20 to 1: the detector's certainty cannot be more than that."""
    certain = {"en": 0.0, "de": 1.0}
    assert choose_language(certain, {"en": 2.9}) == "de"
    assert choose_language(certain, {"en": 3.1}) == "en"


def test_the_other_language_is_the_second_one_unless_it_is_unlikely() -> None:
    assert other_language({"cy": 0.57, "en": 0.4, "nn": 0.03}, {}) == "en"
    assert other_language({"nl": 0.97, "en": 0.03}, {}) is None
    assert other_language({"en": 1.0}, {}) is None


def test_the_other_language_is_unlikely_after_much_speech_in_the_first() -> None:
    """However high the bias is."""
    assert other_language({"cy": 0.57, "en": 0.4, "nn": 0.03}, {"en": 1.0}) == "cy"
    for bias in (4.0, 1e4):
        assert other_language({"cy": 0.57, "en": 0.4, "nn": 0.03}, {"en": bias}) is None
    assert other_language({"en": 0.98, "de": 0.02}, {"de": 3.5}) == "en", "spoken after much in the other one"
