"""A word lies where it was spoken, not in the music, noise or silence before its sentence."""

import pytest

from tutti_server.engine.api import Word
from tutti_server.engine.decoding.word_placement import place, place_all

MUSIC = (0.0, 8.0)


@pytest.mark.parametrize(
    ("sounds_s", "placed"),
    [
        pytest.param([MUSIC, (8.6, 12.0)], (8.6, 8.86), id="music, then quiet"),
        pytest.param([(0.0, 12.0)], (8.69, 8.86), id="music up to the word"),
        pytest.param([(0.0, 0.04), (8.6, 12.0)], (8.6, 8.86), id="a click"),
        pytest.param([MUSIC, (8.2, 8.5), (8.82, 12.0)], (8.2, 8.5), id="a pause after the word"),
        pytest.param([(0.0, 0.3), (8.82, 12.0)], (0.0, 0.3), id="a long pause after the word"),
        pytest.param([(0.0, 0.04), (8.82, 12.0)], (0.0, 0.04), id="nothing that is long enough"),
    ],
)
def test_the_first_word_begins_with_the_last_sound_before_the_second(
    sounds_s: list[tuple[float, float]], placed: tuple[float, float]
) -> None:
    """And it takes no longer than a word does."""
    assert place(" My", 0.0, 8.86, sounds_s, n_before=0) == pytest.approx(placed)


def test_other_words_end_with_their_first_sound() -> None:
    """A word in a sentence may be drawn out, and its pause follows it."""
    assert place(" My", 0.0, 8.86, [MUSIC, (8.6, 12.0)], n_before=2) == MUSIC
    # The end of the sound before it is none.
    assert place(" in", 5.0, 5.48, [(3.66, 5.04), (5.32, 6.22)], n_before=10) == (5.32, 5.48)
    assert place(" in", 5.0, 9.0, [(3.66, 5.04), (5.32, 9.0)], n_before=10) == (5.0, 5.04)


@pytest.mark.parametrize("text", [" Unfortunately,", " 1998", "五月五日", " URL"])
def test_long_words_keep_their_time(text: str) -> None:
    """Digits and ideographs take longer than letters."""
    assert place(text, 0.0, 1.2, [(0.0, 3.0)], n_before=0) == (0.0, 1.2)


def test_a_short_second_word_stays_where_it_is() -> None:
    """It follows the first one at once; a sound before the third word need not be it."""
    sounds_s = [(0.0, 0.4), (0.6, 3.0)]
    assert place(" it", 0.32, 0.7, sounds_s, n_before=1) == pytest.approx((0.32, 0.4))
    assert place(" it", 0.32, 0.7, sounds_s, n_before=0) == pytest.approx((0.6, 0.7))


@pytest.mark.parametrize(
    ("before", "sounds_s"),
    [
        pytest.param([(" Hello.", 0.5, 1.2, 0)], [(0.5, 12.0)], id="a sentence of one word, music at once"),
        pytest.param([(" platform", 0.1, 0.5, 4), (" three.", 0.5, 1.2, 5)], [(0.1, 12.0)], id="a longer sentence"),
        pytest.param([(" Hello.", 0.5, 1.2, 0)], [(0.5, 1.0), (1.2, 12.0)], id="music after a pause"),
    ],
)
def test_music_between_two_sentences_belongs_to_neither(
    before: list[tuple[str, float, float, int]], sounds_s: list[tuple[float, float]]
) -> None:
    """The first word after the music is moved, and the last one before it stays where it was spoken."""
    after = [(" How", 1.2, 9.0, 0), (" are", 9.0, 9.3, 1), (" you?", 9.3, 9.8, 2)]
    timed = [(Word(text, begin_s, end_s, 0.9), n_before) for text, begin_s, end_s, n_before in [*before, *after]]
    words = place_all(timed, sounds_s)
    last = words[len(before) - 1]
    assert (last.start_s, last.end_s) == (0.5, min(1.2, sounds_s[0][1]))
    assert words[len(before)].start_s == pytest.approx(8.77)
