"""The language of a window, by the detector's probabilities and by what is known already."""

from tutti_server.engine.decoding.language import choose_language


def test_without_a_bias_the_likeliest_language_is_taken() -> None:
    """Also where all of many candidates are unlikely."""
    assert choose_language({"en": 0.3, "de": 0.7}, {}) == "de"
    assert choose_language({"en": 0.01, "de": 0.03, "nl": 0.02}, {}) == "de"


def test_the_odds_of_one_window_are_bounded() -> None:
    """A bias of 3 is the odds of 20 to 1: the detector's certainty cannot be more than that."""
    certain = {"en": 0.0, "de": 1.0}
    assert choose_language(certain, {"en": 2.9}) == "de"
    assert choose_language(certain, {"en": 3.1}) == "en"
