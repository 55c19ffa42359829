"""Decides where a word lies in the stretch of time that the alignment gives it.

The alignment gives all time to some word. So the first word of a sentence also gets the music, the noise or the silence
before it: after seven seconds of music it lasted seven seconds. The second word begins within 0.1 s of the time that it
has without the music.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter

from tutti_server.engine.api import Word

Stretch = tuple[float, float]
"""A stretch of time: start and end in seconds."""

LONGEST_S, LONGEST_LETTER_S = 0.4, 0.1
"""The longest time that a word takes: so much, and so much for each letter, in seconds.

Of 458 words of people, four took longer.
"""
USUAL_S, USUAL_LETTER_S = 0.05, 0.06
"""The usual time of a word, in the same way."""
SHORTEST_S = 0.1
"""The shortest time that a word takes, in seconds; a shorter sound before a pause is none."""
LETTERS_OF_A_SIGN = 3
"""The number of letters that a digit, an ideograph or a letter that is spelled counts for, as in URL."""
FIRST_IDEOGRAPH = "\u2e80"
"""The characters from here on are those of East Asia."""
SENTENCE_ENDS = tuple(".?!。？！")
"""A sentence ends after a word that ends with one of these."""
N_FIRST_WORDS = 2
"""How many words at the beginning of a sentence may have got the time before it.

The second one has some of it where the time before has several sounds.
"""


def place_all(timed: Sequence[tuple[Word, int]], sounds_s: Sequence[Stretch]) -> tuple[Word, ...]:
    """Place the words of a segment, from the last one to the first.

    Args:
        timed: each word, from where it begins to where the next token does, and how many of its sentence are before it.
        sounds_s: see `place`.
    """
    words: list[Word] = []
    following, n_before_it = None, 0
    for word, n_before in reversed(timed):
        # A moved word leaves its time to the one before, but not what is between two sentences: music is no speech.
        was_moved = following is not None and n_before_it > 0 and words[-1].start_s > following.start_s
        until_s = words[-1].start_s if was_moved else word.end_s
        start_s, end_s = place(word.text, word.start_s, until_s, sounds_s, n_before=n_before)
        words.append(replace(word, start_s=start_s, end_s=end_s))
        following, n_before_it = word, n_before
    return tuple(reversed(words))


def place(text: str, start_s: float, until_s: float, sounds_s: Sequence[Stretch], *, n_before: int) -> Stretch:
    """Return when a word starts and ends.

    Args:
        start_s: where it begins by the alignment.
        until_s: where the following word begins; the word ends by then.
        sounds_s: the stretches of the audio that are not quiet, in order.
        n_before: how many words of its sentence are before it. From `N_FIRST_WORDS` on its first sound counts that is
            long enough.
    """
    first = bisect_right(sounds_s, start_s, key=itemgetter(1))
    if first == len(sounds_s) or sounds_s[first][0] >= until_s:
        return start_s, max(start_s, until_s)
    end_s = min(sounds_s[first][1], until_s)
    sounding = takewhile(lambda sound: sound[0] < until_s, sounds_s[first:])
    inside = [(max(begin, start_s), min(end, until_s)) for begin, end in sounding]
    longest_s = LONGEST_S + LONGEST_LETTER_S * _letters(text)
    # The second word may follow the first one at once, and be short.
    is_click = n_before != 1 and end_s - start_s < SHORTEST_S and len(inside) > 1
    long_enough = [each for each in inside if round(each[1] - each[0], 2) >= SHORTEST_S]
    if n_before >= N_FIRST_WORDS:
        # Of what begins at the end of a sound, the next one is the word, unless music follows the last word.
        begin_s, until_s = long_enough[0] if is_click and long_enough else (start_s, end_s)
        return (begin_s, until_s) if until_s - begin_s <= longest_s else (start_s, end_s)
    if not (end_s - start_s > longest_s or is_click) or not long_enough:
        return start_s, end_s
    begin_s, end_s = long_enough[-1]
    if end_s - begin_s > longest_s:
        begin_s = round(end_s - usual_s(text), 2)
    return begin_s, end_s


def usual_s(text: str) -> float:
    """Return how long a word usually takes, in seconds."""
    return USUAL_S + USUAL_LETTER_S * _letters(text)


def _letters(text: str) -> int:
    """How many letters a word counts for by the time that it takes."""
    spoken = list(filter(str.isalnum, text))
    is_spelled = text.isupper() and len(spoken) > 1
    return sum(LETTERS_OF_A_SIGN if is_spelled or each.isdigit() or each >= FIRST_IDEOGRAPH else 1 for each in spoken)
