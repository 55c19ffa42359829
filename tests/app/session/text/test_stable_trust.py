"""How sure the model is of a final text that begins with stable text."""

import pytest

from tests.fakes import segment
from tutti_server.app.session.text.stable_trust import Judged, with_stable_trust

STABLE = [Judged(6, -0.1), Judged(0, None), Judged(4, -0.4)]
"""Two words, and a timestamp between them."""


def test_a_segment_is_judged_by_its_stable_words_and_by_those_after_them() -> None:
    """Each counts with its length. What the filter reads stays."""
    after = segment(" Hello you there.", logprob=-2.0, text_logprob=-0.6)
    together = with_stable_trust(after, STABLE, 0)
    assert together.avg_logprob == pytest.approx(-(6 * 0.1 + 4 * 0.4 + 7 * 0.6) / 17)
    assert together.text_logprob == -0.6


def test_a_segment_that_was_stable_before_is_not_certain() -> None:
    """Its own log-probability is 0: there is nothing that the engine has chosen."""
    forced = segment(" Hello you", logprob=0.0)
    assert with_stable_trust(forced, STABLE, 0).avg_logprob == pytest.approx(-0.22)


def test_the_words_of_other_segments_do_not_count() -> None:
    first = segment(" Hello", logprob=0.0)
    assert with_stable_trust(first, STABLE, 0).avg_logprob == pytest.approx(-0.1)
    second = segment(" you there.", logprob=-2.0, text_logprob=-0.6)
    assert with_stable_trust(second, STABLE, 6).avg_logprob == pytest.approx(-(4 * 0.4 + 7 * 0.6) / 11)


def test_without_stable_words_the_engine_alone_judges() -> None:
    """Also where it has said nothing of the stable ones."""
    new = segment(" there.", logprob=-2.0, text_logprob=-0.6)
    assert with_stable_trust(new, STABLE, 10) is new
    assert with_stable_trust(new, [], 0) is new
    assert with_stable_trust(new, [Judged(6, None)], 0).avg_logprob == pytest.approx(-0.6)
    silent = segment(" Hello", logprob=0.0)
    assert with_stable_trust(silent, [Judged(6, None)], 0) is silent
